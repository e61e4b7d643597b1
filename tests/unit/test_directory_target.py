"""What only a folder as a target promises: names, modes, durability, and sentences for what file systems say."""

import contextlib
import errno
import math
import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from io import FileIO
from pathlib import Path
from typing import Any, NoReturn

import pytest

from backupd.policy.owner_record import OwnerRecord
from backupd.targets.directory import DirectoryTarget
from backupd.targets.told_times import told_time
from backupd.vocabulary.errors import AlreadyThere, TargetAway, TargetError
from tests.contract.test_target_segments import put_segment
from tests.contract.test_targets import MANIFEST
from tests.fakes.target import MACHINE

RECORD = OwnerRecord(MACHINE, 1, "a" * 32, "db1", datetime(2026, 1, 2, tzinfo=UTC))
JOB, RUN, NAME = "nightly", "run-1", "data-1.tar.zst"


def everything(folder: Path) -> set[str]:
    """What lies there but for the machine's folder itself, whose things are called as if they lay in the target's."""
    ours = folder / MACHINE
    lies = (path for path in folder.rglob("*") if path != ours)
    return {str(path.relative_to(ours if path.is_relative_to(ours) else folder)) for path in lies}


def put(target: DirectoryTarget, content: bytes) -> None:
    with target.writing(JOB, RUN, NAME) as writer:
        writer.write(content)


