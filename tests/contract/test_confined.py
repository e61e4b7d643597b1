"""A confined child writes in its folder and nowhere else, whatever leads out of it; where nothing binds it, it is none.

Tried on this machine's kernel as it is, and as one that refuses what containers and older kernels refuse.
"""

import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.host import process
from backupd.host.sandbox import NOT_CONFINED, Bounds, not_confined
from tests.unconfinable import without

NOBODY = 65534
AS_ROOT = os.geteuid() == 0
WHO = ["ourselves", "nobody"] if AS_ROOT else ["ourselves"]
KERNELS = {
    "everything": (),
    "no Landlock": ("landlock_create_ruleset",),
    "no namespaces": ("unshare",),
    "namespaces and nothing in them": ("mount_setattr",),
}
NEITHER = [("unshare", "landlock_create_ruleset"), ("mount_setattr", "landlock_create_ruleset")]


@pytest.fixture(params=WHO)
def who(request: pytest.FixtureRequest) -> tuple[str, ...]:
    """What has a command run as another user."""
    if request.param == "ourselves":
        return ()
    return ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--")


@pytest.fixture(params=KERNELS.values(), ids=list(KERNELS))
def kernel(request: pytest.FixtureRequest) -> Sequence[str]:
    return without(request.param)


@pytest.fixture
def place(who: tuple[str, ...]) -> Iterator[Path]:
    """A folder with `inside` and `outside` in it, both of whom the child runs as, and writable to all the world."""
    with tempfile.TemporaryDirectory(prefix="backupd-test-") as name:
        place = Path(name)
        place.chmod(0o755)
        for folder in ("inside", "outside"):
            (place / folder).mkdir()
            if who:
                os.chown(place / folder, NOBODY, NOBODY)
        (place / "outside" / "file").write_text("as it was")
        (place / "outside" / "file").chmod(0o666)
        yield place


def ended(argv: Sequence[str], *, accept: Sequence[int] = range(256)) -> process.Completed:
    return process.run(argv, timeout_seconds=20, accept=accept)


def shell(text: str, place: Path) -> list[str]:
    return ["sh", "-c", text, "sh", str(place)]


def bound(place: Path) -> list[str]:
    return Bounds((place / "inside",)).prefix()


@pytest.mark.parametrize(
    "text",
    [
        'echo x > "$1/outside/file"',
        'echo x > "$1/outside/new"',
        'ln -s "$1/outside" "$1/inside/d" && echo x > "$1/inside/d/file"',
        'ln -s ../outside/file "$1/inside/f" && echo x > "$1/inside/f"',
        'ln "$1/outside/file" "$1/inside/second" && echo x > "$1/inside/second"',
        'mkdir "$1/outside/folder"',
        'rm "$1/outside/file"',
        'mv "$1/outside/file" "$1/inside"',
        'cd "$1/inside" && echo x > "/proc/$PPID/root/$1/outside/file"',
        'cd "$1/inside" && echo x > "/proc/$PPID/cwd/outside.written"',
    ],
)
def test_nothing_outside_is_written(text: str, place: Path, who: tuple[str, ...], kernel: Sequence[str]) -> None:
    argv = [*kernel, *who, *bound(place), *shell(text, place)]
    assert ended(argv).status not in (0, NOT_CONFINED, 127)
    assert [path.name for path in (place / "outside").iterdir()] == ["file"]
    assert (place / "outside" / "file").read_text() == "as it was"


@pytest.mark.parametrize("text", ['chmod 600 "$1/outside/file"', 'touch -d @0 "$1/outside/file"'])
@pytest.mark.parametrize("refused", [(), ("landlock_create_ruleset",)])
def test_with_a_mount_namespace_modes_and_times_outside_stay_too(
    text: str, refused: Sequence[str], place: Path, who: tuple[str, ...]
) -> None:
    before = (place / "outside" / "file").stat()
    assert ended([*without(refused), *who, *bound(place), *shell(text, place)]).status == 1
    after = (place / "outside" / "file").stat()
    assert (after.st_mode, after.st_mtime_ns) == (before.st_mode, before.st_mtime_ns)


