"""The server's option files as they may be stored: with the files that they include, and without the secrets in them.

Knows: how an option file is written and which of its lines hold a secret. When in doubt a line is a secret: the
stored copy is for a person who sets a server up again, and they have the passwords.

Of the servers' own reading (mysys/my_default.c; tried with MariaDB 10.11): `-` and `_` are alike in names, a name may
be cut short, `#` begins a comment anywhere outside quotes; `!includedir` takes the files that end in .cnf, in order of
their names, and does not look into folders; an included file that is missing is passed over; a relative name begins
where the server was started, which under systemd is `/`.
"""

import io
import os
import re
import stat
import tarfile
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from backupd.config.secrets import without_waiting
from backupd.vocabulary.errors import ConfigurationError

_LARGEST_FILE = 1 << 20  # bytes; an option file has some thousands
_DIRECTIVE = re.compile(r"\s*!\s*(include|includedir)\s+(\S.*?)\s*")
_NAMED_VALUE = re.compile(r"([\w.]+)\s*[=:]\s*(?=(.{0,5}))")
_SHOWABLE_NAME = re.compile(r"\s*([\w.-]{1,80})\s*=", re.ASCII)

# Settings about passwords, keys and tokens that hold none.
_HARMLESS = re.compile(
    r"validate_password|password_check|(?:sha256|sha2|native)_password|expired_password|old_passwords"
    r"|password_(?:history|reuse|require|lifetime|errors|validation)|random_password_length|token_size"
    r"|primary_key|seeks_for_key"
)
_IS_PATH = re.compile(r"(?:file|path|dir|filename)$|(?:ssl|tls)_?key$|^tkey$")
_SECRET = re.compile(r"(?:^|[_.])pas|passw|passphrase|pass$|pwd|secre|token|credential|sst_a|key$")  # `pas`: cut short
_SECRET_IN_PROSE = re.compile(r"passw|passphrase|\bpass\b|pwd|secret|token|credential|sst_auth")
_SECRET_IN_SQL = re.compile(r"\bidentified\b|\bset\s+password\b|\w://[^\s/@]*:[^\s@]*@")  # or in an address


def option_files(paths: Sequence[Path]) -> bytes:
    """A tar stream of these files and of those that they include, under their own names and without their secrets.

    Raises:
        ConfigurationError: one of them cannot be read or is no option file.
    """
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path, content, modified in _with_included(paths):
            kept = without_secrets(content)
            member = tarfile.TarInfo(str(path).lstrip("/"))
            member.size, member.mtime, member.mode = len(kept), modified, 0o600
            archive.addfile(member, io.BytesIO(kept))
    return stream.getvalue()


def without_secrets(content: bytes) -> bytes:
    """An option file in which a comment stands for each line that held a secret; every other byte is as it was."""
    lines = (line.decode("latin-1") for line in io.BytesIO(content))  # any byte is a character and comes back as it was
    return "".join(_in_place_of(line) if _holds_secret(line) else line for line in lines).encode("latin-1")


def _with_included(paths: Sequence[Path]) -> Iterator[tuple[Path, bytes, int]]:
    """Each file once, in the order in which the server reads them, with its content and when it was modified."""
    waiting = [*reversed(paths)]
    seen: set[Path] = set()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        try:
            content, modified = _read(path)
            included = [found for line in io.BytesIO(content) for found in _included(line)]
        except FileNotFoundError as error:
            if path in paths:
                raise _unreadable(path, error) from error
            continue
        except OSError as error:
            raise _unreadable(path, error) from error
        yield path, content, modified
        waiting += reversed(included)


def _included(line: bytes) -> list[Path]:
    if not (directive := _DIRECTIVE.fullmatch(os.fsdecode(line))):
        return []
    place = Path(os.path.normpath(Path("/") / directive[2]))
    if directive[1] == "include":
        return [place]
    entries = place.iterdir() if place.is_dir() else ()
    return sorted(entry for entry in entries if entry.suffix == ".cnf" and entry.is_file())


def _read(path: Path) -> tuple[bytes, int]:
    with open(path, "rb", opener=without_waiting) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise _no_option_file(path, "is not a regular file")
        if status.st_size > _LARGEST_FILE:
            raise _no_option_file(path, "is larger than 1 MiB")
        return file.read(_LARGEST_FILE), int(status.st_mtime)


def _no_option_file(path: Path, why: str) -> ConfigurationError:
    hint = "name the server's own option files, such as /etc/mysql/my.cnf"
    return ConfigurationError(f"copy.option_files: {path} {why}", hint=hint)


def _unreadable(path: Path, error: OSError) -> ConfigurationError:
    reason = (error.strerror or str(error)).lower()
    hint = "correct copy.option_files, or the file that includes this one"
    return ConfigurationError(f"copy.option_files: cannot read {path}: {reason}", hint=hint)


def _in_place_of(line: str) -> str:
    name = _SHOWABLE_NAME.match(line)
    end = line[len(line.rstrip("\r\n")) :]
    return f"# {name[1] if name else 'a line'}: removed by backupd, for it held a secret{end}"


def _holds_secret(line: str) -> bool:
    plain = line.lower().replace("-", "_").strip()
    if any(_is_secret(name, value) for name, value in _NAMED_VALUE.findall(plain)) or _SECRET_IN_SQL.search(plain):
        return True
    option, _, comment = ("", "", plain) if plain.startswith(";") else plain.partition("#")
    if _SECRET_IN_PROSE.search(_HARMLESS.sub("", comment)):
        return True
    # Without a `=` the servers would not take it, and still it tells.
    words = [] if "=" in option or option.startswith(("[", "!")) else option.split()
    return any(_is_secret(word, value) for word, value in pairwise(words))


def _is_secret(name: str, value: str) -> bool:
    if not value or _IS_PATH.search(name) or (name.endswith("filekey") and value == "file:"):
        return False
    return _SECRET.search(_HARMLESS.sub("", name)) is not None
