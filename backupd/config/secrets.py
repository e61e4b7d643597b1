"""How a password is found: in a file, the environment, a systemd credential, or the server's own option file.

Knows: who may read such a file. Refuses to show: no secret is in any message, `repr` or chained exception.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from backupd.config.effective import password_source
from backupd.config.schema import HostConfig
from backupd.vocabulary.errors import ConfigurationError

CREDENTIALS_VARIABLE = "CREDENTIALS_DIRECTORY"

# The groups that the servers' own clients read; of several that set an option, the last in the file wins.
_CLIENT_GROUPS = {"client", "client-server", "client-mariadb"}
_LARGEST_FILE = 64 << 10
_BEFORE_COMMENT = re.compile(r"""(?:[^"'#]|(["'])(?:\\.|(?!\1).)*(?:\1|$))*""")
_ESCAPES = {"b": "\b", "t": "\t", "n": "\n", "r": "\r", "s": " ", "\\": "\\", '"': '"', "'": "'"}


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who we are to the server. `password` None: the server knows us by our system user."""

    user: str
    password: str | None = field(repr=False)
    socket: Path | None
    password_source: str = ""  # in words, for a hint: "file /etc/backupd/password"


def credentials(host: HostConfig, environment: Mapping[str, str]) -> Credentials:
    """What the configuration says of us, completed from the option file where it names one.

    Raises:
        ConfigurationError: a secret is missing or others can read it; nobody says who or where.
    """
    options = _options_of(host)
    user = host.user or options.get("user", "")
    if not user:
        raise ConfigurationError(
            f"hosts.{host.name}: neither the configuration nor {host.defaults_file} names a user",
            hint=f"add user to [hosts.{host.name}] or to [client] in the option file",
        )
    socket = host.socket
    if socket is None and host.address is None:
        if not options.get("socket"):
            raise ConfigurationError(
                f"hosts.{host.name}: neither the configuration nor {host.defaults_file} says where the server is",
                hint=f"add socket or address to [hosts.{host.name}], or socket to [client] in the option file",
            )
        socket = Path(options["socket"])
    secret = options.get("password") or None if host.defaults_file is not None else password(host, environment)
    return Credentials(user=user, password=secret, socket=socket, password_source=password_source(host))


def password(host: HostConfig, environment: Mapping[str, str]) -> str | None:
    """The password for this host, without its trailing newline; None where the host names no source for one.

    Raises:
        ConfigurationError: the source is missing, empty, no regular file, or readable by group or others.
    """
    found = named_password(host, f"hosts.{host.name}", environment)
    return found if found is not None else _options_of(host).get("password") or None


class PasswordSources(Protocol):
    """A table with the three keys that say where a password is."""

    @property
    def password_file(self) -> Path | None:
        """A file whose only line it is."""

    @property
    def password_env(self) -> str | None:
        """A variable of the environment."""

    @property
    def password_credential(self) -> str | None:
        """A credential of systemd's."""


def named_password(table: PasswordSources, path: str, environment: Mapping[str, str]) -> str | None:
    """The password that the table at this path names a source for; None where it names none.

    Raises:
        ConfigurationError: as `password`.
    """
    if table.password_file is not None:
        return password_in(table.password_file, named=f"{path}.password_file")
    if table.password_env is not None:
        return _from_environment(path, table.password_env, environment)
    if table.password_credential is not None:
        return _from_credential(path, table.password_credential, environment)
    return None


def _from_environment(path: str, variable: str, environment: Mapping[str, str]) -> str:
    if not (value := environment.get(variable)):
        raise ConfigurationError(
            f"{path}.password_env: the environment has no {variable}",
            hint=f"export {variable}, or set it in the unit by EnvironmentFile=",
        )
    return value


def _from_credential(path: str, name: str, environment: Mapping[str, str]) -> str:
    if not (folder := environment.get(CREDENTIALS_VARIABLE)):
        raise ConfigurationError(
            f"{path}.password_credential: the environment has no {CREDENTIALS_VARIABLE}",
            hint=f"systemd sets it for a unit with LoadCredential={name}:/PATH",
        )
    # No rule on its mode: systemd guards the folder, and the ACL that lets a unit's own user in shows as group's bits.
    where = f"{path}.password_credential"
    return _only_line(private_text(where, Path(folder) / name, guarded_by_folder=True), where)


def password_in(path: Path, *, named: str) -> str:
    """The password that is the file's only line; `named` is what a person calls the file's place.

    Raises:
        ConfigurationError: it is missing, empty, no regular file, or readable by group or others.
    """
    return line_in(path, named=named)


def line_in(path: Path, *, named: str, content: str = "the password") -> str:
    """The secret that is the file's only line: a token, an address that nobody else must know.

    Raises:
        ConfigurationError: as `password_in`.
    """
    return _only_line(private_text(named, path, content=content), named, content=content)


def _key(host: HostConfig, key: str) -> str:
    return f"hosts.{host.name}.{key}"


def _only_line(text: str, where: str, *, content: str = "the password") -> str:
    if not (secret := text.removesuffix("\n").removesuffix("\r")):
        raise ConfigurationError(f"{where}: the file is empty", hint=f"write {content} into it, as its only line")
    return secret


def private_text(where: str, path: Path, *, content: str = "the password", guarded_by_folder: bool = False) -> str:
    """The text of a small regular file that only its owner can read; `where` says what names it, for a person.

    The mode is asked of the file that was opened, not of the name.

    Raises:
        ConfigurationError: it is missing, no regular file, no text, or others can read or write it.
    """
    try:
        with open(path, "rb", opener=without_waiting) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ConfigurationError(f"{where}: {path} is not a regular file", hint=f"put {content} into a file")
            if status.st_mode & 0o077 and not guarded_by_folder:
                mode = stat.S_IMODE(status.st_mode)
                raise ConfigurationError(
                    f"{where}: {path} can be read or written by others (mode {mode:04o})", hint=f"chmod 600 {path}"
                )
            return file.read(_LARGEST_FILE).decode()
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigurationError(
            f"{where}: cannot read {path}: {reason}", hint="it must exist, and backupd's user must be able to read it"
        ) from error
    except UnicodeDecodeError:
        # Not chained: the cause carries the file's bytes.
        raise ConfigurationError(f"{where}: {path} is not UTF-8 text", hint="save it as UTF-8") from None


def without_waiting(path: str, flags: int) -> int:
    """An opener for `open`: opening a FIFO would otherwise wait for its writer, for ever."""
    return os.open(path, flags | os.O_NONBLOCK)


def _options_of(host: HostConfig) -> dict[str, str]:
    if host.defaults_file is None:
        return {}
    return client_options(private_text(_key(host, "defaults_file"), host.defaults_file))


def client_options(text: str) -> dict[str, str]:
    """The options that an option file's client groups set; `!include` lines are not followed.

    Not `configparser`: it would read an indented line as part of the value before it, and its errors quote the line.
    """
    options: dict[str, str] = {}
    group = ""
    for line in map(str.strip, text.split("\n")):
        if header := re.match(r"\[([^]]+)\]", line):
            group = header[1].strip()
        elif group in _CLIENT_GROUPS and line and line[0] not in "#;!":
            name, _, value = _without_comment(line).partition("=")
            options[name.strip()] = _unquoted(value.strip())
    return options


def _without_comment(line: str) -> str:
    """`#` begins a comment anywhere but between quotes, one that is never closed included (mysys/my_default.c)."""
    match = _BEFORE_COMMENT.match(line)
    return match[0] if match else line


def _unquoted(value: str) -> str:
    """Quotes come off only where they enclose the whole value; an escape that is unknown keeps its backslash."""
    if len(value) > 1 and value[0] in "\"'" and value[0] == value[-1]:
        value = value[1:-1]
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), value)
