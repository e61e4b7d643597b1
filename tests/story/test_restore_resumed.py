"""A restore that was interrupted goes on; a copy that fails is replaced by the next; nothing unproven is ever used."""

import json
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from backupd.archive import frames
from backupd.archive.encryption import Identities, read_identities
from backupd.archive.frames import Reading
from backupd.archive.unpack import Unpacking
from backupd.archive.unpack_progress import TrackedMembers
from backupd.host.signals import cancellable
from backupd.operations.restore.into_folder import restore
from backupd.targets import BackupSource
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import Busy, Cancelled, HostExhausted, TargetError, UsageError, VerificationError
from backupd.vocabulary.storage import MARKER
from tests.fakes.target import BELIEVED, MACHINE
from tests.story.stored import FRAME_BYTES, JOB, RUN, Stream, content, files_in, put, put_in, tar, unpacked

MIB = 1 << 20
_PATIENCE_SECONDS = 30.0
FIRST: Stream = [
    ("./", b""),
    ("ibdata1", content("ibdata1", 3 * MIB)),
    ("far/", b""),
    ("far/ibdata1", "../ibdata1"),  # left to itself, tar makes such a link last, and until then an empty file for it
    ("shop/", b""),
    ("shop/ibdata1", "../ibdata1"),
    *((f"shop/t{i}.ibd", content(f"t{i}", MIB)) for i in range(12)),
    ("undo001", content("undo", 100_000)),
]
SECOND: Stream = [("./", b""), ("shop/", b""), *((f"shop/u{i}.ibd", content(f"u{i}", 300_000)) for i in range(4))]
STREAMS: dict[str, Stream] = {"data-1.tar.zst": FIRST, "data-2.tar.zst": SECOND}