def test_only_the_owner_can_read_what_is_stored(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        put(DirectoryTarget("store", tmp_path, machine=MACHINE), b"x")
    finally:
        os.umask(before)
    modes = {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in tmp_path.rglob("*")}
    folders = (MACHINE, f"{MACHINE}/{JOB}", f"{MACHINE}/{JOB}/{RUN}")
    assert modes == {**dict.fromkeys(folders, 0o700), f"{MACHINE}/{JOB}/{RUN}/{NAME}": 0o600}


def test_object_has_a_temporary_name_until_it_is_whole(tmp_path: Path) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    with target.writing(JOB, RUN, NAME) as writer:
        writer.write(b"x")
        assert f"{JOB}/{RUN}/.{NAME}.partial" in everything(tmp_path)
    assert everything(tmp_path) == {JOB, f"{JOB}/{RUN}", f"{JOB}/{RUN}/{NAME}"}


def test_remove_leaves_nothing_but_the_machine_s_folder(tmp_path: Path) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    put(target, b"x")
    (tmp_path / MACHINE / JOB / RUN / f".{NAME}.partial").write_bytes(b"left by a process that was killed")
    target.remove(JOB, RUN)
    assert everything(tmp_path) == set()


def test_proof_of_being_writable_leaves_nothing(tmp_path: Path) -> None:
    assert DirectoryTarget("store", tmp_path, machine=MACHINE).require_usable() > 0
    assert everything(tmp_path) == set()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_proof_of_being_writable_that_stays_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> NoReturn:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(TargetError, match="clean-up incomplete: ") as refused:
        DirectoryTarget("store", tmp_path, machine=MACHINE).require_usable()
    (left,) = tmp_path.iterdir()
    assert str(left) in refused.value.message
    assert "removes it" in refused.value.hint


def test_a_folder_that_may_be_written_but_not_listed_is_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Root on a share that takes root for nobody; here, root may list whatever there is."""

    def refuse(path: Path) -> NoReturn:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))

    monkeypatch.setattr(os, "scandir", refuse)
    assert DirectoryTarget("store", tmp_path, machine=MACHINE).require_usable() > 0


def test_missing_folder_is_not_created(tmp_path: Path) -> None:
    target = DirectoryTarget("store", tmp_path / "unmounted", machine=MACHINE)
    with pytest.raises(TargetError, match="does not exist") as refused:
        target.require_usable()
    assert "mount" in refused.value.hint
    with pytest.raises(TargetError, match="does not exist"):
        put(target, b"x")
    assert everything(tmp_path) == set()


def test_file_in_the_folders_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("")
    with pytest.raises(TargetError, match="is not a folder"):
        DirectoryTarget("store", tmp_path / "store", machine=MACHINE).require_usable()


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        (errno.ESTALE, TargetAway),  # of NFS whose server has forgotten it
        (errno.ENOTCONN, TargetAway),  # of FUSE whose process has died
        (errno.EIO, TargetError),
        (errno.EACCES, TargetError),
    ],
)
def test_a_folder_that_cannot_be_looked_at_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, kind: type[TargetError]
) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    really = Path.stat

    def fail(path: Path, **how: Any) -> os.stat_result:
        if path.is_relative_to(tmp_path):
            failing(number)()
        return really(path, **how)

    monkeypatch.setattr(Path, "stat", fail)
    for ask in (target.require_usable, target.backups, target.owner):
        with pytest.raises(TargetError, match=rf"target store \({tmp_path}\): {os.strerror(number)}") as told:
            ask()
        assert type(told.value) is kind
        assert told.value.hint


FAULTS = [
    (errno.ENOSPC, "no space left on target store"),
    (errno.EDQUOT, "no space left on target store"),
    (errno.EROFS, "is mounted read-only"),
    (errno.EIO, "could not write data-1.tar.zst to target store"),
]


def failing(number: int) -> Any:
    def call(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize(("number", "sentence"), FAULTS)
@pytest.mark.parametrize("call", ["write", "fsync", "close", "rename"])
def test_errors_at_any_step_get_a_sentence_and_leave_no_object(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, sentence: str
) -> None:
    class Failing(FileIO):
        """A file whose file system tells of a failure at one of its calls."""

        def write(self, data: Any) -> int:
            return failing(number)() if call == "write" else super().write(data)

        def close(self) -> None:
            told = call == "close" and not self.closed
            super().close()
            if told:
                failing(number)()

    monkeypatch.setattr("backupd.targets.directory.FileIO", Failing)
    if call == "fsync":
        monkeypatch.setattr(os, "fsync", lambda file: failing(number)() if _is_file(file) else None)
    if call == "rename":
        monkeypatch.setattr(Path, "rename", failing(number))
    with pytest.raises(TargetError) as failed:
        put(DirectoryTarget("store", tmp_path, machine=MACHINE), b"x")
    assert sentence in failed.value.message
    assert str(tmp_path) in failed.value.message
    assert failed.value.hint
    assert everything(tmp_path) == {JOB, f"{JOB}/{RUN}"}


def test_a_file_that_has_the_name_already_stays_where_a_new_one_cannot_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    file = Path(target.location(JOB, RUN)) / NAME
    file.parent.mkdir(parents=True)
    file.write_bytes(b"somebody's")
    monkeypatch.setattr(Path, "rename", failing(errno.EIO))
    with pytest.raises(TargetError):
        put(target, b"x")
    assert file.read_bytes() == b"somebody's"


def test_object_whose_name_was_not_made_durable_is_taken_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    put(target, b"x")  # the folders are there
    target.remove(JOB, RUN)
    (tmp_path / MACHINE / JOB / RUN).mkdir(parents=True)
    monkeypatch.setattr(os, "fsync", lambda file: None if _is_file(file) else failing(errno.EIO)())
    with pytest.raises(TargetError):
        put(target, b"x")
    assert everything(tmp_path) == {JOB, f"{JOB}/{RUN}"}


def test_full_target_is_not_usable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
    with pytest.raises(TargetError, match="no space left on"):
        DirectoryTarget("store", tmp_path, machine=MACHINE).require_usable()
    assert everything(tmp_path) == set()


def test_damaged_manifest_is_told_from_a_missing_one(tmp_path: Path) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    with pytest.raises(TargetError, match="no backup run-1"):
        target.manifest(JOB, RUN)
    put(target, b"x")
    with pytest.raises(TargetError, match="unfinished"):
        target.manifest(JOB, RUN)


def test_a_folder_that_is_removed_again_and_again_is_told_at_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[None] = []

    def gone(*_: object, **__: object) -> None:
        tries.append(None)
        failing(errno.ENOENT)()

    monkeypatch.setattr(Path, "mkdir", gone)
    with pytest.raises(TargetError, match=f"could not write {NAME} to target store"):
        put(DirectoryTarget("store", tmp_path, machine=MACHINE), b"x")
    assert len(tries) > 1


def test_what_was_written_is_forgotten_by_the_page_cache_while_more_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dirty pages without a bound would throttle the server's own writes."""
    forgotten: list[tuple[int, int]] = []
    monkeypatch.setattr("backupd.targets.directory._WRITE_BEHIND_BYTES", 4096)
    monkeypatch.setattr(
        os, "posix_fadvise", lambda _file, start, size, _advice: forgotten.append((start, start + size))
    )
    content = os.urandom(3 * 4096)
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    with target.writing(JOB, RUN, NAME) as writer:
        for start in range(0, len(content), 1024):
            writer.write(content[start : start + 1024])
    assert forgotten == [(0, 4096), (0, 8192), (4096, 12288), (0, 0)], "and all of it at the end"
    assert (tmp_path / MACHINE / JOB / RUN / NAME).read_bytes() == content


def test_an_object_that_is_removed_while_it_is_listed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    put(target, b"x")
    with target.writing(JOB, RUN, "index.jsonl.zst") as writer:
        writer.write(b"xy")
    really = os.scandir

    @contextlib.contextmanager
    def listed(path: Path) -> Any:
        with really(path) as entries:
            found = list(entries)
        (tmp_path / MACHINE / JOB / RUN / NAME).unlink()
        yield found

    monkeypatch.setattr(os, "scandir", listed)
    assert target.objects(JOB, RUN) == {"index.jsonl.zst": 2}


def _is_file(descriptor: int) -> bool:
    return not os.path.isdir(f"/proc/self/fd/{descriptor}")  # noqa: PTH112 - Path would resolve nothing more


def test_a_range_is_read_past_the_cache_at_whole_pages_wherever_it_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """O_DIRECT refuses any other offset with EINVAL (open(2)), and so would this file system, where it has it."""
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    content = os.urandom((3 << 20) + 517)
    put(target, content)
    flags, offsets = [], []
    real_open, real_read = os.open, os.preadv

    def opening(path: Any, how: int, **rest: Any) -> int:
        flags.append(how)
        return real_open(path, how, **rest)

    def reading(file: int, buffers: Any, at: int) -> int:
        offsets.append(at)
        return real_read(file, buffers, at)

    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "preadv", reading)
    for offset, size in [(1, 1), (4095, 2), ((1 << 20) + 517, (1 << 20) + 3), (len(content) - 1, 1)]:
        with target.reading(JOB, RUN, NAME, offset=offset, size=size) as chunks:
            assert b"".join(chunks) == content[offset : offset + size]
    assert {bool(how & os.O_DIRECT) for how in flags if not how & os.O_PATH} == {True}
    assert {at % 4096 for at in offsets} == {0}
    assert len(offsets) == 5  # the long one takes two reads of 1 MiB: no more is read than was asked for


