"""Objects of a backup are unpacked side by side, and one may be taken up again: no folder is in the others' way."""

import os
import shutil
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from backupd.operations.restore.into_folder import restore
from backupd.operations.restore.next_copy import AgreedCopies, ObjectCopy
from backupd.operations.restore.verify import manifest_of
from backupd.vocabulary.errors import BackupdError, TargetError
from backupd.vocabulary.storage import Manifest
from tests.story.stored import DEFAULT_ACLS, MODES, Stream, content, put_in
from tests.story.test_restore_resumed import STREAMS, Failing, Late, source, stored_bytes

MIB = 1 << 20
NOBODY = 65534


def files_of(folder: str, count: int) -> Stream:
    return [("./", b""), (f"{folder}/", b""), *((f"{folder}/t{i}.ibd", content(f"{i}", MIB)) for i in range(count))]


def in_two(folder: str) -> dict[str, Stream]:
    """The small object is done, and has left the folder, when the large one is at its middle."""
    small: Stream = [("./", b""), (f"{folder}/", b""), (f"{folder}/a.ibd", content("a", 3000))]
    return {"data-1.tar.zst": files_of(folder, 12), "data-2.tar.zst": small}


def taken_up(folder: str) -> dict[str, Stream]:
    """The folder was left when the object is interrupted, and is gone back into."""
    return {"data-1.tar.zst": [*files_of(folder, 9), *((f"u{i}", content(f"u{i}", 300_000)) for i in range(12))]}


class Pausing(Late):
    """It only waits."""

    def fail(self) -> None:
        assert self._unpacked.wait(30)


@pytest.fixture
def anybodys() -> Iterator[Path]:
    """A folder that nobody's user may enter and write."""
    folder = Path(tempfile.mkdtemp(prefix="backupd-test-", dir="/tmp"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def interrupted_and_restored(vault: Path, to: Path) -> None:
    with pytest.raises(TargetError):
        restore([source(Failing(vault, gives=stored_bytes(vault, "data-1.tar.zst") - MIB))], to=to)
    restore([source(Failing(vault))], to=to)


@pytest.mark.parametrize("way", ["side by side", "taken up"])
def test_a_folder_whose_access_list_new_files_inherit(
    tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = tmp_path / "restored"
    vault = put_in(tmp_path / "vault", in_two("lists") if way == "side by side" else taken_up("lists"))
    if way == "side by side":
        restore([source(Pausing(vault, gives=2 * MIB, monkeypatch=monkeypatch))], to=to)
    else:
        interrupted_and_restored(vault, to)
    assert os.getxattr(to / "lists", "system.posix_acl_default") == DEFAULT_ACLS["lists"]
    assert os.listxattr(to / "lists" / "t0.ibd") == []


@pytest.mark.parametrize("way", ["side by side", "taken up"])
def test_a_folder_that_its_owner_may_not_write_in(anybodys: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """For root it makes no difference: a child that is nobody restores."""
    vault, to = (
        put_in(anybodys / "vault", in_two("locked") if way == "side by side" else taken_up("locked")),
        anybodys / "to",
    )
    for path in (anybodys, *anybodys.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    pausing = Pausing(vault, gives=2 * MIB, monkeypatch=monkeypatch)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            if way == "side by side":
                restore([source(pausing)], to=to, confined=False)
            else:
                with pytest.raises(TargetError):
                    size = stored_bytes(vault, "data-1.tar.zst")
                    restore([source(Failing(vault, gives=size - MIB))], to=to, confined=False)
                restore([source(Failing(vault))], to=to, confined=False)
            status = 0
        except BackupdError as error:
            os.write(2, f"{error.message}\n".encode())
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    assert (to / "locked").stat().st_mode & 0o7777 == MODES["locked"]


def test_an_object_does_not_wait_for_a_copy_that_another_one_needs_and_that_hangs(tmp_path: Path) -> None:
    """One object is lost on the first copy, the other is not; nothing is heard of the second copy."""
    vault, spare = (put_in(tmp_path / name, STREAMS) for name in ("vault", "spare"))
    first = source(Failing(vault))
    got: list[str] = []

    class Hanging(Failing):
        def manifest(self, job: str, backup_id: str) -> Manifest:
            copies.first_given(other, lambda copy: got.append(copy.stored.name))
            return super().manifest(job, backup_id)

    copies = AgreedCopies([first, source(Hanging(spare))], manifest_of(first), None)
    lost, other = (stored for stored in copies.manifest.objects if stored.name.startswith("data"))
    tried: list[str] = []

    def ask(copy: ObjectCopy) -> None:
        tried.append(copy.stored.name)
        if len(tried) == 1:
            raise TargetError("it is lost there", hint="see it")

    thread = threading.Thread(target=copies.first_given, args=(lost, ask), daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert (got, tried) == ([other.name], [lost.name] * 2)
