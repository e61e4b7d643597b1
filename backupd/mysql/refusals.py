"""What the server's refusals mean: an error number as a sentence and a hint.

Knows: the error numbers of MariaDB and MySQL that a person can do something about. Refuses to know the password: no
sentence contains it.
"""

from collections.abc import Callable, Mapping

from pymysql.constants import CR, ER

from backupd.mysql.login import Login
from backupd.vocabulary.errors import ServerError

_PASSWORDLESS_DENIED = 1698  # ER_ACCESS_DENIED_NO_PASSWORD_ERROR: unix_socket and the like
_CLIENT_ERRORS = range(CR.CR_ERROR_FIRST, 3000)  # the driver's own; the server's lie below and above
CONNECTING = "connecting"  # what is done before the first statement
_DENIED = (
    ER.SPECIFIC_ACCESS_DENIED_ERROR,
    ER.TABLEACCESS_DENIED_ERROR,
    ER.COLUMNACCESS_DENIED_ERROR,  # as of a DELETE without the right to read the columns that it compares
    ER.DBACCESS_DENIED_ERROR,
)


class StatementError(ServerError):
    """The server answered with an error: `number` is its own error number, 0 when it did not answer at all.

    `said` is the error in the words of the server, or of the driver.
    """

    def __init__(self, message: str, *, hint: str = "", number: int = 0, said: str = "") -> None:
        super().__init__(message, hint=hint)
        self.number = number
        self.said = said

    @property
    def code(self) -> str:
        """For machines it is a server error like any other."""
        return "server-error"

    @property
    def timed_out(self) -> bool:
        """The server had not answered when we stopped waiting: the session is over."""
        return not self.number and "timed out" in self.said

    @property
    def denied(self) -> bool:
        """The user lacks a privilege."""
        return self.number in _DENIED

    @property
    def login_refused(self) -> bool:
        """A wrong password, or no such account."""
        return self.number == ER.ACCESS_DENIED_ERROR

    @property
    def no_such_table(self) -> bool:
        """Nor, maybe, its schema."""
        return self.number in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR)

    @property
    def unknown_here(self) -> bool:
        """This server does not have the statement, table or variable."""
        return self.number in (
            ER.PARSE_ERROR,
            ER.NO_SUCH_TABLE,
            ER.UNKNOWN_TABLE,
            ER.UNKNOWN_SYSTEM_VARIABLE,
            ER.NOT_SUPPORTED_YET,
        )


def statement_error(error: Exception, login: Login, doing: str) -> StatementError:
    """A driver's error as a sentence and a hint. Neither holds the password."""
    number = error.args[0] if error.args and isinstance(error.args[0], int) else 0
    said = str(error.args[1]) if len(error.args) > 1 else (str(error) or type(error).__name__)
    explain = _EXPLANATIONS.get(number, _statement_failed)
    message, hint = explain(login, said, " ".join(doing.split())[:100])
    return StatementError(message, hint=hint, number=0 if number in _CLIENT_ERRORS else number, said=said)


def _access_denied(login: Login, _said: str, _doing: str) -> tuple[str, str]:
    source = f" (it came from: {login.password_source})" if login.password_source else ""
    return (
        f"the server at {login.where} refused user {login.user!r}: wrong password, or no such account",
        f"check the password{source} and that the account exists: mariadb -e \"SHOW GRANTS FOR '{login.user}'@…\"",
    )


def _passwordless(login: Login, _said: str, _doing: str) -> tuple[str, str]:
    return (
        f"the server at {login.where} refused user {login.user!r}: the account takes no password",
        "set a password, or run backupd as the system user with the account's name (unix_socket)",
    )


def _unreachable(login: Login, said: str, _doing: str) -> tuple[str, str]:
    if "CERTIFICATE_VERIFY_FAILED" in said:
        return (
            f"the certificate of the server at {login.where} cannot be trusted: {_cause(said)}",
            "set tls_ca to the authority that signed it, and connect to the name in the certificate",
        )
    look = f"is that the server's socket (SELECT @@socket;), and can {login.user!r} open it?" if login.socket else ""
    return (
        f"cannot connect to the server at {login.where}: {_cause(said)}",
        f"is the server running? {look or 'does it listen on that address and port?'}",
    )


def _no_tls(login: Login, _said: str, _doing: str) -> tuple[str, str]:
    return (
        f"the server at {login.where} offers no TLS, and the password must not be sent in clear text",
        "use the server's socket, or give the server a certificate (ssl_cert, ssl_key)",
    )


def _lost(login: Login, said: str, doing: str) -> tuple[str, str]:
    if doing == CONNECTING and "timed out" in said:
        return (
            f"the server at {login.where} did not answer in time",
            "it accepts connections but does not respond: is it starting, or are its disks or its host overloaded?",
        )
    return (
        f"the session with the server at {login.where} ended during: {doing} ({said})",
        "did the server stop, or was the session killed? check the server's error log",
    )


def _lacking(login: Login, said: str, doing: str) -> tuple[str, str]:
    return (
        f"the server refused: {doing}: {said}",
        f"grant user {login.user!r} what is missing: `backupd check JOB` lists it",
    )


def _statement_failed(login: Login, said: str, doing: str) -> tuple[str, str]:
    return f"the server at {login.where} refused: {doing}: {said}", ""


def _cause(said: str) -> str:
    """The system's own words out of pymysql's "Can't connect to MySQL server on 'localhost' ([Errno 2] No such …)"."""
    _, bracket, cause = said.partition("([Errno ")
    return cause.partition("] ")[2].rstrip(")").lower() if bracket else said


_Explanation = Callable[[Login, str, str], tuple[str, str]]
_EXPLANATIONS: Mapping[int, _Explanation] = {
    ER.ACCESS_DENIED_ERROR: _access_denied,
    _PASSWORDLESS_DENIED: _passwordless,
    CR.CR_CONN_HOST_ERROR: _unreachable,
    CR.CR_CONNECTION_ERROR: _unreachable,
    CR.CR_SSL_CONNECTION_ERROR: _no_tls,
    CR.CR_SERVER_LOST: _lost,
    CR.CR_SERVER_GONE_ERROR: _lost,
    0: _lost,  # pymysql's InterfaceError: the session was over before the statement was sent
    **dict.fromkeys(_DENIED, _lacking),
}