def test_a_manifest_is_read_past_the_cache_as_all_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    target.publish(MANIFEST)
    flags: dict[str, int] = {}
    real_open = os.open

    def opening(path: Any, how: int, **rest: Any) -> int:
        if not how & os.O_PATH:
            flags.setdefault(Path(path).resolve().name, how)
        return real_open(path, how, **rest)

    monkeypatch.setattr(os, "open", opening)
    assert target.manifest(MANIFEST.job, MANIFEST.run_id) == MANIFEST
    assert flags["manifest.json"] & os.O_DIRECT


# --- a file system that may not be mounted ---------------------------------------------------------------------------

SENTINEL = ".backupd-here"
OPERATIONS: dict[str, Callable[[DirectoryTarget], object]] = {
    "use": lambda target: target.require_usable(),
    "write": lambda target: put(target, b"x"),
    "read": lambda target: target.reading(JOB, RUN, NAME).__enter__(),
    "manifest": lambda target: target.manifest(JOB, RUN),
    "list": lambda target: target.backups(),
    "list a job": lambda target: target.backups(JOB),
    "list a backup": lambda target: target.objects(JOB, RUN),
    "list segments": lambda target: target.segments(JOB),
    "remove": lambda target: target.remove(JOB, RUN),
}


@pytest.mark.parametrize("name", OPERATIONS)
def test_nothing_is_read_or_written_where_the_sentinel_is_missing(tmp_path: Path, name: str) -> None:
    put(DirectoryTarget("store", tmp_path, machine=MACHINE), b"x")
    before = everything(tmp_path)
    with pytest.raises(TargetError) as refused:
        OPERATIONS[name](DirectoryTarget("store", tmp_path, machine=MACHINE, sentinel=SENTINEL))
    assert refused.value.message == f"the file system of {tmp_path} is not mounted: there is no {SENTINEL} in it"
    assert refused.value.hint == f"mount it; on a new one, once: touch {tmp_path / SENTINEL}"
    assert everything(tmp_path) == before


