"""The program that receives a binlog: MariaDB's `mariadb-binlog` or Oracle's `mysqlbinlog`, found, checked and called.

Knows: whose program it is and how old, which options each has, and how it is told the password: in an option file
without a name, which it reads from its stdin. Nothing secret is on a command line, in an environment or on a disk.

Raw events pass through it unread but for those that begin and end a file. Still one that is older than the server may
stumble over what it does not know, so one of an older major series is refused. MariaDB's says its own series only from
11 on: before, `--version` has the number of the program ("Ver 3.5", seen on 10.11.19). That refuses a server of 11 or
later itself ("unrecognized MariaDB version", on 11.8.9), and receives from any before.
"""

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from backupd.host import process
from backupd.host.authorities import places
from backupd.mysql.login import Login
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import CommandError, HostExhausted, ServerError
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.servers import Flavour, ServerFacts

_SECONDS = 30.0
_NAMES = {Flavour.MARIADB: ("mariadb-binlog", "mysqlbinlog"), Flavour.MYSQL: ("mysqlbinlog",)}
_PACKAGES = {
    Flavour.MARIADB: "install mariadb-client (Debian, Ubuntu) or MariaDB-client (RPM)",
    Flavour.MYSQL: "install mysql-community-client, Oracle's (mysql-client in Ubuntu), in the server's series",
}
_TELLING_SERIES = (11,)  # MariaDB's programs tell their series from this one on
_ONLY_MYSQL = "--connection-server-id"
_VERSION = re.compile(r"\b([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\b", re.ASCII)
_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\b": "\\b"}
_IDS = range(0xF0000000, 0xFFFF0000)  # people make ids of IPv4 addresses, and nobody has one of these (RFC 1112)


@dataclass(frozen=True, slots=True)
class BinlogClient:
    """A client program that is installed here."""

    path: str
    flavour: Flavour
    series: tuple[int, int] | None  # None: it does not tell

    def warning(self, facts: ServerFacts) -> str:
        """What a person should know of it beside this server; empty: nothing."""
        if self.series is not None and self.series < facts.version_number[:2]:
            own, servers = (".".join(map(str, series)) for series in (self.series, facts.version_number[:2]))
            return f"{self.path} is of {own}, older than the server's {servers}: {_PACKAGES[self.flavour]}"
        return ""


def matching_client(facts: ServerFacts, path: Path | None = None) -> BinlogClient:
    """The client program for this server: the one at `path`, else the first in PATH that is of its flavour.

    Raises:
        ServerError: there is none, or all are of the wrong flavour or of an older major series.
        HostExhausted: this host has no room for any program.
    """
    names = (str(path),) if path is not None else tuple(filter(process.found, _NAMES[facts.flavour]))
    found: list[str] = []
    for name in names:
        try:
            client = _asked(name)
        except HostExhausted:
            raise
        except CommandError as error:
            found.append(on_one_line(f"{name}, which did not report its version ({error.message})"))
            continue
        if (fault := _unfit(client, facts)) is None:
            return client
        found.append(fault)
    raise ServerError(
        f"no installed client can receive the binlog of {facts.flavour} {facts.version}; found:"
        f" {', '.join(found) or 'none'}",
        hint=f"{_PACKAGES[facts.flavour]}; or name it: binlog.client",
    )


def described(path: str, version: str, options: str) -> BinlogClient:
    """What the program at this path is, by what it prints for `--version` and `--help`."""
    flavour = Flavour.MYSQL if _ONLY_MYSQL in options else Flavour.MARIADB
    found = _VERSION.search(version)
    return BinlogClient(path, flavour, None if found is None else (int(found[1]), int(found[2])))


def receiver_id(machine: str, job: str) -> int:
    """The id by which this job's receiver registers where none is configured: always the same, and hardly another's."""
    digest = hashlib.sha256(f"{machine}\0{job}".encode()).digest()
    return _IDS[int.from_bytes(digest[:8], "big") % len(_IDS)]


def receiving_argv(client: BinlogClient, folder: Path, *, start: BinlogPlace, server_id: int) -> list[str]:
    """The command that receives from `start` on, for ever, into files of the server's names in `folder`.

    It reads `option_file` from its stdin, and no other option file.
    """
    own_id = "--connection-server-id" if client.flavour is Flavour.MYSQL else "--stop-never-slave-server-id"
    return [
        client.path,
        "--defaults-file=/dev/stdin",
        *("--read-from-remote-server", "--raw", "--stop-never"),
        f"{own_id}={server_id:d}",
        f"--start-position={start.offset:d}",
        f"--result-file={folder}/",
        start.file,
    ]


def option_file(login: Login, flavour: Flavour) -> str:
    """What the program is told of the server, in the syntax of option files, which is the same for both.

    Raises:
        ServerError: over this way the program would send the password to whoever listens there.
    """
    options = {"user": login.user, "password": login.password}
    if login.socket is not None:
        options |= {"protocol": "socket", "socket": str(login.socket)}
    else:
        options |= {"protocol": "tcp", "host": login.address or "localhost", "port": str(login.port)}
    lines = [f"{name}={_quoted(value)}" for name, value in options.items()]
    return "\n".join(["[client]", *lines, *_protection(login, flavour)]) + "\n"


def environment() -> dict[str, str]:
    """All that the program has in its environment: no variable of ours reaches it, and it reads no login file.

    MySQL's programs read `~/.mylogin.cnf` whatever they are told, unless this variable names another (MySQL's manual,
    "Environment Variables"); there is never a file of that name.
    """
    return {"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "LC_ALL": "C", "MYSQL_TEST_LOGIN_FILE": "/dev/null/none"}


def _asked(path: str) -> BinlogClient:
    version, options = (
        process.run([path, "--no-defaults", option], timeout_seconds=_SECONDS).stdout
        for option in ("--version", "--help")
    )
    return described(process.where(path) or path, version, options)


def _unfit(client: BinlogClient, facts: ServerFacts) -> str | None:
    if client.flavour is not facts.flavour:
        return f"{client.path}, which is {client.flavour}'s"
    if client.flavour is Flavour.MARIADB and client.series is None and facts.version_number >= _TELLING_SERIES:
        return f"{client.path} of a series before {_TELLING_SERIES[0]}, which is too old"
    if client.series is not None and client.series[0] < facts.version_number[0]:
        return f"{client.path} of {'.'.join(map(str, client.series))}, which is too old"
    return None


def _protection(login: Login, flavour: Flavour) -> list[str]:
    """TLS where it is not the socket: the certificate and the name in it are verified, on loopback too.

    MariaDB's clients have no way to verify only the one (tried on 10.11.19).
    """
    mariadb = flavour is Flavour.MARIADB
    if login.socket is not None:
        return ["skip-ssl"] if mariadb else ["ssl-mode=DISABLED"]
    if not login.needs_tls:
        raise ServerError(
            f"the binlog is not received over TCP without TLS: nothing proves that {login.where} is the right server",
            hint="use the server's socket, or set tls_ca to its authority's certificate",
        )
    verified = ["ssl", "ssl-verify-server-cert"] if mariadb else ["ssl-mode=VERIFY_IDENTITY"]
    return [*verified, *_authorities(login.tls_ca)]


def _authorities(named: Path | None) -> list[str]:
    if named is not None:
        return [f"ssl-ca={_quoted(str(named))}"]
    file, folder = places()
    files = {"ssl-ca": file, "ssl-capath": folder}
    return [f"{option}={_quoted(path)}" for option, path in files.items() if path]


def _quoted(value: str) -> str:
    return '"' + "".join(_ESCAPES.get(letter, letter) for letter in value) + '"'
