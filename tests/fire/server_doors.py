"""The door to the database server: every statement of every session, and what tells that the server is locked.

A refusal is a connection that is lost: before, the statement never arrives; after, its answer does not.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pymysql import OperationalError
from pymysql.constants import CR

from backupd.mysql.locks import STRATEGIES
from backupd.mysql.refusals import statement_error
from backupd.mysql.session import Row, Session
from tests.fire.injecting import Fire, Refusal, where
from tests.fire.points import When
from tests.fire.undoing import Patches

GRANTED, RELEASED = "granted", "released"  # events
_STOPS_WRITERS = frozenset(strategy.request[-1] for strategy in STRATEGIES.values())
_RELEASES = frozenset(strategy.release for strategy in STRATEGIES.values())
_WORDS = 4


def sessions(fire: Fire, patches: Patches) -> None:
    """Every way in which a session asks something."""
    for verb in ("query", "change", "affected_rows", "last"):
        patches.set(Session, verb, _asking(fire, getattr(Session, verb)))
    for verb in ("rows", "byte_rows"):
        patches.set(Session, verb, _iterating(fire, getattr(Session, verb)))
    patches.set(Session, "stream", _streaming(fire, Session.stream))
    opened = vars(Session)["open"].__func__

    def open_under_fire(cls: Any, login: Any, /, **named: Any) -> Any:
        away = partial(_lost, login, "connecting", CR.CR_CONN_HOST_ERROR)
        with fire.passing(f"session open < {where('backupd.mysql.session')}", refusals={When.BEFORE: away}):
            return opened(cls, login, **named)

    patches.set(Session, "open", classmethod(open_under_fire))


def named(statement: str | bytes) -> str:
    """A statement's first words, without values."""
    text = statement.decode("utf-8", "replace") if isinstance(statement, bytes) else statement
    return " ".join(re.findall(r"[A-Za-z_@.]{2,}", text)[:_WORDS])


def _name(statement: str | bytes) -> str:
    return f"sql {named(statement)} < {where('backupd.mysql.session')}"


def _asking(fire: Fire, ask: Callable[..., Any]) -> Callable[..., Any]:
    def under_fire(self: Session, statement: str | bytes, *values: Any, **named: Any) -> Any:
        with fire.passing(_name(statement), refusals=_refusals(self, str(statement))):
            answer = ask(self, statement, *values, **named)
            _note(fire, statement)
        return answer

    return under_fire


def _iterating(fire: Fire, ask: Callable[..., Any]) -> Callable[..., Any]:
    def under_fire(self: Session, statement: str) -> Iterator[Any]:
        with fire.passing(_name(statement), refusals=_refusals(self, statement)):
            yield from ask(self, statement)

    return under_fire


def _streaming(fire: Fire, ask: Callable[..., Iterator[list[Row]]]) -> Callable[..., Iterator[list[Row]]]:
    """All are sent with the first; the answers come one by one."""

    def under_fire(self: Session, statements: Sequence[str]) -> Iterator[list[Row]]:
        answers = ask(self, statements)
        for statement in statements:
            with fire.passing(_name(statement), refusals=_refusals(self, statement)):
                rows = next(answers)
                _note(fire, statement)
            yield rows

    return under_fire


def _note(fire: Fire, statement: str | bytes) -> None:
    """The clock is read when the answer has come, before any fault behind it."""
    if statement in _STOPS_WRITERS:
        fire.locked = True
        fire.tell(GRANTED)
    elif statement in _RELEASES and fire.locked:
        fire.tell(RELEASED)
        fire.locked = False


def _refusals(session: Session, statement: str) -> dict[When, Refusal]:
    def after() -> BaseException:
        session.sever()
        return _lost(session._login, statement)

    return {When.BEFORE: session.sever, When.AFTER: after}


def _lost(login: Any, doing: str, number: int = CR.CR_SERVER_LOST) -> BaseException:
    return statement_error(OperationalError(number, "lost connection, as told"), login, doing)
