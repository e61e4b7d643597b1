"""How long the server lets a statement run before it ends it itself."""

from pymysql.constants import ER

from backupd.mysql.refusals import StatementError
from backupd.mysql.session import Session
from backupd.vocabulary.servers import Flavour

TIMED_OUT = (ER.STATEMENT_TIMEOUT, ER.QUERY_TIMEOUT)  # MariaDB's, MySQL's

_LONGEST_SECONDS = 2_592_000.0  # a month: of MySQL's, 32 bits of milliseconds


def limit_statements(session: Session, flavour: Flavour, seconds: float) -> None:
    """Each SELECT of this session ends with an error of `TIMED_OUT` after so long, where the server is recent enough.

    Raises:
        StatementError: the session is over.
    """
    most = min(max(seconds, 0.001), _LONGEST_SECONDS)
    _limit(session, flavour, most if flavour is Flavour.MARIADB else round(most * 1000))


def lift_limit(session: Session, flavour: Flavour) -> None:
    """No statement of this session ends for how long it takes, though the server may let those of clients take only so
    long.

    Raises:
        StatementError: the session is over.
    """
    _limit(session, flavour, 0)


def _limit(session: Session, flavour: Flavour, value: float) -> None:
    variable = "max_statement_time" if flavour is Flavour.MARIADB else "max_execution_time"
    try:
        session.execute(f"SET SESSION {variable} = %s", value)
    except StatementError as error:
        if not error.unknown_here:
            raise
