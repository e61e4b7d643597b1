"""How long the server lets a statement run before it ends it itself: a session has no limit but one of ours."""

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
    try:
        if flavour is Flavour.MARIADB:
            session.execute("SET SESSION max_statement_time = %s", most)
        else:
            session.execute("SET SESSION max_execution_time = %s", round(most * 1000))
    except StatementError as error:
        if not error.unknown_here:
            raise