@pytest.mark.parametrize("name", OPERATIONS)
def test_a_folder_that_is_not_there_is_never_taken_for_an_empty_one(tmp_path: Path, name: str) -> None:
    with pytest.raises(TargetError, match="does not exist"):
        OPERATIONS[name](DirectoryTarget("store", tmp_path / "unmounted", machine=MACHINE))


def test_with_its_sentinel_the_folder_is_a_target_like_any_other(tmp_path: Path) -> None:
    (tmp_path / SENTINEL).touch()
    target = DirectoryTarget("store", tmp_path, machine=MACHINE, sentinel=SENTINEL)
    assert target.require_usable() > 0
    put(target, b"x")
    assert [(one.job, one.backup_id) for one in target.backups()] == [(JOB, RUN)]
    target.remove(JOB, RUN)
    assert everything(tmp_path) == {SENTINEL}


# --- what lies there -------------------------------------------------------------------------------------------------


def test_a_link_or_a_folder_in_an_object_s_place_is_told_as_it_is_and_keeps_nothing_from_being_listed(
    tmp_path: Path,
) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    put(target, b"abc")
    folder = Path(target.location(JOB, RUN))
    (tmp_path / "elsewhere").write_bytes(b"12345")
    (folder / "binlog.tar.zst").symlink_to(tmp_path / "elsewhere")
    (folder / "options.tar.zst").symlink_to("nowhere")
    (folder / "index.jsonl.zst").mkdir()
    links = {"binlog.tar.zst": len(str(tmp_path / "elsewhere")), "options.tar.zst": len("nowhere")}
    told = {NAME: 3, "index.jsonl.zst/": 0, **links}
    assert dict(target.objects(JOB, RUN)) == told
    target.remove(JOB, RUN)
    assert everything(folder) == {"index.jsonl.zst"}
    assert (tmp_path / "elsewhere").exists()