class Failing(DirectoryTarget):
    """Ends the first stream after so many bytes, counted over all that is read of it; counts what was read."""

    def __init__(self, path: Path, *, gives: int | None = None, first: str = "data-1") -> None:
        super().__init__(path.name, path, machine=MACHINE)
        self.gives = gives
        self.first = first
        self.read: dict[str, int] = {}

    def fail(self) -> None:
        raise TargetError("the line is dead", hint="mend it")

    @contextmanager
    def reading(self, job: str, backup_id: str, name: str, **which: Any) -> Iterator[Iterator[bytes]]:
        with super().reading(job, backup_id, name, **which) as chunks:
            yield self._counted(chunks, name)

    def _counted(self, chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
        for chunk in chunks:
            self.read[name] = self.read.get(name, 0) + len(chunk)
            if self.gives is not None and name.startswith(self.first) and self.read[name] > self.gives:
                self.fail()
            yield chunk


class Late(Failing):
    """It waits for another stream to have been unpacked, however busy the machine, and fails then."""

    def __init__(self, path: Path, *, gives: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(path, gives=gives)
        self._unpacked = Event()
        run = Unpacking.run

        def told(unpacking: Unpacking, reading: Reading) -> None:
            run(unpacking, reading)
            self._unpacked.set()

        monkeypatch.setattr(Unpacking, "run", told)

    def fail(self) -> None:
        assert self._unpacked.wait(_PATIENCE_SECONDS)
        super().fail()


class Killing(Failing):
    """There SIGKILL comes, once what was unpacked before has been recorded in this folder."""

    to = Path()

    def fail(self) -> None:
        while recorded(self.to) <= 6 * MIB:  # of 15: what is left is less than two thirds
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


class Stalling(Failing):
    """SIGTERM comes, and the storage goes on to be asked in vain."""

    def _counted(self, chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
        try:
            yield from super()._counted(chunks, name)
        except TargetError:
            os.kill(os.getpid(), signal.SIGTERM)
            while True:
                time.sleep(0.001)
                yield b""


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return put_in(tmp_path / "vault", STREAMS)


@pytest.fixture
def spare(tmp_path: Path) -> Path:
    return put_in(tmp_path / "spare", STREAMS)


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "restored"


def source(target: DirectoryTarget) -> BackupSource:
    return BackupSource(target, JOB, RUN, BELIEVED)


def recorded(to: Path, name: str = "data-1.tar.zst") -> int:
    """Up to where in this object's tar stream a restore can go on."""
    offset: int = json.loads((to / MARKER).read_text())["objects"].get(name, {"offset": 0})["offset"]
    return offset


def whole(to: Path) -> bool:
    folders = {name: (to / name).stat() for name in ("", "far", "shop")}
    modes = {name: folder.st_mode & 0o7777 for name, folder in folders.items()}
    return (
        files_in(to) == unpacked(STREAMS)
        and modes == {"": 0o750, "far": 0o755, "shop": 0o2750}
        and {folders[name].st_mtime for name in ("far", "shop")} == {1_700_000_000.5}
    )


def has_free(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """The disk has so many bytes left."""
    usage = shutil.disk_usage("/")._replace(free=size)
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage)


def flip(vault: Path, name: str, at: int) -> None:
    path = vault / MACHINE / JOB / RUN / name
    damaged = bytearray(path.read_bytes())
    damaged[at] ^= 4
    path.write_bytes(damaged)


def stored_bytes(vault: Path, name: str) -> int:
    return (vault / MACHINE / JOB / RUN / name).stat().st_size


# --- interrupted ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exists", [True, False])
def test_after_a_target_was_lost_the_same_restore_goes_on_and_fetches_less(
    vault: Path, to: Path, exists: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if exists:
        to.mkdir()
    size = stored_bytes(vault, "data-1.tar.zst")
    with pytest.raises(TargetError, match="the line is dead") as lost:
        restore([source(Late(vault, gives=size * 7 // 8, monkeypatch=monkeypatch))], to=to)
    assert f"{to} keeps what was restored so far: run the same command" in lost.value.__notes__[0]
    assert (to / MARKER).exists()
    again = Failing(vault)
    restore([source(again)], to=to)
    assert whole(to)
    assert not (to / MARKER).exists()
    assert again.read["data-1.tar.zst"] < size * 2 // 3
    assert "data-2.tar.zst" not in again.read  # it was done


def test_a_host_without_memory_asks_no_other_copy_and_goes_on_later(
    vault: Path, spare: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Exhausting(Late):
        def fail(self) -> None:
            with pytest.raises(TargetError):
                super().fail()
            raise HostExhausted("there is not enough memory to expand data-1.tar.zst")

    size = stored_bytes(vault, "data-1.tar.zst")
    first = source(Exhausting(vault, gives=size * 7 // 8, monkeypatch=monkeypatch))
    second = Failing(spare)
    with pytest.raises(HostExhausted) as exhausted:
        restore([first, source(second)], to=to)
    assert (first.damage, second.read) == (None, {})
    assert f"{to} keeps what was restored so far" in exhausted.value.__notes__[0]
    again = Failing(vault)
    restore([source(again)], to=to)
    assert whole(to)
    assert again.read["data-1.tar.zst"] < size * 2 // 3


def test_a_host_without_memory_for_a_frame_as_it_is_stored_goes_on_later(
    vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Exhausting(Late):
        def fail(self) -> None:
            with pytest.raises(TargetError):
                super().fail()
            monkeypatch.setattr(frames, "bytearray", none_left, raising=False)

    def none_left(_size: int) -> bytearray:
        raise MemoryError

    size = stored_bytes(vault, "data-1.tar.zst")
    with pytest.raises(HostExhausted, match="this host has no memory left for unpacking") as exhausted:
        restore([source(Exhausting(vault, gives=size * 6 // 8, monkeypatch=monkeypatch))], to=to)
    assert f"{to} keeps what was restored so far" in exhausted.value.__notes__[0]
    monkeypatch.undo()
    again = Failing(vault)
    restore([source(again)], to=to)
    assert whole(to)
    assert again.read["data-1.tar.zst"] < size * 2 // 3


def test_a_host_without_a_thread_has_found_nothing(vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_thread: Thread) -> None:
        raise RuntimeError("can't start new thread")  # as CPython 3.11 says it

    monkeypatch.setattr(Thread, "start", refused)
    with pytest.raises(HostExhausted, match="this host has no thread left for unpacking"):
        restore([source(Failing(vault))], to=to)


def test_what_opens_to_something_else_although_it_is_as_it_was_stored_is_no_damage_of_that_copy(
    vault: Path, spare: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`verify` compares what is stored, and would call it good again; a drill is what proves such a backup."""

    def refused(_members: TrackedMembers, _block: bytes) -> Iterator[bytes]:
        raise VerificationError("data-1.tar.zst was not written by backupd")
        yield

    monkeypatch.setattr(TrackedMembers, "take", refused)
    copies = [source(Failing(vault)), source(Failing(spare))]
    with pytest.raises(VerificationError, match="was not written by backupd"):
        restore(copies, to=to)
    assert all(copy.failures for copy in copies)
    assert [copy.damage for copy in copies] == [None, None]


def test_a_frame_that_is_not_as_stored_is_damage_of_that_copy(vault: Path, spare: Path, to: Path) -> None:
    flip(vault, "data-1.tar.zst", 5 * MIB)
    copies = [source(Failing(vault)), source(Failing(spare))]
    restore(copies, to=to)
    assert [copy.damage is not None for copy in copies] == [True, False]


def test_a_cancelled_restore_goes_on(vault: Path, to: Path) -> None:
    size = stored_bytes(vault, "data-1.tar.zst")
    with pytest.raises(Cancelled) as cancelled, cancellable():
        restore([source(Stalling(vault, gives=size * 7 // 8))], to=to)
    assert cancelled.value.hint.startswith(f"{to} keeps what was restored so far")
    restore([source(Failing(vault))], to=to)
    assert whole(to)


def test_a_killed_restore_goes_on(vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.operations.restore.into_folder.SAVE_BYTES", MIB)
    size = stored_bytes(vault, "data-1.tar.zst")
    child = os.fork()
    if child == 0:
        try:
            killing = Killing(vault, gives=size * 7 // 8)
            killing.to = to
            restore([source(killing)], to=to)
        finally:
            os._exit(0)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    again = Failing(vault)
    restore([source(again)], to=to)
    assert whole(to)
    assert again.read["data-1.tar.zst"] < size * 2 // 3


def test_a_frame_that_was_only_half_read_is_compared_again_and_what_was_there_before_is_kept(
    vault: Path, to: Path
) -> None:
    size = stored_bytes(vault, "data-1.tar.zst")
    with pytest.raises(TargetError):
        restore([source(Failing(vault, gives=size * 7 // 8))], to=to)
    flip(vault, "data-1.tar.zst", size - 5)
    with pytest.raises(VerificationError, match="frame 16 of 16") as refused:
        restore([source(Failing(vault))], to=to)
    assert f"{to} keeps what was restored so far" in refused.value.__notes__[0]
    assert "the only copy, if it is broken, has to be named: --target NAME" in refused.value.__notes__[0]
    flip(vault, "data-1.tar.zst", size - 5)
    restore([source(Failing(vault))], to=to)
    assert whole(to)


def test_a_folder_that_holds_another_restore_is_refused_and_kept(vault: Path, to: Path, tmp_path: Path) -> None:
    with pytest.raises(TargetError):
        restore([source(Failing(vault, gives=7 * MIB))], to=to)
    before = files_in(to)
    (tmp_path / "other").mkdir()
    other = DirectoryTarget("other", tmp_path / "other", machine=MACHINE)
    put(other, {"data-1.tar.zst": SECOND})
    with pytest.raises(UsageError, match="unfinished restore of something else: run r1 of job nightly") as refused:
        restore([source(other)], to=to)
    assert refused.value.hint
    assert files_in(to) == before


def test_what_is_unpacked_already_needs_no_more_room(vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large file that was cut short is written anew in the place of what is there of it."""
    with pytest.raises(TargetError):
        restore([source(Failing(vault, gives=stored_bytes(vault, "data-1.tar.zst") * 7 // 8))], to=to)
    there = sum(path.lstat().st_blocks * 512 for path in to.rglob("*") if not path.is_dir() and path.name != MARKER)
    needed = sum(len(tar(stream)[0]) for stream in STREAMS.values())
    assert there > MIB
    has_free(monkeypatch, needed - there)
    restore([source(Failing(vault))], to=to)
    assert whole(to)


def test_a_restore_that_has_no_room_to_go_on_keeps_what_is_there(
    vault: Path, to: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TargetError):
        restore([source(Failing(vault, gives=stored_bytes(vault, "data-1.tar.zst") * 7 // 8))], to=to)
    before = files_in(to)
    has_free(monkeypatch, 1000)
    with pytest.raises(UsageError, match="has 1000 B free, and the backup needs"):
        restore([source(Failing(vault))], to=to)
    assert files_in(to) == before
    monkeypatch.undo()
    restore([source(Failing(vault))], to=to)
    assert whole(to)


def test_two_restores_into_one_folder_at_once_are_refused(vault: Path, to: Path) -> None:
    class Meanwhile(Failing):
        def _counted(self, chunks: Iterator[bytes], name: str) -> Iterator[bytes]:
            with pytest.raises(Busy, match="another process is restoring into"):
                restore([source(Failing(vault))], to=to)
            return super()._counted(chunks, name)

    restore([source(Meanwhile(vault))], to=to)
    assert whole(to)


# --- several copies ---------------------------------------------------------------------------------------------------


def test_what_one_copy_has_lost_is_taken_from_the_next(
    vault: Path, spare: Path, to: Path, caplog: pytest.LogCaptureFixture
) -> None:
    flip(vault, "data-1.tar.zst", stored_bytes(vault, "data-1.tar.zst") - FRAME_BYTES // 2)
    first, second = Failing(vault), Failing(spare)
    restore([source(first), source(second)], to=to)
    assert whole(to)
    assert "target vault: data-1.tar.zst, frame 15 of 16" in caplog.text
    assert "continuing with the next copy" in caplog.text
    assert set(second.read) == {"data-1.tar.zst"}
    assert second.read["data-1.tar.zst"] < stored_bytes(spare, "data-1.tar.zst") // 2  # not all of it once more


def test_a_copy_whose_manifest_is_broken_is_passed_over(vault: Path, spare: Path, to: Path) -> None:
    (vault / MACHINE / JOB / RUN / "manifest.json").write_text("{}")
    restore([source(Failing(vault)), source(Failing(spare))], to=to)
    assert whole(to)


def test_a_copy_of_something_else_is_never_mixed_in(vault: Path, to: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = DirectoryTarget("other", tmp_path / "other", machine=MACHINE)
    put(other, {**STREAMS, "data-1.tar.zst": [("evil", b"x")]})
    flip(vault, "data-1.tar.zst", 100)
    with pytest.raises(VerificationError, match="frame 1 of 16") as refused:
        restore([source(Failing(vault)), source(other)], to=to)
    assert any("not have the same content" in note for note in refused.value.__notes__)
    assert not to.exists()


def test_copies_that_are_all_broken_leave_nothing(vault: Path, spare: Path, to: Path) -> None:
    flip(vault, "data-1.tar.zst", 5 * MIB)
    flip(spare, "data-1.tar.zst", 5 * MIB)
    with pytest.raises(VerificationError) as refused:
        restore([source(Failing(vault)), source(Failing(spare))], to=to)
    assert len(refused.value.__notes__) == 1
    assert not to.exists()


# --- encrypted --------------------------------------------------------------------------------------------------------


@pytest.fixture
def identities(tmp_path: Path) -> Identities:
    import pyrage

    (tmp_path / "key").touch(mode=0o600)
    (tmp_path / "key").write_text(f"{pyrage.x25519.Identity.generate()}\n")
    return read_identities(tmp_path / "key")


@pytest.fixture
def sealed(tmp_path: Path, identities: Identities) -> Path:
    (tmp_path / "sealed").mkdir()
    put(DirectoryTarget("sealed", tmp_path / "sealed", machine=MACHINE), STREAMS, recipients=identities.recipients)
    return tmp_path / "sealed"


def test_an_encrypted_backup_comes_back_and_goes_on(sealed: Path, to: Path, identities: Identities) -> None:
    size = stored_bytes(sealed, "data-1.tar.zst.age")
    with pytest.raises(TargetError, match="the line is dead"):
        restore([source(Failing(sealed, gives=size * 7 // 8))], to=to, identities=identities)
    assert recorded(to, "data-1.tar.zst") > 4 * MIB
    restore([source(Failing(sealed))], to=to, identities=identities)
    assert whole(to)


def test_without_the_right_key_nothing_is_written(sealed: Path, to: Path, tmp_path: Path) -> None:
    import pyrage

    with pytest.raises(UsageError, match="run r1 is encrypted for age1") as refused:
        restore([source(Failing(sealed))], to=to)
    assert "--identity" in refused.value.hint
    (tmp_path / "wrong").touch(mode=0o600)
    (tmp_path / "wrong").write_text(f"{pyrage.x25519.Identity.generate()}\n")
    with pytest.raises(UsageError, match="can read run r1: it is encrypted for age1"):
        restore([source(Failing(sealed))], to=to, identities=read_identities(tmp_path / "wrong"))
    assert not to.exists()
