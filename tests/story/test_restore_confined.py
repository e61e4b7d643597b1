"""A restore of what a stranger could have written: kept in its folder by the kernel, closed to others until whole."""

import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from backupd.archive.unpack_progress import UnpackProgress
from backupd.mysql.relocation import Relocation
from backupd.operations.restore.into_folder import restore, unpack_objects
from backupd.operations.restore.next_copy import agreed
from backupd.operations.restore.restored_copy import hand_over
from backupd.operations.restore.unfinished import filling, resumable
from backupd.operations.restore.unfinished_marker import Unfinished
from backupd.targets import BackupSource
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import BackupdError, Cancelled, NotHeld, UsageError
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import MARKER
from tests.fakes.target import BELIEVED, MACHINE
from tests.story.stored import DEFAULT_ACLS, JOB, RUN, Stream, files_in, put_in
from tests.unconfinable import without

SOMEBODY = 61000  # a user whom nobody is

BENIGN: dict[str, Stream] = {
    "data-1.tar.zst": [("./", b""), ("./shop/", b""), ("./shop/a.ibd", b"a" * 1000), ("./alias", "shop/a.ibd")]
}

RESTORE = """
import sys
from pathlib import Path
from backupd.vocabulary.errors import BackupdError
from tests.story.test_restore_confined import restored
try:
    restored(Path(sys.argv[1]), Path(sys.argv[2]), confined=sys.argv[3] == "confined")
except BackupdError as error:
    sys.exit(f"{error.message} / {error.hint}")
"""


def restored(vault: Path, to: Path, *, confined: bool = True) -> None:
    source = BackupSource(DirectoryTarget(vault.name, vault, machine=MACHINE), JOB, RUN, BELIEVED)
    restore([source], to=to, confined=confined)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_folder_is_closed_until_it_is_whole_and_then_as_it_was(tmp_path: Path) -> None:
    vault, to = put_in(tmp_path / "vault", BENIGN), tmp_path / "to"
    to.mkdir(mode=0o755)
    modes = []
    source = BackupSource(DirectoryTarget("vault", vault, machine=MACHINE), JOB, RUN, BELIEVED)
    restore([source], to=to, copied=lambda _done, _all: modes.append(mode(to)))
    assert set(modes) == {0o700}
    assert mode(to) == 0o750
    assert files_in(to) == {"shop/a.ibd": b"a" * 1000, "alias": "shop/a.ibd"}


def test_what_the_folder_itself_cannot_be_is_told_before_a_server_works_in_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    vault, to, fchmod = put_in(tmp_path / "vault", BENIGN), tmp_path / "to", os.fchmod
    to.mkdir()
    (to / f"{MARKER}.itself").mkdir()  # of one that was killed

    def refused(descriptor: int, bits: int) -> None:
        if bits == 0o750:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        fchmod(descriptor, bits)

    monkeypatch.setattr(os, "fchmod", refused)
    sources = [BackupSource(DirectoryTarget("vault", vault, machine=MACHINE), JOB, RUN, BELIEVED)]
    manifest, readable = agreed(sources, None)
    with pytest.raises(NotHeld, match=f"^{to} cannot be set as recorded: Operation not supported"):
        unpack_objects(readable, manifest, to=to)
    assert {path.name for path in to.iterdir()} == {"shop", "alias"}


