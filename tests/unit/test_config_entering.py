"""A recommendation entered into a file that people write by hand: nothing else changes, or nothing at all."""

import fcntl
import os
import stat
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path

import pytest

from backupd.config import load
from backupd.config.entering import devices_on, enter, entered, require_enterable
from backupd.vocabulary.errors import Busy, ConfigurationError

HEAD = """\
# our server
[hosts.db1]
socket = "/run/mysqld.sock"   # the local one
user   = "backupd"

[targets.vault]
type = "directory"
path = "/backups"
"""
JOB = """
[jobs.nightly]   # every night
host = "db1"
targets = [
    "vault",  # and no other
]
"""
SNAPSHOT = """
[jobs.nightly.snapshot]  # the COW area
# how large
size = "20%"
chunk_size = '64KiB'  # by hand, 2024
# where
#pvs = []

# the gate
[jobs.nightly.settle]
enabled = false

# the other job
[jobs.weekly]
host = "db1"
targets = ["vault"]
"""
WHOLE = HEAD + JOB + SNAPSHOT
PV, OTHER_PV = "5QIaKV-SFG5-a8ZD-j1dl-iO3z-jV8Q-Rycilc", "a0QvUp-4gnX-8P9T-CTHf-osUP-jiGE-CIdlH3"
VALUES = {"chunk_size": "512KiB", "pvs": ("/dev/sde",)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "backupd.toml"
    path.write_text(WHOLE)
    return path


def test_values_are_changed_or_added_and_every_other_line_stays_in_its_place(path: Path) -> None:
    enter(path, "nightly", VALUES)
    expected = WHOLE.replace("'64KiB'", '"512KiB"').replace("# the COW area\n", '# the COW area\npvs = ["/dev/sde"]\n')
    assert path.read_text() == expected
    snapshot = load(path).jobs["nightly"].snapshot
    assert (snapshot.chunk_size, snapshot.pvs) == (512 << 10, ("/dev/sde",))
    assert load(path).jobs["weekly"].snapshot.pvs == ()


def test_a_note_stands_behind_a_value_until_the_next_and_no_comment_of_a_person_goes_for_it(path: Path) -> None:
    def now(key: str) -> str:
        (line,) = (line for line in path.read_text().splitlines() if line.startswith(f"{key} ="))
        return line

    day = date(2026, 11, 25)
    enter(path, "nightly", {"pvs": (PV,)}, notes={"pvs": devices_on(day, ["/dev/sde"])})
    assert now("pvs") == f'pvs = ["{PV}"]  # /dev/sde on 2026-11-25'
    both = devices_on(day + timedelta(days=1), ["/dev/sdc", "/dev/sdd"])
    enter(path, "nightly", {"pvs": (PV, OTHER_PV)}, notes={"pvs": both})
    assert now("pvs") == f'pvs = ["{PV}", "{OTHER_PV}"]  # /dev/sdc, /dev/sdd on 2026-11-26'
    enter(path, "nightly", {"pvs": ()})
    assert now("pvs") == "pvs = []"
    enter(path, "nightly", {"pvs": (PV,)}, notes={"pvs": devices_on(day, ["/dev/sde"])})
    path.write_text(path.read_text().replace("# /dev/sde on 2026-11-25", "# fast, here on 2026-11-25"))
    enter(path, "nightly", {"pvs": (OTHER_PV,)}, notes={"pvs": both})
    assert now("pvs") == f'pvs = ["{OTHER_PV}"]  # fast, here on 2026-11-25'
    assert now("chunk_size") == "chunk_size = '64KiB'  # by hand, 2024"


def test_what_lvm_calls_a_device_is_escaped_in_a_note(path: Path) -> None:
    for text in (WHOLE, WHOLE.replace("#pvs = []", "pvs = []")):
        path.write_text(text)
        enter(
            path,
            "nightly",
            {"pvs": (PV,)},
            notes={"pvs": devices_on(date(2026, 11, 25), ["/dev/sd\x07e\nextend = false"])},
        )
        snapshot = load(path).jobs["nightly"].snapshot
        assert (snapshot.pvs, snapshot.extend) == ((PV,), True)
        assert "\x07" not in path.read_text()


def test_a_number_is_entered_as_one_and_takes_the_place_of_another(path: Path) -> None:
    enter(path, "nightly", {"stripes": 2})
    assert path.read_text() == WHOLE.replace("# the COW area\n", "# the COW area\nstripes = 2\n")
    enter(path, "nightly", {"stripes": 3})
    assert path.read_text() == WHOLE.replace("# the COW area\n", "# the COW area\nstripes = 3\n")
    assert load(path).jobs["nightly"].snapshot.stripes == 3


def test_a_job_without_the_table_gets_it_below_its_own(path: Path) -> None:
    enter(path, "weekly", VALUES)
    added = '\n[jobs.weekly.snapshot]\nchunk_size = "512KiB"\npvs = ["/dev/sde"]\n'
    assert path.read_text() == WHOLE + added
    path.write_text(HEAD + JOB + '\n# next\n[jobs.weekly]\nhost = "db1"\ntargets = ["vault"]')  # and no last line end
    enter(path, "nightly", VALUES)
    assert path.read_text().startswith(HEAD + JOB + added.replace("weekly", "nightly") + "\n# next\n")
    enter(path, "weekly", VALUES)
    assert path.read_text().endswith('targets = ["vault"]\n' + added)


def test_keys_that_are_commented_out_stay_in_their_table(path: Path) -> None:
    path.write_text(HEAD + JOB + "#canary = true\n\n# next\n")
    enter(path, "nightly", VALUES)
    added = '\n[jobs.nightly.snapshot]\nchunk_size = "512KiB"\npvs = ["/dev/sde"]\n'
    assert path.read_text() == HEAD + JOB + "#canary = true\n" + added + "\n# next\n"


@pytest.mark.parametrize(
    "text", [WHOLE.replace("\n", "\r\n"), WHOLE.replace("[jobs.nightly.", "[ jobs . 'nightly' . ")]
)
def test_other_ways_to_write_the_same_are_kept(path: Path, text: str) -> None:
    path.write_bytes(text.encode())
    enter(path, "nightly", VALUES)
    lines = text.splitlines(keepends=True)
    kept = [line for line in path.read_bytes().decode().splitlines(keepends=True) if line in lines]
    assert kept == [line for line in lines if "64KiB" not in line]
    assert load(path).jobs["nightly"].snapshot.pvs == ("/dev/sde",)


def test_values_that_are_there_are_no_change(path: Path) -> None:
    enter(path, "nightly", VALUES)
    before = path.read_text()
    enter(path, "nightly", VALUES)
    assert path.read_text() == before


def test_owner_mode_and_attributes_stay(path: Path) -> None:
    path.chmod(0o640)
    if os.geteuid() == 0:
        os.chown(path, 1234, 4321)
    os.setxattr(path, "user.note", b"ours")
    before = path.stat()
    enter(path, "nightly", VALUES)
    after = path.stat()
    assert (stat.S_IMODE(after.st_mode), after.st_uid, after.st_gid) == (0o640, before.st_uid, before.st_gid)
    assert os.getxattr(path, "user.note") == b"ours"
    assert list(path.parent.iterdir()) == [path]


def symlinked(path: Path) -> None:
    path.rename(path.with_name("real.toml"))
    path.symlink_to("real.toml")


def read_only(path: Path) -> None:
    path.chmod(0o400)


def with_a_second_name(path: Path) -> None:
    path.with_name("other.toml").hardlink_to(path)


def inline(path: Path) -> None:
    path.write_text('jobs = { nightly = { host = "db1", targets = ["vault"] } }\n' + HEAD)


def dotted(path: Path) -> None:
    path.write_text('jobs.nightly.host = "db1"\njobs.nightly.targets = ["vault"]\n' + HEAD)


def inline_snapshot(path: Path) -> None:
    path.write_text(HEAD + JOB + 'snapshot = { size = "20%" }\n')


def in_a_text_alone(path: Path) -> None:
    """A header that is none: it stands in a text of several lines."""
    command = 'command = ["/bin/true", """\n[jobs.nightly.snapshot]\n"""]'
    path.write_text(f'{HEAD}{JOB}[jobs.nightly.hooks.x]\nwhen = ["before-run"]\n{command}\n')


def comment_within_a_value(path: Path) -> None:
    path.write_text(HEAD + JOB + '[jobs.nightly.snapshot]\npvs = [\n  # the fast one\n  "/dev/sdd",\n]\n')


def comment_behind_a_value_of_a_list(path: Path) -> None:
    path.write_text(HEAD + JOB + '[jobs.nightly.snapshot]\npvs = [\n  "/dev/sdd",  # never /dev/sdf\n]\n')


def other_job(path: Path) -> None:
    path.write_text(WHOLE.replace("jobs.nightly", "jobs.daily"))


def faulty(path: Path) -> None:
    path.write_text(WHOLE.replace('"20%"', '"a fifth"'))


def not_toml(path: Path) -> None:
    path.write_text(WHOLE + "]]")


def gone(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (comment_behind_a_value_of_a_list, ".snapshot] cannot be edited safely"),
        (symlinked, "is a symbolic link, which backupd does not replace"),
        (read_only, "is read-only"),
        (with_a_second_name, "has 2 names"),
        (inline, ".snapshot] cannot be edited safely"),
        (dotted, ".snapshot] cannot be edited safely"),
        (inline_snapshot, ".snapshot] cannot be edited safely"),
        (in_a_text_alone, ".snapshot] cannot be edited safely"),
        (comment_within_a_value, ".snapshot] cannot be edited safely"),
        (other_job, ".snapshot] cannot be edited safely"),
        (faulty, "a fifth"),
        (not_toml, "is not TOML"),
        (gone, "no configuration at "),
        (folder, "is a directory"),
    ],
)
def test_what_cannot_be_changed_safely_is_told_and_left_as_it_was(
    path: Path, spoil: Callable[[Path], None], words: str
) -> None:
    spoil(path)
    before = snapshot_of(path.parent)
    asked: list[Callable[[], None]] = [
        lambda: enter(path, "nightly", VALUES),
        lambda: require_enterable(path, "nightly", tuple(VALUES)),
    ]
    for ask in asked:
        with pytest.raises(ConfigurationError, match=words) as caught:
            ask()
        assert caught.value.hint
        assert "/dev/null" not in caught.value.hint, "nobody is told to enter what was only tried"
    assert snapshot_of(path.parent) == before