def test_inside_all_goes_as_ever(place: Path, who: tuple[str, ...], kernel: Sequence[str]) -> None:
    text = """cd "$1/inside" && mkdir a b && echo x > a/f && ln a/f b/g && ln -s ../a/f b/l && mv a/f a/h
    cat a/h >/dev/null && chmod 600 a/h && touch -d @0 a/h && rm b/l && head -c 3 /dev/zero >> b/g"""
    ended([*kernel, *who, *bound(place), *shell(text, place)], accept=(0,))
    assert (place / "inside" / "a" / "h").read_bytes() == b"x\n\0\0\0"
    assert (place / "inside" / "a" / "h").samefile(place / "inside" / "b" / "g")


def test_it_has_no_network_unless_it_is_given_one(place: Path, who: tuple[str, ...], kernel: Sequence[str]) -> None:
    asking = """import socket, sys
with socket.socket(socket.AF_UNIX): pass
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 5): pass"""
    bounds = Bounds((place / "inside",))
    with socket.create_server(("127.0.0.1", 0)) as server:
        connecting = ["python3", "-c", asking, str(server.getsockname()[1])]
        assert ended([*kernel, *who, *replace(bounds, network=True).prefix(), *connecting]).status == 0
        refused = ended([*kernel, *who, *bounds.prefix(), *connecting])
    assert refused.status == 1
    assert "unreachable" in refused.stderr or "not permitted" in refused.stderr


def test_a_set_id_file_gives_it_nothing(place: Path, who: tuple[str, ...], kernel: Sequence[str]) -> None:
    program = place / "outside" / "whoami"
    program.write_bytes(Path("/usr/bin/id").read_bytes())
    program.chmod(0o6755)
    argv = [*kernel, *who, *bound(place), str(program), "-u"]
    assert ended(argv, accept=(0,)).stdout.strip() == str(NOBODY if who else os.geteuid())


def test_it_has_no_capability_but_those_for_files(place: Path, who: tuple[str, ...], kernel: Sequence[str]) -> None:
    argv = [*kernel, *who, *bound(place), "cat", "/proc/self/status"]
    told = dict(
        line.split(":\t") for line in ended(argv, accept=(0,)).stdout.splitlines() if line.startswith(("Cap", "NoN"))
    )
    files = (1 << 0) | (1 << 1) | (1 << 3) | (1 << 4)
    wanted = 0 if who or not AS_ROOT else files
    assert int(told["CapEff"], 16) == int(told["CapPrm"], 16) == wanted
    assert int(told["CapInh"], 16) == int(told["CapAmb"], 16) == 0
    assert told["NoNewPrivs"] == "1"


def test_it_makes_no_device_and_uses_no_disk(place: Path, who: tuple[str, ...], kernel: Sequence[str]) -> None:
    disk = Path(f"/dev/block/{os.major(place.stat().st_dev)}:{os.minor(place.stat().st_dev)}")
    for text in ('mknod "$1/inside/null" c 1 3', f"echo > {disk}", "echo > /dev/kmsg"):
        assert ended([*kernel, *who, *bound(place), *shell(text, place)]).status not in (0, NOT_CONFINED)


def test_it_is_killed_with_who_has_started_it(place: Path, who: tuple[str, ...], kernel: Sequence[str]) -> None:
    fifo = place / "outside" / "alive"
    os.mkfifo(fifo)
    fifo.chmod(0o666)
    argv = [*kernel, *who, *bound(place), *shell('echo it is up; exec cat "$1/outside/alive"', place)]
    starting = "import subprocess, sys; subprocess.run(sys.argv[1:])"
    parent = subprocess.Popen(["python3", "-c", starting, *argv], stdout=subprocess.PIPE)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"it is up\n"
    writer = os.open(fifo, os.O_WRONLY)  # opened once the child reads
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert parent.stdout.read() == b""  # nobody has it open any more
    os.close(writer)


def test_a_broken_pipe_ends_it(place: Path) -> None:
    argv = [*bound(place), "sh", "-c", "kill -PIPE $$"]
    assert subprocess.run(argv, check=False).returncode == -signal.SIGPIPE