@pytest.mark.parametrize("link", ["", JOB, f"{JOB}/{RUN}", f"{JOB}/binlog", "owner"])
def test_a_link_in_the_storage_leads_nowhere(tmp_path: Path, link: str) -> None:
    """Whoever serves it could have another target's backups removed, and files written anywhere."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for folder in (ours, theirs):
        folder.mkdir()
        target = DirectoryTarget("store", folder, machine=MACHINE)
        target.publish(MANIFEST)
        put_segment(target, b"x")
        assert target.succeed(RECORD)
    before = lying(theirs)
    target, at = DirectoryTarget("store", ours, machine=MACHINE), ours / MACHINE / link
    shutil.rmtree(at)
    at.symlink_to(theirs / MACHINE / link)
    segments = [path.name for path in (theirs / MACHINE / JOB / "binlog").iterdir()]
    backup: list[Callable[[], object]] = [
        lambda: put(target, b"y"),
        lambda: target.publish(MANIFEST),
        lambda: target.manifest(JOB, RUN),
        lambda: target.objects(JOB, RUN),
        lambda: target.attach(JOB, RUN, "proof-20261122T040000Z.json", b"{}"),
        lambda: target.remove(JOB, RUN),
        lambda: list(read(target)),
    ]
    archive: list[Callable[[], object]] = [
        lambda: put_segment(target, b"y"),
        lambda: target.segments(JOB),
        lambda: target.remove_segments(JOB, segments),
    ]
    owner: list[Callable[[], object]] = [
        target.owner,
        lambda: target.succeed(replace(RECORD, number=2, incarnation="b" * 32)),
    ]
    behind = {
        "": [*backup, *archive, *owner, target.backups, target.archived_jobs],
        JOB: [*backup, *archive, lambda: target.backups(JOB)],
        f"{JOB}/{RUN}": backup,
        f"{JOB}/binlog": [*archive, target.archived_jobs],
        "owner": owner,
    }
    for ask in behind[link]:
        with pytest.raises(TargetError, match=rf"{at.name} in it is a symbolic link") as told:
            ask()
        assert "mount it there" in (told.value.hint or "")
    if link.endswith(RUN):
        assert target.backups() == []
    assert lying(theirs) == before


def lying(folder: Path) -> dict[Path, tuple[int, int]]:
    return {path: (path.lstat().st_ino, path.lstat().st_mtime_ns) for path in (folder, *folder.rglob("*"))}


def test_the_target_s_own_folder_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "store").symlink_to("disk")
    target = DirectoryTarget("store", tmp_path / "store", machine=MACHINE)
    put(target, b"x")
    assert read(target) == b"x"
    target.remove(JOB, RUN)
    assert everything(tmp_path / "disk") == set()


def test_only_what_can_be_a_backup_is_listed(tmp_path: Path) -> None:
    put(DirectoryTarget("store", tmp_path, machine=MACHINE), b"x")
    for stray in (".snapshot/hourly", "lost+found/#1", "@eaDir/x", "owner/x", f"{JOB}/.trash", f"{JOB}/@eaDir"):
        (tmp_path / stray).mkdir(parents=True)
        (tmp_path / MACHINE / stray).mkdir(parents=True)
    (tmp_path / "README").touch()
    (tmp_path / MACHINE / JOB / "notes.txt").touch()
    found = DirectoryTarget("store", tmp_path, machine=MACHINE).backups()
    assert [(one.job, one.backup_id, one.finished) for one in found] == [(JOB, RUN, False)]


def test_a_backup_is_as_old_as_its_manifest_and_an_unfinished_one_as_its_newest_file(tmp_path: Path) -> None:
    for run, names in {"done": ("manifest.json", NAME), "half": (NAME, ".index.jsonl.zst.partial")}.items():
        for age, name in enumerate(names):
            path = tmp_path / MACHINE / JOB / run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
            os.utime(path, (age + 1, age + 1))
    found = {
        one.backup_id: one.at.timestamp() for one in DirectoryTarget("store", tmp_path, machine=MACHINE).backups(JOB)
    }
    assert found == {"done": 1.0, "half": 2.0}


def test_a_backup_of_an_impossible_time_is_named_and_one_of_a_clock_that_was_never_set_is_listed(
    tmp_path: Path,
) -> None:
    """ext4 keeps the earliest that it can, in 1901; tmpfs, Btrfs and NFS 4 whatever there is."""
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    target.publish(MANIFEST)
    manifest = Path(target.location(JOB, RUN)) / "manifest.json"
    os.utime(manifest, (0, 0))
    assert [one.at for one in target.backups(JOB)] == [datetime(1970, 1, 1, tzinfo=UTC)]
    os.utime(manifest, (-(2**40), -(2**40)))
    with pytest.raises(TargetError, match=f"the storage says {manifest} was written at an impossible time: -") as told:
        target.backups(JOB)
    assert "move the backup elsewhere" in (told.value.hint or "")


@pytest.mark.parametrize(
    "at", [1e12, -1e12, 1e300, math.nan, datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1), datetime.max]
)
def test_what_is_no_time_is_told_as_that(at: float | datetime) -> None:
    with pytest.raises(TargetError, match="the storage says s3://b/k was written at an impossible time"):
        told_time(at, where="s3://b/k")


def test_what_vanishes_while_it_is_listed_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process removes one backup whole, and gives an object of the other its own name."""
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    for run in ("run-1", "run-2"):
        with target.writing(JOB, run, NAME) as writer:
            writer.write(b"x")
    partial = tmp_path / MACHINE / JOB / "run-2" / ".index.jsonl.zst.partial"
    partial.touch()
    real = os.scandir

    def meddling(path: Any) -> Any:
        entries = real(path)
        if isinstance(path, Path) and path.resolve().name == JOB:
            listed = list(entries)
            shutil.rmtree(tmp_path / MACHINE / JOB / "run-1")
            return contextlib.nullcontext(listed)
        if isinstance(path, Path) and path.name == "run-2":
            listed = list(entries)
            partial.rename(partial.with_name("index.jsonl.zst"))
            return contextlib.nullcontext(listed)
        return entries

    monkeypatch.setattr(os, "scandir", meddling)
    assert [one.backup_id for one in target.backups(JOB)] == ["run-2"]