def test_a_value_that_the_loader_would_refuse_never_gets_into_the_file(path: Path) -> None:
    with pytest.raises(ConfigurationError, match="sde"):
        enter(path, "nightly", {"pvs": ("sde",)})
    assert path.read_text() == WHOLE


def test_a_file_that_somebody_changes_meanwhile_is_theirs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = WHOLE.replace("20%", "30%")

    def change_first(*arguments: object, **how: object) -> str:
        text = entered(*arguments, **how)  # type: ignore[arg-type]
        path.write_text(theirs + "\n")
        return text

    monkeypatch.setattr("backupd.config.entering.entered", change_first)
    with pytest.raises(ConfigurationError, match="was changed by somebody else in the meantime, and was not written"):
        enter(path, "nightly", VALUES)
    assert path.read_text() == theirs + "\n"
    assert list(path.parent.iterdir()) == [path]


def test_two_at_a_time_do_not_undo_each_other(path: Path) -> None:
    with path.open() as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="another command is changing"):
            enter(path, "nightly", VALUES)
    assert path.read_text() == WHOLE
    enter(path, "nightly", VALUES)


def test_asking_whether_it_could_be_done_changes_nothing(path: Path) -> None:
    before = snapshot_of(path.parent)
    require_enterable(path, "nightly", tuple(VALUES))
    assert snapshot_of(path.parent) == before


def snapshot_of(folder: Path) -> dict[str, tuple[int, int, bytes]]:
    """Every name with its inode, mode and content."""
    found = {}
    for path in folder.iterdir():
        status = path.lstat()
        found[path.name] = (status.st_ino, status.st_mode, path.read_bytes() if path.is_file() else b"")
    return found
