"""A few values of one job's `[jobs.NAME.snapshot]` entered into the configuration file, and nothing else changed in it.

Knows: how a file that people write by hand is changed without harm: comments and order stay, the whole text is checked
by the loader before it takes the file's place at once, with the same owner, mode and attributes. Refuses to guess:
where the job does not stand in tables of its own the file is left alone, and the person is told what to enter.
"""

import copy
import errno
import fcntl
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from backupd.config.effective import value_text
from backupd.config.reading import file_of_job, load
from backupd.policy.drafts import draft_of
from backupd.vocabulary.errors import Busy, ConfigurationError
from backupd.vocabulary.escaping import on_one_line

_Value = str | int | Sequence[str]
_Values = Mapping[str, _Value]  # key -> text, number or list of texts
_Notes = Mapping[str, str]  # key -> what a comment behind it says
_NO_NOTES: _Notes = {}

_HEADER = re.compile(r"[ \t]*\[")
_NOTHING = re.compile(r"[ \t]*(#.*)?\r?\n?")
_NOTE = re.compile(r"# /dev/\S+(, /dev/\S+)* on [0-9]{4}-[0-9]{2}-[0-9]{2}")  # one of ours, as `devices_on` writes it


@dataclass(frozen=True, slots=True)
class _Opened:
    """The file as it was when it was opened, locked against others of ours."""

    text: str
    status: os.stat_result
    descriptor: int


def devices_on(day: date, paths: Sequence[str]) -> str:
    """A note on which devices these were that day. The next one takes its place; a comment of a person stays."""
    return f"{on_one_line(', '.join(paths))} on {day:%Y-%m-%d}"


def enter(path: Path, job: str, values: _Values, *, notes: _Notes = _NO_NOTES) -> None:
    """The job's snapshot has these values in the file, with these notes. Where this raises, the file is as it was.

    Raises:
        ConfigurationError: the file is a symbolic link or has other names, cannot be read or replaced, has changed
            meanwhile, has faults, or does not have the job in a table of its own.
        Busy: another command is just changing it.
    """
    told = "; ".join(f"{key} = {value_text(value)}" for key, value in values.items())
    otherwise = f"enter it by hand into [jobs.{job}.snapshot]: {told}"
    where = file_of_job(path, job)
    with _opened(where, otherwise) as file:
        changed = entered(file.text, job, values, path=path, where=where, otherwise=otherwise, notes=notes)
        _replace(where, file, changed)


def require_enterable(path: Path, job: str, keys: Sequence[str]) -> None:
    """`enter` would find nothing to object to, as far as can be seen now. Nothing is changed.

    Raises:
        ConfigurationError, Busy: as `enter`.
    """
    other: dict[str, _Value] = {"pvs": ["/dev/null"], "stripes": 2}
    some = {key: other.get(key, "64KiB") for key in keys}
    otherwise = "omit --write, and enter the recommendation by hand"
    where = file_of_job(path, job)
    with _opened(where, otherwise) as file:
        entered(file.text, job, some, path=path, where=where, otherwise=otherwise)


def entered(
    text: str, job: str, values: _Values, *, path: Path, where: Path, otherwise: str, notes: _Notes = _NO_NOTES
) -> str:
    """The same text with these values; `otherwise` is what a person can do where that cannot be.

    `where` is the file of this text: the configuration `path` itself, or one of its drop-ins.

    Raises:
        ConfigurationError: it has faults, before or afterwards; or the job does not stand in tables of its own.
    """
    load(path, instead={where: text})
    replaced = _replaced(text, job, values, notes)
    changed = None if replaced is None else _added(replaced, job, values, notes)
    wanted = copy.deepcopy(tomllib.loads(text))
    table = wanted.get("jobs", {}).get(job)
    if changed is None or table is None:
        raise _elsewhere(where, job, otherwise)
    table.setdefault("snapshot", {}).update({key: _plain(value) for key, value in values.items()})
    try:
        found = tomllib.loads(changed)
    except tomllib.TOMLDecodeError as error:
        raise _elsewhere(where, job, otherwise) from error
    if found != wanted or _comments(changed) != _comments(text):
        raise _elsewhere(where, job, otherwise)
    load(path, instead={where: changed})
    return changed


def _replaced(text: str, job: str, values: _Values, notes: _Notes) -> str | None:
    """With new values for those keys that are there already, comments behind them kept; None where that fails.

    A note of ours is no longer true, and goes.
    """
    table = tomllib.loads(text).get("jobs", {}).get(job, {}).get("snapshot", {})
    there = {key: value for key, value in values.items() if key in table}
    if not there:
        return text
    import tomlkit  # takes its time to load, and only this needs it
    from tomlkit.exceptions import TOMLKitError

    try:
        document = tomlkit.parse(text)
        snapshot = document["jobs"][job]["snapshot"]
        if any("#" in snapshot[key].as_string() for key in there):
            return None  # a comment within a list would go with it
        for key, value in there.items():
            snapshot[key] = _plain(value)
            trivia = snapshot[key].trivia
            if not trivia.comment or _NOTE.fullmatch(trivia.comment):
                trivia.comment_ws, trivia.comment = ("  ", f"# {notes[key]}") if key in notes else ("", "")
        return tomlkit.dumps(document)
    except TOMLKitError:
        return None


