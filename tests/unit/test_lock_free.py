"""When a backup without a lock is right: each reason against it, told with its hint."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from backupd.config import LockConfig, LockStrategy
from backupd.mysql.engines import unsafe_tables
from backupd.operations.backup import preflight
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.servers import DataPath, Flavour
from tests.story.world import World

UNLOCKED = LockConfig(strategy=LockStrategy.NONE)
WITH_BINLOG = {"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "1"}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host on which a backup without a lock would go well."""
    made = World(tmp_path)
    made.lock.strategy = "none"
    made.database.facts = replace(made.database.facts, settings=WITH_BINLOG)
    return made


def findings(world: World) -> dict[str, Finding]:
    found = preflight.examine(world.job(lock=UNLOCKED), world.tools, last_stored_bytes=None).findings
    assert len({finding.name for finding in found}) == len(found)
    return {finding.name: finding for finding in found}


def test_a_server_with_nothing_but_innodb_needs_no_lock(world: World) -> None:
    found = findings(world)
    assert {finding.name for finding in found.values() if finding.level is not Level.OK} == set()
    assert found["engines"].detail == "all tables are InnoDB"
    assert "blockers" not in found, "nothing is waited for"


def unsafe(*tables: str) -> Callable[[World], None]:
    return lambda world: setattr(world.database, "unsafe", tables)


def facts(**changes: object) -> Callable[[World], None]:
    def change(world: World) -> None:
        world.database.facts = replace(world.database.facts, **changes)  # type: ignore[arg-type]

    return change


def binlog_elsewhere(world: World) -> None:
    world.database.paths = (*world.database.paths[:-1], DataPath("binlog", world.base / "logs", must_share=False))
    (world.base / "logs").mkdir()


@pytest.mark.parametrize(
    ("name", "trouble", "level", "words"),
    [
        (
            "engines",
            unsafe("shop/a (MyISAM)", "shop/b (CSV)"),
            Level.REFUSED,
            "inconsistent: shop/a (MyISAM), shop/b (CSV)",
        ),
        ("engines", unsafe(*(f"shop/t{n} (Aria)" for n in range(9))), Level.REFUSED, "shop/t4 (Aria) and 4 more"),
        ("engines", unsafe("mysql/db (Aria)"), Level.WARNING, "accounts and privileges are in Aria tables"),
        ("one volume", binlog_elsewhere, Level.REFUSED, "binlog"),
        (
            "table definitions",
            facts(version_number=(10, 5, 9)),
            Level.REFUSED,
            "does not recover an interrupted ALTER TABLE",
        ),
        ("table definitions", facts(flavour=Flavour.MYSQL, version_number=(5, 7, 44)), Level.REFUSED, "does not"),
        ("durability", facts(settings={**WITH_BINLOG, "sync_binlog": "0"}), Level.WARNING, "sync_binlog is 0: commits"),
        (
            "durability",
            facts(settings={**WITH_BINLOG, "innodb_flush_log_at_trx_commit": "2"}),
            Level.WARNING,
            "innodb_flush_log_at_trx_commit is 2",
        ),
        (
            "position",
            facts(settings={**WITH_BINLOG, "innodb_flush_log_at_trx_commit": "0"}),
            Level.REFUSED,
            "the binlog may have commits that InnoDB has not written yet",
        ),
        (
            "binlog encryption",
            facts(settings={"encrypt_binlog": "ON"}),
            Level.REFUSED,
            "the binlog is encrypted: without a lock the position would have to be read from it",
        ),
        (
            "replica",
            facts(is_replica=True),
            Level.WARNING,
            "a replica's position in its source's binlog is unknown when nothing was locked",
        ),
    ],
)
def test_a_reason_against_it(
    world: World, name: str, trouble: Callable[[World], None], level: Level, words: str
) -> None:
    trouble(world)
    finding = findings(world)[name]
    assert finding.level is level
    assert words in finding.detail
    assert finding.hint


def test_without_a_binlog_its_settings_do_not_matter(world: World) -> None:
    settings = {"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "0", "encrypt_binlog": "ON"}
    facts(binlog_basename=None, settings=settings)(world)
    assert not {"durability", "position", "binlog encryption"} & findings(world).keys()


def test_the_binlog_is_in_the_archived_folder(world: World) -> None:
    logs = world.mount_root / "logs"
    logs.mkdir()
    world.database.paths = (*world.database.paths, DataPath("binlog", logs, must_share=False))
    ready = preflight.examine(world.job(lock=UNLOCKED), world.tools, last_stored_bytes=None).ready
    assert ready is not None
    assert ready.root == world.mount_root


def test_tables_of_other_engines_are_known_by_their_files(tmp_path: Path) -> None:
    for name in ("ibdata1", "aria_log.00000001", "shop/a.ibd", "shop/a.frm", "shop/m.frm", "shop/m.MYI", "shop/m.MYD"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    for name in ("shop/p#P#p0.MYD", "shop/p#P#p1.MYD", "shop/#sql-1_2.MAD", "mysql/db.MAD", "shop/c.CSV"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert unsafe_tables(tmp_path) == (
        "mysql/db (Aria)",
        "shop/#sql-1_2 (Aria)",
        "shop/c (CSV)",
        "shop/m (MyISAM)",
        "shop/p (MyISAM)",
    )


def test_a_datadir_that_cannot_be_read_is_an_error_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="cannot read the server's datadir") as failed:
        unsafe_tables(tmp_path / "missing")
    assert "as root" in failed.value.hint
