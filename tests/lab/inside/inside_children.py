"""As whom the children of a run and a drill work, which network they see, and what they can write."""

import os
import pwd
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd.host.process import run
from backupd.lab.servers import SOFTWARE
from backupd.policy.signing import KEY_FILE
from backupd.vocabulary.errors import CommandError
from tests.lab.inside.host import GATE_OFF, SERVER, SITE, STAGING, Changes, Host, tool

KNOWN = {entry.pw_uid for entry in pwd.getpwall()}  # root, nobody, all people, and the server's own account
SERVER_PROGRAM = Path(SOFTWARE[SERVER].program).name
PRIVATE = re.compile(r".*/backupd-[^/]+(/copy)?")  # the scratch server's own folder, and the copy that it sees there
AS_OWNER = {"sysbench", "mkdir"}  # what writes to the database's volume
OWNER = 61000  # of a volume's root: a user whom nobody is
TO_GIVE_AWAY = 0b11011  # what root needs to make any file and to give it away: CHOWN, DAC_OVERRIDE, FOWNER, FSETID
QUESTIONS = {"--version", "--help"}
BEFORE = ("setpriv", "ionice", "nice", "env")  # what becomes the child, and so it does again by another name
PROBING: Changes = {"jobs.nightly.settle.probe": True, "jobs.nightly.settle.baseline_windows": 2}


@dataclass(frozen=True)
class Child:
    """A process as the kernel had it."""

    program: str
    uids: frozenset[int]  # real, effective, saved, of the file system
    powers: int  # effective capabilities
    own_network: bool  # not the machine's
    writable: frozenset[str] | None  # mount points that can be written; None: it sees what backupd sees

    @property
    def is_free(self) -> bool:
        """Root, in nobody's bounds."""
        return 0 in self.uids and not self.own_network and self.writable is None


def child(pid: int, backupd: int) -> Child | None:
    """None where it has ended, or has not become its program yet."""
    folder, parent = Path(f"/proc/{pid}"), Path(f"/proc/{backupd}")
    try:
        words = (folder / "cmdline").read_bytes().split(b"\0")
        told = dict(line.split(":\t", 1) for line in (folder / "status").read_text().splitlines() if ":\t" in line)
        networks = [(each / "ns" / "net").readlink() for each in (folder, parent)]
        mounts = [(each / "ns" / "mnt").readlink() for each in (folder, parent)]
        lines = [line.split(" ") for line in (folder / "mountinfo").read_text().splitlines()]
        program = Path(os.fsdecode(words[0])).name
        if not program or program in BEFORE or QUESTIONS & {os.fsdecode(word) for word in words}:
            return None
        if any(word.endswith(b"sandbox_program.py") for word in words):
            return None  # not bound yet
        return Child(
            program,
            frozenset(map(int, told["Uid"].split())),
            int(told["CapEff"], 16),
            own_network=networks[0] != networks[1],
            writable=frozenset(line[4] for line in lines if "rw" in line[5].split(","))
            if mounts[0] != mounts[1]
            else None,
        )
    except (OSError, KeyError, ValueError):
        return None


def children_of(*words: str, config: Path) -> set[Child]:
    """Every child that was seen while the command worked, looked for many times a second; it has to succeed."""
    argv = ["backupd", "--config", str(config), *words]
    found: set[Child] = set()
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        while process.poll() is None:
            found |= set(seen(process.pid))
            time.sleep(0.01)
        said = process.communicate()[1]
    assert process.returncode == 0, said
    return found