@pytest.mark.parametrize("verb", ["scandir", "lstat"])
def test_a_folder_that_cannot_be_looked_into_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    """Nothing of the job is listed for it, which may be a whole backup: somebody has to find it."""
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    for run in ("run-1", "run-2"):
        with target.writing(JOB, run, NAME) as writer:
            writer.write(b"x")
    asked, real = (os, os.scandir) if verb == "scandir" else (Path, Path.lstat)

    def fails(path: Any) -> Any:
        if Path(path).name == "run-1":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real(path)

    monkeypatch.setattr(asked, verb, fails)
    with pytest.raises(TargetError, match=f"could not look into {tmp_path}/{MACHINE}/{JOB}/run-1 on target store"):
        target.backups(JOB)


def test_a_jobs_folder_that_got_another_backup_meanwhile_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    put(target, b"x")
    real = Path.rmdir

    def and_another_run_begins(folder: Path) -> None:
        real(folder)
        (tmp_path / MACHINE / JOB / "run-2").mkdir(exist_ok=True)

    monkeypatch.setattr(Path, "rmdir", and_another_run_begins)
    target.remove(JOB, RUN)
    assert everything(tmp_path) == {JOB, f"{JOB}/run-2"}


def test_a_jobs_folder_that_is_removed_while_an_object_is_begun_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`backupd copy` gives up the only other backup in it."""
    target, other = (DirectoryTarget("store", tmp_path, machine=MACHINE) for _ in range(2))
    with other.writing(JOB, "run-0", NAME) as writer:
        writer.write(b"x")
    real = Path.mkdir
    removed: list[str] = []

    def and_the_other_one_goes(folder: Path, *args: Any, **more: Any) -> None:
        if folder.name == RUN and not removed:
            other.remove(JOB, "run-0")
            removed.append("run-0")
        real(folder, *args, **more)

    monkeypatch.setattr(Path, "mkdir", and_the_other_one_goes)
    put(target, b"x")
    assert removed
    assert everything(tmp_path) == {JOB, f"{JOB}/{RUN}", f"{JOB}/{RUN}/{NAME}"}


def test_removal_that_is_denied_says_who_must_own_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    put(target, b"x")
    monkeypatch.setattr(Path, "rmdir", failing(errno.EPERM))
    with pytest.raises(TargetError, match="could not remove from target store") as denied:
        target.remove(JOB, RUN)
    assert "must own the folder" in denied.value.hint


# --- owner records ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("links", [True, False])
def test_a_segment_that_is_there_already_has_its_name_durably_once_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    """Its writer may have been killed between the name and the sync of the folder."""
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    put_segment(target, b"x")
    if not links:
        monkeypatch.setattr(os, "link", failing(errno.EPERM))
    synced: list[Path] = []
    fsync = os.fsync

    def told(descriptor: int) -> None:
        fsync(descriptor)
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink())

    monkeypatch.setattr(os, "fsync", told)
    with pytest.raises(AlreadyThere):
        put_segment(target, b"x")
    assert tmp_path / MACHINE / JOB / "binlog" in synced
    monkeypatch.setattr(os, "fsync", lambda file: None if _is_file(file) else failing(errno.EIO)())
    with pytest.raises(TargetError, match="Input/output error") as failed:
        put_segment(target, b"x")
    assert not isinstance(failed.value, AlreadyThere)


def test_where_there_are_no_hard_links_a_segment_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on exFAT and SMB."""
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    put_segment(target, b"x")
    assert [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()] == [b"x"]
    assert list(target.segments(JOB).values()) == [1]