@pytest.mark.parametrize("refused", [(), ("landlock_create_ruleset",)])
def test_it_may_be_another_user_and_find_its_folder_where_that_one_can_go(refused: Sequence[str], place: Path) -> None:
    """Of root's; another can become nobody else, and is told so."""
    private, seen = place / "private", place / "inside" / "seen"
    (private / "copy").mkdir(parents=True)
    private.chmod(0o700)
    seen.mkdir()
    if AS_ROOT:
        os.chown(private / "copy", NOBODY, NOBODY)
    bounds = Bounds((place / "inside",), seen_at={private / "copy": seen}, ids=(NOBODY, NOBODY))
    text = 'id -u; id -G; grep CapBnd /proc/self/status; echo x > "$1/inside/seen/file"'
    found = ended([*without(refused), *bounds.prefix(), *shell(text, place)])
    if not AS_ROOT:
        assert found.status == NOT_CONFINED
        return
    assert found.stderr == ""
    assert (found.status, found.stdout) == (0, f"{NOBODY}\n{NOBODY}\nCapBnd:\t{0:016x}\n")
    assert (private / "copy" / "file").read_text() == "x\n"
    assert (private / "copy" / "file").stat().st_uid == NOBODY
    assert not list(seen.iterdir())


@pytest.mark.parametrize("refused", NEITHER)
def test_where_nothing_binds_it_nothing_is_started(place: Path, who: tuple[str, ...], refused: Sequence[str]) -> None:
    found = ended([*without(refused), *who, *bound(place), *shell('echo x > "$1/inside/file"', place)])
    error = not_confined(found.status, found.stderr, doing="unpacking")
    assert error is not None
    assert error.message.startswith("unpacking cannot be confined on this host: ")
    assert "restore.unconfined" in error.hint
    assert not list((place / "inside").iterdir())


def test_where_it_can_be_seen_nowhere_else_nothing_is_started(place: Path, who: tuple[str, ...]) -> None:
    bounds = Bounds(seen_at={place / "inside": place / "outside"})
    found = ended([*without(("unshare",)), *who, *bounds.prefix(), *shell('echo x > "$1/outside/file"', place)])
    assert found.status == NOT_CONFINED
    assert (place / "outside" / "file").read_text() == "as it was"


def test_what_the_host_unmounts_is_not_kept_busy(tmp_path: Path) -> None:
    """A drill's server lives for hours, and a run unmounts its snapshot meanwhile."""
    (tmp_path / "inside").mkdir()
    (tmp_path / "outside").mkdir()
    hosting = """place=$1; shift; mount -t tmpfs none "$place/outside"; mkfifo "$place/inside/up" "$place/inside/go"
    "$@" & read _ < "$place/inside/up"; umount "$place/outside"; echo > "$place/inside/go"; wait"""
    child = """grep -c "$1/outside" /proc/self/mountinfo; echo > "$1/inside/up"
    read _ < "$1/inside/go"; grep -c "$1/outside" /proc/self/mountinfo"""
    host = ["unshare", "--map-root-user", "--mount", "--propagation", "shared", *shell(hosting, tmp_path)]
    assert ended([*host, *bound(tmp_path), *shell(child, tmp_path)]).stdout == "1\n0\n"


def test_a_folder_may_be_named_by_a_link(place: Path, kernel: Sequence[str]) -> None:
    (place / "named").symlink_to("inside")
    ended([*kernel, *Bounds((place / "named",)).prefix(), *shell('echo x > "$1/named/file"', place)], accept=(0,))
    assert (place / "inside" / "file").read_text() == "x\n"


def test_one_folder_may_lie_in_another(place: Path, kernel: Sequence[str]) -> None:
    (place / "inside" / "inner").mkdir()
    bounds = Bounds((place / "inside", place / "inside" / "inner"))
    text = 'echo x > "$1/inside/inner/file" && echo x > "$1/inside/file"'
    ended([*kernel, *bounds.prefix(), *shell(text, place)], accept=(0,))
    assert (place / "inside" / "inner" / "file").read_text() == "x\n"


def test_a_folder_that_is_not_there_is_told(place: Path, kernel: Sequence[str]) -> None:
    found = ended([*kernel, *Bounds((place / "nowhere",)).prefix(), "true"])
    assert found.stderr == f"{place / 'nowhere'}: No such file or directory\n"
    assert not_confined(found.status, found.stderr, doing="unpacking") is None


def test_a_commands_own_end_is_its_own(place: Path) -> None:
    found = ended([*bound(place), "sh", "-c", f"echo it is full >&2; exit {NOT_CONFINED}"])
    assert found.status == NOT_CONFINED
    assert not_confined(found.status, found.stderr, doing="unpacking") is None
    assert (
        ended([*bound(place), "no-such-program"]).stderr
        == "no-such-program cannot be started: No such file or directory\n"
    )