def seen(backupd: int) -> Iterator[Child]:
    """Its children and theirs, in one look at all processes."""
    parents = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parents[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
    ours = {backupd}
    while found := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= found
    for pid in ours - {backupd}:
        one = child(pid, backupd)
        if one is not None:
            yield one


def in_staging(path: str) -> bool:
    return STAGING in Path(path).parents


@pytest.fixture(scope="module")
def of_a_drill(tmp_path_factory: pytest.TempPathFactory) -> set[Child]:
    host = Host(tmp_path_factory.mktemp("drill"))
    host.backupd("run", "nightly", changes=GATE_OFF)
    return children_of("drill", "latest", config=host.configured(GATE_OFF))


def test_the_server_of_a_drill_is_a_user_of_its_own(of_a_drill: set[Child]) -> None:
    servers = [each for each in of_a_drill if each.program == SERVER_PROGRAM]
    assert servers
    for server in servers:
        assert len(server.uids) == 1
        assert not server.uids & KNOWN
        assert server.powers == 0
        assert server.own_network
        assert server.writable is not None
        assert [path for path in server.writable if not PRIVATE.fullmatch(path) and not in_staging(path)] == []


def test_whatever_else_a_drill_starts_is_bound_as_well(of_a_drill: set[Child]) -> None:
    """It handles what lay on a target; python is backupd's own, which only passes on what it cannot read itself."""
    free = {each.program for each in of_a_drill if each.is_free and not each.program.startswith(("python", "backupd"))}
    assert free == set()
    unpacking = [each for each in of_a_drill if each.program == "tar"]
    assert unpacking
    for tar in unpacking:
        assert tar.own_network
        assert tar.powers & ~TO_GIVE_AWAY == 0
        assert tar.writable is not None
        assert [path for path in tar.writable if not in_staging(path)] == []


@pytest.fixture(scope="module")
def of_a_run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[set[Child]]:
    """The lab's volume is root's; on a host it may be its server's."""
    host, before = Host(tmp_path_factory.mktemp("run")), SITE.mount_point.stat()
    os.chown(SITE.mount_point, OWNER, OWNER)
    try:
        yield children_of("run", "nightly", config=host.configured(PROBING))
    finally:
        os.chown(SITE.mount_point, before.st_uid, before.st_gid)


def test_a_run_starts_no_server_and_only_what_it_is_known_to(of_a_run: set[Child]) -> None:
    """Its own tools see the machine as it is: they make the snapshot, mount it and read it."""
    known = {"lvm", "lvs", "lvremove", "dmsetup", "dmeventd", "modprobe", "mount", "umount", "rm", "backupd"}
    tools = [each for each in of_a_run if each.program not in AS_OWNER]
    assert tools
    named = {each.program for each in tools}
    assert {name for name in named if name not in known and not name.startswith("python")} == set()
    assert {each.program for each in tools if not each.is_free or each.uids != {0}} == set()


@pytest.mark.usefixtures("of_a_run", "of_a_drill")
def test_neither_the_record_nor_a_manifest_has_a_password_or_a_key() -> None:
    """Whoever has a copy of one has the history, and no way in."""
    key = (SITE.catalogue.parent / KEY_FILE).read_text().splitlines()[1]
    secrets = (SITE.password_file.read_text().strip().encode(), key.encode())
    files = [*SITE.catalogue.parent.glob(f"{SITE.catalogue.name}*"), *SITE.backups.rglob("*.json")]
    assert {"manifest.json", SITE.catalogue.name} <= {file.name for file in files}
    assert {file.name for file in files for secret in secrets if secret in file.read_bytes()} == set()


def test_what_writes_to_the_servers_volume_in_a_run_is_the_volumes_owner(of_a_run: set[Child]) -> None:
    probes = [each for each in of_a_run if each.program in AS_OWNER]
    assert "sysbench" in {each.program for each in probes}
    assert {each.uids for each in probes} == {frozenset({OWNER})}
    assert {each.powers for each in probes} == {0}


def test_program_that_the_kernel_does_not_let_die_is_left_and_named() -> None:
    """It reads a disk that does not answer: SIGKILL ends it when that does, be it in an hour."""
    disk = "lab-silent"
    tool("dmsetup", "create", disk, "--table", "0 8 zero")
    tool("dmsetup", "suspend", disk)
    began = time.monotonic()
    try:
        with pytest.raises(CommandError) as told:
            run(["dd", f"if=/dev/mapper/{disk}", "of=/dev/null", "iflag=direct", "count=1"], timeout_seconds=1)
        assert time.monotonic() - began < 20
        assert "hangs in the kernel" in told.value.hint
    finally:
        tool("dmsetup", "resume", disk)
        tool("dmsetup", "remove", "--retry", disk)