def test_where_there_are_no_hard_links_an_owner_record_is_created_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    assert target.succeed(RECORD)
    assert not target.succeed(replace(RECORD, incarnation="b" * 32))
    assert target.owner() == RECORD
    assert everything(tmp_path) == {"owner", "owner/0000000001.json"}


def test_who_serves_the_storage_gets_no_file_of_this_host_s_as_an_owner_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They answer a hard link with EPERM, and have put a link in the unfinished record's place."""
    secret = tmp_path / "shadow"
    secret.write_text("root's alone")
    (tmp_path / "store").mkdir()
    target = DirectoryTarget("store", tmp_path / "store", machine=MACHINE)

    def link(unfinished: Path, *_: object, **_named: object) -> NoReturn:
        Path(unfinished).unlink()
        Path(unfinished).symlink_to(secret)
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    assert target.succeed(RECORD)
    assert target.owner() == RECORD
    assert not any(b"alone" in path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file())


@pytest.mark.parametrize(("number", "sentence"), [*FAULTS[:3], (errno.EIO, "could not write an owner record to")])
@pytest.mark.parametrize("call", ["link", "fsync"])
def test_an_owner_record_that_cannot_be_written_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int, sentence: str
) -> None:
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    fails = failing(number)
    monkeypatch.setattr(os, call, fails if call == "link" else lambda file: fails() if _is_file(file) else None)
    with pytest.raises(TargetError) as failed:
        target.succeed(RECORD)
    assert sentence in failed.value.message
    assert everything(tmp_path) == {"owner"}


def test_a_pipe_in_the_storage_keeps_nobody_waiting(tmp_path: Path) -> None:
    """Whoever owns the storage can put one in any file's place."""
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    put(target, b"x")
    target.publish(replace(MANIFEST, job=JOB, run_id=RUN))
    assert target.succeed(RECORD)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 3
    for path in files:
        path.unlink()
        os.mkfifo(path)
    for ask in (lambda: target.manifest(JOB, RUN), target.owner, lambda: list(read(target))):
        with pytest.raises(TargetError, match="is not a regular file"):
            ask()


def test_nothing_but_a_file_is_opened_in_the_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of some devices that would be an act already: a tape is wound back, a watchdog is set off."""
    target = DirectoryTarget("store", tmp_path, machine=MACHINE)
    put(target, b"x")
    target.publish(replace(MANIFEST, job=JOB, run_id=RUN))
    assert target.succeed(RECORD)
    for path in [path for path in tmp_path.rglob("*") if path.is_file()]:
        path.unlink()
        device_or_pipe(path)
    opened = seen_opened(monkeypatch)
    for ask in (lambda: target.manifest(JOB, RUN), target.owner, lambda: list(read(target))):
        with pytest.raises(TargetError, match="is not a regular file"):
            ask()
    assert opened == []


def device_or_pipe(path: Path) -> None:
    """Who is not root makes no device."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        os.mkfifo(path)


def seen_opened(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """What each is that was opened from now on, and not only looked at."""
    open_it, opened = os.open, list[int]()

    def told(path: str, flags: int, *how: int, **named: Any) -> int:
        descriptor = open_it(path, flags, *how, **named)
        if not flags & os.O_PATH:
            opened.append(os.fstat(descriptor).st_mode)
        return descriptor

    monkeypatch.setattr(os, "open", told)
    return opened


def read(target: DirectoryTarget) -> bytes:
    with target.reading(JOB, RUN, NAME) as chunks:
        return b"".join(chunks)