def _added(text: str, job: str, values: _Values, notes: _Notes) -> str | None:
    """With the keys that are not there yet, right below the table's header; None where that has no line of its own."""
    table = tomllib.loads(text).get("jobs", {}).get(job, {}).get("snapshot")
    end = "\r\n" if "\r\n" in text else "\n"
    note = {key: f"  # {words}" for key, words in notes.items()}
    missing = "".join(
        f"{key} = {value_text(value)}{note.get(key, '')}{end}"
        for key, value in values.items()
        if key not in (table or {})
    )
    if not missing:
        return text
    lines = text.splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += end
    header = _line_of(lines, "jobs", job, "snapshot")
    if header is not None:
        return "".join((*lines[: header + 1], missing, *lines[header + 1 :]))
    own = _line_of(lines, "jobs", job)
    if own is None or table is not None:
        return None
    section = next((i for i in range(own + 1, len(lines)) if _HEADER.match(lines[i])), len(lines))
    last = max(i for i in range(own, section) if i == own or not _NOTHING.fullmatch(lines[i]))
    while last + 1 < section and lines[last + 1].lstrip().startswith("#"):
        last += 1  # keys of the job's own that are commented out stay in its table
    return "".join((*lines[: last + 1], f"{end}[jobs.{job}.snapshot]{end}", missing, *lines[last + 1 :]))


def _line_of(lines: Sequence[str], *names: str) -> int | None:
    """The line of this table's header."""
    dotted = r"[ \t]*\.[ \t]*".join(f"[\"']?{re.escape(name)}[\"']?" for name in names)
    header = re.compile(rf"[ \t]*\[[ \t]*{dotted}[ \t]*\][ \t]*(#.*)?\r?\n")
    return next((number for number, line in enumerate(lines) if header.fullmatch(line)), None)


def _comments(text: str) -> list[str]:
    """Lines of nothing but a comment, in their order."""
    return [line.strip() for line in text.splitlines() if line.lstrip().startswith("#")]


def _plain(value: _Value) -> str | int | list[str]:
    return value if isinstance(value, str | int) else list(value)


def _elsewhere(path: Path, job: str, otherwise: str) -> ConfigurationError:
    return ConfigurationError(
        f"{path} was not changed: its [jobs.{job}.snapshot] cannot be edited safely",
        hint=otherwise,
    )


@contextmanager
def _opened(path: Path, otherwise: str) -> Iterator[_Opened]:
    """The file, which may be replaced; while the block lasts no other command of ours replaces it."""
    try:
        if stat.S_ISLNK(path.lstat().st_mode):
            raise ConfigurationError(
                f"{path} is a symbolic link, which backupd does not replace",
                hint=f"give the file itself: --config {path.resolve()}; or {otherwise}",
            )
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise _cannot(path, "read", error, otherwise) from error
    try:
        _lock(path, descriptor)
        status = os.fstat(descriptor)
        _require_replaceable(path, status, otherwise)
        with os.fdopen(os.dup(descriptor), "rb") as file:
            text = file.read().decode()
        yield _Opened(text, status, descriptor)
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 text", hint="save it as UTF-8") from error
    except OSError as error:
        raise _cannot(path, "replaced", error, otherwise) from error
    finally:
        os.close(descriptor)


def _lock(path: Path, descriptor: int) -> None:
    """Whoever waits for it would find another file in its place: so nobody waits."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise Busy(f"another command is changing {path}", hint="try again when it has finished") from error


def _require_replaceable(path: Path, status: os.stat_result, otherwise: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise ConfigurationError(f"{path} is not a regular file", hint=otherwise)
    if status.st_nlink > 1:
        raise ConfigurationError(
            f"{path} has {status.st_nlink} names (hard links), and the others would keep the old text",
            hint=otherwise,
        )
    if not status.st_mode & stat.S_IWUSR or not os.access(path, os.W_OK) or not os.access(path.parent, os.W_OK):
        raise ConfigurationError(f"{path} is read-only", hint=f"chmod u+w it, as root; or {otherwise}")


def _replace(path: Path, file: _Opened, text: str) -> None:
    """In one step, durable: whoever reads it finds the old file or the new one. Not if somebody has changed it."""
    with draft_of(path) as (written, new):
        written.write(text.encode())
        written.flush()
        _make_alike(written.fileno(), file)
        os.fsync(written.fileno())
        _require_unchanged(path, file)
        new.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _make_alike(descriptor: int, file: _Opened) -> None:
    """Owner, mode and attributes (ACLs, labels) are the old file's; only root may give a file to somebody else."""
    old, new = file.status, os.fstat(descriptor)
    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
        os.fchown(descriptor, old.st_uid, old.st_gid)
    for attribute, value in _attributes(file.descriptor).items():
        os.setxattr(descriptor, attribute, value)
    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))


def _attributes(descriptor: int) -> dict[str, bytes]:
    """Empty where the file system has none."""
    try:
        return {name: os.getxattr(descriptor, name) for name in os.listxattr(descriptor)}
    except OSError as error:
        if error.errno == errno.ENOTSUP:
            return {}
        raise


def _require_unchanged(path: Path, file: _Opened) -> None:
    now = path.lstat()
    was = file.status
    seen = [(one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns, one.st_mode) for one in (now, was)]
    if seen[0] != seen[1]:
        raise ConfigurationError(
            (f"{path} was changed by somebody else in the meantime, and was not written"), hint="try again"
        )


def _cannot(path: Path, what: str, error: OSError, otherwise: str) -> ConfigurationError:
    reason = (error.strerror or str(error)).lower()
    return ConfigurationError(f"{path} cannot be {what}: {reason}", hint=otherwise)
