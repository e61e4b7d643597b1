"""What a log's statements make of a server's scheduled events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.mysql.binlog.event_statements import (
    NOT_UNDERSTOOD,
    EventStatement,
    EventStatus,
    EventStatuses,
    event_statement,
)

ENABLED, DISABLED, ELSEWHERE = EventStatus.ENABLED, EventStatus.DISABLED, EventStatus.ELSEWHERE
E = ("shop", "e")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1", EventStatement("CREATE", E)),
        (
            "CREATE DEFINER=`root`@`localhost` EVENT a.`e` ON SCHEDULE EVERY 1 DAY STARTS '2026-01-01' + INTERVAL 1 DAY"
            " ON COMPLETION NOT PRESERVE DISABLE COMMENT 'ENABLE' DO BEGIN ALTER EVENT f ENABLE; END",
            EventStatement("CREATE", ("a", "e"), DISABLED),
        ),
        (
            "create or replace definer = current_user() event if not exists e on schedule at now() enable do set @a=1",
            EventStatement("CREATE", E, ENABLED, if_missing=True),
        ),
        ("/*!50106 CREATE*/ /*!50117 DEFINER=a@b*/ /*!50106 EVENT e DO x */", EventStatement("CREATE", E)),
        ("ALTER EVENT e COMMENT 'x'", EventStatement("ALTER", E)),
        ("ALTER DEFINER=u EVENT e DISABLE ON SLAVE", EventStatement("ALTER", E, ELSEWHERE)),
        ("ALTER DEFINER=app@db1.example.com EVENT e DISABLE", EventStatement("ALTER", E, DISABLED)),
        ("ALTER DEFINER=`app`@127.0.0.1 EVENT event.e DISABLE", EventStatement("ALTER", ("event", "e"), DISABLED)),
        ("ALTER DEFINER = app@view. EVENT e DISABLE", EventStatement("ALTER", E, DISABLED)),
        ("ALTER DEFINER='a'@'10.%' EVENT e DISABLE", EventStatement("ALTER", E, DISABLED)),
        ("ALTER EVENT e DISABLE ON REPLICA", EventStatement("ALTER", E, ELSEWHERE)),
        (
            "ALTER EVENT e ON COMPLETION PRESERVE RENAME TO a.f ENABLE",
            EventStatement("ALTER", E, ENABLED, renamed=("a", "f")),
        ),
        ("SET STATEMENT max_statement_time=1 FOR ALTER EVENT e ENABLE", EventStatement("ALTER", E, ENABLED)),
        ("DROP EVENT IF EXISTS e", EventStatement("DROP", E)),
        ("DROP DATABASE `a`", EventStatement("DROP", ("a", ""))),
        ("CREATE OR REPLACE SCHEMA `a` CHARACTER SET latin1", EventStatement("DROP", ("a", ""))),
        ("CREATE DATABASE a", None),
        ("DROP TABLE e", None),
        ("CREATE DEFINER=`a`@`b` TRIGGER event AFTER INSERT ON t FOR EACH ROW SET @a = 1", None),
        ("ALTER TABLE event ADD c INT", None),
        ("CREATE DEFINER=a@b.event SQL SECURITY INVOKER VIEW event AS SELECT 1", None),
        ("INSERT INTO event VALUES ('ALTER EVENT e DISABLE')", None),
        ("CREATE EVENT", NOT_UNDERSTOOD),
        ("ALTER DEFINER=a@b SOMETHING EVENT e DISABLE", NOT_UNDERSTOOD),
        ("ALTER EVENT f\ufffdr DISABLE", NOT_UNDERSTOOD),
        ("ALTER EVENT e RENAME TO f\ufffdr", NOT_UNDERSTOOD),
        ("", None),
    ],
)
def test_a_statement_tells_what_it_does_to_events(text: str, expected: EventStatement | None) -> None:
    assert event_statement(text, "shop") == expected


@given(st.text(alphabet=st.sampled_from("CREATEVN DOISBL`'@=.;/*!-\n")))
def test_any_text_is_read(text: str) -> None:
    event_statement("CREATE EVENT " + text, "shop")


def followed(known: dict[tuple[str, str], EventStatus], *statements: str, own: bool = True) -> EventStatus | None:
    found = EventStatuses(known, folds_schemas=True)
    for text in statements:
        statement = event_statement(text, "shop")
        assert statement is not None
        found.follow(statement, own=own)
    return found.of(E)


def test_an_event_is_as_the_last_statement_that_says_so_left_it() -> None:
    made = "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1"
    assert followed({}, made) is ENABLED
    assert followed({}, made, "ALTER EVENT E DISABLE", "ALTER EVENT e COMMENT 'x'") is DISABLED
    assert followed({E: DISABLED}, "ALTER EVENT e COMMENT 'x'") is DISABLED
    assert followed({E: ELSEWHERE}, "ALTER EVENT e COMMENT 'x'") is ELSEWHERE
    assert followed({E: DISABLED}, "CREATE EVENT IF NOT EXISTS e ON SCHEDULE EVERY 1 DAY DO SELECT 1") is None
    assert followed({E: DISABLED}, made.replace("CREATE", "CREATE OR REPLACE")) is ENABLED
    assert followed({("shop", "f"): DISABLED}, "ALTER EVENT f RENAME TO e") is DISABLED
    assert followed({E: ENABLED}, "ALTER EVENT e RENAME TO f") is None
    assert followed({E: ENABLED}, "DROP EVENT e") is None
    assert followed({E: ENABLED}, made, "DROP SCHEMA shop") is None
    assert (
        followed({E: DISABLED}, "CREATE OR REPLACE DATABASE shop", made.replace("EVENT", "EVENT IF NOT EXISTS"))
        is ENABLED
    )


def test_an_event_is_not_enabled_by_what_was_not_understood() -> None:
    made, unclear = "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1", "ALTER EVENT \ufffd DISABLE"
    assert followed({E: ENABLED}, "ALTER EVENT f COMMENT 'x'") is None
    assert followed({E: ENABLED}, "ALTER EVENT e COMMENT 'x'", unclear) is None
    assert followed({E: ENABLED}, unclear, "ALTER EVENT e COMMENT 'x'") is None
    assert followed({E: ENABLED}, unclear, made.replace("EVENT", "EVENT IF NOT EXISTS")) is None
    assert followed({E: ENABLED}, unclear, "ALTER EVENT e ENABLE") is ENABLED
    assert followed({}, unclear, made) is ENABLED


def test_an_event_is_not_enabled_by_a_name_that_may_be_another_s() -> None:
    """Names are compared by a collation of the server: "é" is "e" there, and "ß" is "s"."""
    made = "CREATE EVENT {} ON SCHEDULE EVERY 1 DAY DO SELECT 1"
    missing = made.replace("EVENT", "EVENT IF NOT EXISTS")
    assert followed({}, made.format("e"), "ALTER EVENT é DISABLE") is None
    assert followed({}, made.format("e"), "ALTER EVENT é RENAME TO f", missing.format("e")) is None
    assert followed({}, made.format("e"), "ALTER EVENT e RENAME TO é", missing.format("e")) is None
    assert followed({("shop", "café"): DISABLED}, missing.format("cafe"), "ALTER EVENT cafe RENAME TO e") is None
    assert followed({("shop", "é"): DISABLED}, "ALTER EVENT e ENABLE") is None
    assert followed({}, made.format("e"), "DROP DATABASE \u017fhop", missing.format("e")) is None
    assert followed({}, made.format("e"), "ALTER EVENT für DISABLE", "DROP DATABASE büro") is ENABLED
    assert followed({}, made.format("für"), made.format("e")) is ENABLED


@pytest.mark.parametrize(("folds", "expected"), [(True, ENABLED), (False, DISABLED)])
def test_schemas_are_told_apart_as_the_server_does(folds: bool, expected: EventStatus) -> None:
    found = EventStatuses({}, folds_schemas=folds)
    for text in ("CREATE EVENT A.p ON SCHEDULE EVERY 1 DAY DISABLE DO SELECT 1", "ALTER EVENT a.p ENABLE"):
        found.follow(event_statement(text, "shop") or NOT_UNDERSTOOD, own=True)
    assert (found.of(("A", "p")), found.of(("a", "p"))) == (expected, ENABLED)


def test_what_a_replica_was_told_is_run_by_its_source() -> None:
    made = "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1"
    assert followed({}, made, own=False) is ELSEWHERE
    assert followed({E: ENABLED}, "ALTER EVENT e DISABLE", own=False) is ELSEWHERE