def test_a_folder_that_is_filled_is_ours_alone_whosever_it_was(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        os.chown(tmp_path, SOMEBODY, SOMEBODY)
    tmp_path.chmod(0o777)
    with filling(tmp_path, {"run": RUN, "job": JOB}):
        assert (tmp_path.stat().st_uid, mode(tmp_path)) == (os.geteuid(), 0o700)


@pytest.mark.parametrize("made", [True, False])
def test_what_a_folder_makes_new_files_inherit_is_not_in_the_restored_ones(tmp_path: Path, made: bool) -> None:
    vault, above = put_in(tmp_path / "vault", BENIGN), tmp_path / "above"
    above.mkdir()
    os.setxattr(above, "system.posix_acl_default", DEFAULT_ACLS["lists"])
    to = above / "to" if made else above
    restored(vault, to)
    assert [os.listxattr(path) for path in (to, to / "shop", to / "shop" / "a.ibd")] == [[], [], []]
    assert mode(to) == 0o750


def test_what_somebody_puts_into_an_empty_folder_a_moment_before_it_is_closed_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fchmod = os.fchmod

    def late(descriptor: int, bits: int) -> None:
        (tmp_path / "data").symlink_to("/etc")
        fchmod(descriptor, bits)

    monkeypatch.setattr(os, "fchmod", late)
    with pytest.raises(UsageError, match="is not empty"), resumable(tmp_path, Unfinished(JOB, RUN, "digest")):
        raise AssertionError("filled")
    assert (tmp_path / "data").is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_mark_that_somebody_else_has_made_is_not_gone_on_from(tmp_path: Path) -> None:
    """It would say that all is restored already: what lies there is his."""
    what = Unfinished(JOB, RUN, "digest", objects={"data-1.tar.zst": UnpackProgress(9, done=True)})
    with pytest.raises(Cancelled), resumable(tmp_path, Unfinished(JOB, RUN, "digest")) as folder:
        folder.save(what.objects)
        raise Cancelled("cancelled")
    os.chown(tmp_path / MARKER, SOMEBODY, SOMEBODY)
    with pytest.raises(UsageError, match="is not backupd's"), resumable(tmp_path, Unfinished(JOB, RUN, "digest")):
        raise AssertionError("gone on")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_is_stopped_as_it_is_handed_over_is_gone_on_with(tmp_path: Path) -> None:
    """Its mark stays ours: one of somebody else's is refused."""
    what, at, datadir = Unfinished(JOB, RUN, "digest"), Position("bin.000001", 4, None), tmp_path / "data"
    with pytest.raises(Cancelled, match="cancelled"), resumable(tmp_path, what) as folder:
        datadir.mkdir()
        os.chown(datadir, SOMEBODY, SOMEBODY)
        for written in (tmp_path / "replica.sql", datadir / MARKER):
            written.touch()
        with folder.worked_in():
            folder.stands(at, as_replica=False)
        (tmp_path / f"{MARKER}.new").touch()  # of one that was killed as it wrote it
        hand_over(Relocation(tmp_path, "data", datadir), None, made=True)
        raise Cancelled("cancelled")
    with resumable(tmp_path, what) as folder:
        assert folder.reached == at
    given = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.stat().st_uid == SOMEBODY}
    assert given == {"data", f"data/{MARKER}", "replica.sql"}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_that_is_named_by_a_link_is_handed_over_as_any(tmp_path: Path) -> None:
    copy, linked = tmp_path / "copy", tmp_path / "linked"
    (copy / "data").mkdir(parents=True)
    os.chown(copy / "data", SOMEBODY, SOMEBODY)
    for written in (copy / "replica.sql", copy / MARKER, copy / "data" / MARKER):
        written.touch()
    linked.symlink_to(copy)
    hand_over(Relocation(linked, "data", Path("/srv/data")), None, made=False)
    assert {str(path.relative_to(copy)) for path in copy.rglob("*") if path.stat().st_uid == SOMEBODY} == {
        *("data", f"data/{MARKER}", "replica.sql")
    }


EVIL: dict[str, dict[str, Stream]] = {
    "links of two objects": {
        "data-1.tar.zst": [("./", b""), ("./a/", b""), ("./a/b/", b""), ("./a/b/d", "../..")],
        "data-2.tar.zst": [("./a/b/d/e", "../../..")],
    },
    "a file through such a link": {
        "data-1.tar.zst": [("./", b""), ("./a/", b""), ("./a/b/", b""), ("./a/b/d", "../..")],
        "data-2.tar.zst": [("./a/b/d/e", "../../../outside")],
        "data-3.tar.zst": [("./e/evil", b"x" * 5000)],
    },
}


@pytest.mark.parametrize("streams", EVIL.values(), ids=EVIL)
def test_objects_that_are_harmless_alone_are_refused_together(tmp_path: Path, streams: dict[str, Stream]) -> None:
    """In whatever order they are unpacked; and nothing of them is left."""
    (tmp_path / "outside").mkdir()
    vault, to = put_in(tmp_path / "vault", streams), tmp_path / "x" / "y" / "to"
    with pytest.raises(BackupdError):
        restored(vault, to)
    assert {path.name for path in tmp_path.iterdir()} == {"outside", "vault", "x"}
    assert not list((tmp_path / "outside").iterdir())
    assert [path.name for path in (tmp_path / "x").rglob("*")] == ["y"]


@pytest.mark.parametrize("kept", ["confined", "unconfined"])
def test_where_the_kernel_has_nothing_a_restore_is_refused_unless_told_otherwise(tmp_path: Path, kept: str) -> None:
    vault, to = put_in(tmp_path / "vault", BENIGN), tmp_path / "to"
    nothing = without(("unshare", "landlock_create_ruleset"))
    argv = [*nothing, sys.executable, "-c", RESTORE, str(vault), str(to), kept]
    ended = subprocess.run(argv, capture_output=True, text=True, check=False)
    if kept == "unconfined":
        assert (ended.returncode, ended.stderr) == (0, "")
        assert files_in(to) == {"shop/a.ibd": b"a" * 1000, "alias": "shop/a.ibd"}
        return
    assert ended.returncode == 1
    assert "unpacking cannot be confined on this host" in ended.stderr
    assert "restore.unconfined = true" in ended.stderr
    assert not to.exists()
