"""What is printed after a load, typed: rows put back, or the live table replaced with its triggers and foreign keys."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from backupd.mysql.replacing_statements import statements_for, triggers_for
from backupd.mysql.session import Session
from backupd.mysql.table_shape import TableShape
from tests.contract.mariadb import MariadbServer, mysql_server
from tests.contract.test_exporting import source
from tests.contract.test_loading import CHILD, TOLD, UP, Load, before, catalogue, checksum, definition, load

pytestmark = pytest.mark.thorough

__all__ = ["before", "catalogue", "load", "mysql_server"]


@pytest.fixture
def kept(mysql_server: MariadbServer) -> Iterator[Session]:
    """A session; afterwards the live table is as it was, with its trigger and its foreign key."""
    with mysql_server.session() as root:
        root.execute("CREATE TABLE live.kept LIKE live.child")
        root.execute("INSERT INTO live.kept SELECT * FROM live.child")
        yield root
        root.execute("DROP TABLE IF EXISTS elsewhere.grandchild, live.child_replaced, live.child")
        root.execute("RENAME TABLE live.kept TO live.child")
        root.execute(f"ALTER TABLE live.child ADD {UP}")
        root.execute(TOLD)


def test_what_the_live_table_has_lost_is_counted_by_key_and_put_back_by_what_is_printed(
    kept: Session, load: Load
) -> None:
    kept.execute("DELETE FROM live.child WHERE a <= 7")
    kept.execute("UPDATE live.child SET p = 1 WHERE a IN (10, 11)")
    kept.execute("UPDATE live.child SET b = 'X' WHERE a = 12")  # the same key to its collation, and changed
    kept.execute("INSERT INTO live.child VALUES (9001, 'new', NULL)")
    [loaded] = load(CHILD).tables
    found = loaded.difference
    assert found is not None
    assert (found.only_in_backup, found.only_live, found.changed) == (7, 1, 3)
    assert loaded.shape.foreign_keys == (UP,)
    assert [trigger.name for trigger in loaded.shape.triggers] == ["told"]
    assert "FOREIGN KEY" not in definition(kept, "restored.child")
    _, unlocked, told, put_back, *_ = statements_for(loaded.shape, "restored", found)
    assert told.endswith("its triggers run for each row: `told`:")
    kept.execute(unlocked)
    kept.execute(put_back)
    assert kept.value("SELECT COUNT(*) FROM live.child WHERE a <= 7 AND b = 'trigger'") == "7"


def test_the_live_table_is_replaced_by_what_is_printed_with_its_triggers_and_foreign_keys_in_place(
    mysql_server: MariadbServer, kept: Session, load: Load
) -> None:
    kept.execute("ALTER TABLE live.child ADD FOREIGN KEY (p) REFERENCES elsewhere.parent (id)")
    kept.execute(
        "CREATE TABLE elsewhere.grandchild (a INT, b VARCHAR(9), CONSTRAINT g FOREIGN KEY (a, b)"
        " REFERENCES live.child (a, b))"
    )
    [loaded] = load(CHILD).tables
    assert loaded.difference is not None
    by_number = "CONSTRAINT `child_ibfk_1` FOREIGN KEY (`p`) REFERENCES `elsewhere`.`parent` (`id`)"
    shape = replace(loaded.shape, foreign_keys=(UP, by_number))
    printed = [line for line in statements_for(shape, "restored", loaded.difference) if "INSERT INTO" not in line]
    assert any("`g` of `elsewhere`.`grandchild`" in line for line in printed)
    assert source(mysql_server, "\n".join(printed)) == ""
    assert source(mysql_server, "\n".join(trigger_lines(shape))) == ""
    assert checksum(kept, "live.child") == checksum(kept, "live.kept")
    assert UP in definition(kept, "live.child")
    assert by_number in definition(kept, "live.child")
    assert "REFERENCES `live`.`child_replaced`" in definition(kept, "elsewhere.grandchild")
    kept.execute("INSERT INTO live.child VALUES (9001, 'new', NULL)")
    assert kept.value("SELECT b FROM live.child WHERE a = 9001") == "trigger"


def trigger_lines(shape: TableShape) -> list[str]:
    """Without their dashes, as a person types them."""
    what, *told = triggers_for(shape)
    assert "its triggers as in the backup" in what
    return [line.removeprefix("-- ") for text in told for line in text.split("\n")]


def test_a_trigger_that_the_account_does_not_see_is_thought_of(
    mysql_server: MariadbServer, kept: Session, load: Load
) -> None:
    grants = "SELECT ON live.*", "SELECT, INSERT, CREATE, ALTER, DROP ON `%`.*"
    few = mysql_server.account("few", ";".join(f"GRANT {grant} TO 'few'@'localhost'" for grant in grants))
    [loaded] = load(CHILD, connect=few).tables
    assert loaded.difference is not None
    printed = statements_for(loaded.shape, "restored", loaded.difference)
    assert any(line.endswith("its triggers run for each row, if it still has them: `told`:") for line in printed)
    [drop] = [line for line in printed if "DROP TRIGGER" in line]
    assert drop.startswith("-- if `live`.`child_replaced` has that trigger, which this account does not see: ")


def test_where_there_is_no_live_table_it_is_told(mysql_server: MariadbServer, kept: Session, load: Load) -> None:
    kept.execute("DROP TABLE live.child")
    [loaded] = load(CHILD).tables
    assert loaded.difference is not None
    assert not loaded.difference.live
    _, rename, _, then = statements_for(loaded.shape, "restored", loaded.difference)
    assert rename == "RENAME TABLE `restored`.`child` TO `live`.`child`;"
    assert source(mysql_server, "\n".join([rename, then, *trigger_lines(loaded.shape)])) == ""
    assert UP in definition(kept, "live.child")
    assert checksum(kept, "live.child") == checksum(kept, "live.kept")


def test_nobody_who_changes_a_live_row_waits_for_rows_that_are_put_back(
    mysql_server: MariadbServer, kept: Session, load: Load
) -> None:
    kept.execute("DELETE FROM live.child WHERE a <= 7")
    [loaded] = load(CHILD).tables
    assert loaded.difference is not None
    printed = statements_for(loaded.shape, "restored", loaded.difference)
    last = next(number for number, line in enumerate(printed) if line.startswith("INSERT INTO"))
    kept.execute("SET SESSION autocommit = 0")
    for line in printed[: last + 1]:
        if not line.startswith("--"):
            kept.execute(line)
    with mysql_server.session() as client:
        client.execute("SET SESSION innodb_lock_wait_timeout = 1")
        client.execute("UPDATE live.child SET p = 1 WHERE a = 4000")  # error 1205 before
    kept.execute("COMMIT")
    kept.execute("SET SESSION autocommit = 1")


def test_what_a_foreign_key_costs_the_live_table_is_told(kept: Session, load: Load) -> None:
    [loaded] = load(CHILD).tables
    assert loaded.difference is not None
    printed = statements_for(loaded.shape, "restored", loaded.difference)
    added = next(number for number, line in enumerate(printed) if f"ADD {UP}" in line)
    assert "blocks writes until it is done" in printed[added - 1]
