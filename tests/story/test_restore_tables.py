"""Single tables: only their frames are fetched, and nothing of the other tables comes back."""

from dataclasses import replace
from pathlib import Path

import pytest

from backupd.archive.encryption import read_identities
from backupd.mysql.tablefiles import tables_in
from backupd.operations.restore.into_folder import restore
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import TargetError, UsageError, VerificationError
from backupd.vocabulary.storage import MARKER
from tests.fakes.target import MACHINE
from tests.story.stored import content, files_in, put, put_in
from tests.story.test_restore_resumed import Failing, source, stored_bytes

MIB = 1 << 20
EVERYBODY_S = {"ibdata1": content("ibdata1", 300_000), "mysql/user.MAD": b"users", "undo001": b"undo"}
SMALL, LARGE = content("small", 50_000), content("large", 9 * MIB)
FIRST = [
    ("./", b""),
    ("./ibdata1", EVERYBODY_S["ibdata1"]),
    ("./mysql/", b""),
    ("./mysql/user.MAD", b"users"),
    ("./other/", b""),
    *((f"./other/t{i}.ibd", content(f"t{i}", MIB)) for i in range(8)),
    ("./shop/", b""),
    ("./shop/large.ibd", LARGE),
    ("./shop/small.ibd", SMALL),
    ("./shop/zoo.ibd", content("zoo", 3 * MIB)),
    ("./undo001", b"undo"),
]
SECOND = [("./", b""), ("./other/", b""), ("./other/z.ibd", b"z" * 1000)]
BINLOG = [("./bin.000001", b"binlog"), ("./bin.index", b"./bin.000001\n")]
STREAMS = {"data-1.tar.zst": FIRST, "data-2.tar.zst": SECOND, "binlog.tar.zst": BINLOG}
BINLOGS = {"bin.000001": b"binlog", "bin.index": b"./bin.000001\n"}


@pytest.fixture
def vault(tmp_path: Path) -> Path:
    return put_in(tmp_path / "vault", STREAMS)


@pytest.fixture
def to(tmp_path: Path) -> Path:
    return tmp_path / "restored"


def test_only_the_table_and_what_every_server_needs_come_back(vault: Path, to: Path) -> None:
    target = Failing(vault)
    restore([source(target)], to=to, tables=tables_in("shop.small"))
    assert files_in(to) == {**EVERYBODY_S, **BINLOGS, "shop/small.ibd": SMALL}
    assert [*(to / "other").iterdir()] == []  # a schema; see `into_folder`
    assert target.read["data-1.tar.zst"] < stored_bytes(vault, "data-1.tar.zst") // 4


def test_two_tables_of_two_streams(vault: Path, to: Path) -> None:
    restore([source(Failing(vault))], to=to, tables=tables_in("shop.small,other.z"))
    assert files_in(to) == {**EVERYBODY_S, **BINLOGS, "shop/small.ibd": SMALL, "other/z.ibd": b"z" * 1000}


def test_of_an_encrypted_backup_too(tmp_path: Path, to: Path) -> None:
    import pyrage

    (tmp_path / "key").touch(mode=0o600)
    (tmp_path / "key").write_text(f"{pyrage.x25519.Identity.generate()}\n")
    identities = read_identities(tmp_path / "key")
    (tmp_path / "sealed").mkdir()
    put(DirectoryTarget("sealed", tmp_path / "sealed", machine=MACHINE), STREAMS, recipients=identities.recipients)
    restore([source(Failing(tmp_path / "sealed"))], to=to, tables=tables_in("shop.small"), identities=identities)
    assert files_in(to) == {**EVERYBODY_S, **BINLOGS, "shop/small.ibd": SMALL}


def test_an_unknown_table_is_refused_before_anything_is_written(vault: Path, to: Path) -> None:
    with pytest.raises(UsageError, match=r"no table shop\.smal in this backup") as refused:
        restore([source(Failing(vault))], to=to, tables=tables_in("shop.smal"))
    assert "shop.small" in refused.value.hint
    assert not to.exists()


def test_an_interrupted_one_goes_on_and_only_as_the_same(vault: Path, to: Path) -> None:
    with pytest.raises(TargetError, match="the line is dead"):
        restore([source(Failing(vault, gives=5 * MIB))], to=to, tables=tables_in("shop.large,shop.small"))
    assert (to / MARKER).exists()
    with pytest.raises(UsageError, match=r"something else: run r1 of job nightly, only shop\.large,shop\.small"):
        restore([source(Failing(vault))], to=to)
    restore([source(Failing(vault))], to=to, tables=tables_in("shop.large,shop.small"))
    assert files_in(to) == {**EVERYBODY_S, **BINLOGS, "shop/large.ibd": LARGE, "shop/small.ibd": SMALL}


def test_where_nothing_is_to_be_kept_an_interruption_leaves_no_folder_and_does_not_speak_of_one(
    vault: Path, to: Path
) -> None:
    with pytest.raises(TargetError, match="the line is dead") as dead:
        restore([source(Failing(vault, gives=5 * MIB))], to=to, tables=tables_in("shop.large"), keeps=False)
    assert not to.exists()
    assert str(to) not in f"{dead.value.hint}{getattr(dead.value, '__notes__', ())}"


def test_a_backup_without_an_index_cannot_tell_tables_apart(tmp_path: Path, to: Path) -> None:
    (tmp_path / "vault").mkdir()
    target = DirectoryTarget("vault", tmp_path / "vault", machine=MACHINE)
    put(target, STREAMS)
    manifest = target.manifest("nightly", "r1")
    (tmp_path / "vault" / MACHINE / "nightly" / "r1" / "manifest.json").unlink()
    target.publish(replace(manifest, objects=manifest.objects[:-1]))
    with pytest.raises(UsageError, match="has no index of its members"):
        restore([source(target)], to=to, tables=tables_in("shop.small"))
    assert not to.exists()


def test_a_damaged_index_is_found(vault: Path, to: Path) -> None:
    path = vault / MACHINE / "nightly" / "r1" / "index.jsonl.zst"
    path.write_bytes(path.read_bytes()[:-4] + b"oops")
    with pytest.raises(VerificationError, match="index"):
        restore([source(Failing(vault))], to=to, tables=tables_in("shop.small"))
    assert not to.exists()
