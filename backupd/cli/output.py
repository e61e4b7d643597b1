"""What goes where: results to stdout, everything else to stderr; one JSON document at the most.

Knows: what becomes of a command whose words nobody takes. A reader that has seen enough, or a stderr on a full disk,
ends no backup and changes no exit status; a result that cannot be stored is an error. Words may hold what a server or
a storage has said: nothing but `plain` text goes out. Whoever puts several lines together takes care of each.
"""

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from backupd.vocabulary.errors import BackupdError, OutputError
from backupd.vocabulary.escaping import indented, plain

if TYPE_CHECKING:
    from backupd.vocabulary.records import Finding

SCHEMA = 1


class _Printed:
    """Whether this process has printed its one document."""

    document = False


def print_document(document: Mapping[str, Any]) -> None:
    """Print the one JSON document of a command; `"schema": 1` comes first in every one."""
    if _Printed.document:
        raise AssertionError("a command prints one document")
    _Printed.document = True
    print_text(document_text(document))


def document_text(document: Mapping[str, Any]) -> str:
    """The same as text, for a file; without a last line feed."""
    return json.dumps({"schema": SCHEMA, **document}, indent=2, allow_nan=False)


def document_was_printed() -> bool:
    """True once `print_document` was called: an error is then told on stderr only."""
    return _Printed.document


def draws_dots_here() -> bool:
    """Whether stdout shows more than ASCII."""
    from backupd.report.plot import draws_dots

    return draws_dots(sys.stdout.encoding, os.environ.get("TERM"))


def say(line: str) -> None:
    """A line of a result. Raises as `write` does."""
    write(f"{indented(line)}\n")


def print_text(text: str) -> None:
    """A result of several lines, without its last line feed. Raises as `write` does."""
    write(f"{text}\n")


def print_as_it_is(text: str) -> None:
    """The same of words in which nothing acts on a terminal, and of which a person types every character."""
    _written(f"{text}\n")


def write(text: str) -> bool:
    """A piece of a result; False where its reader has gone (`| head -1`), who hears nothing of the rest.

    Raises:
        OutputError: stdout takes no more, because its disk is full or failed; what follows goes nowhere.
    """
    return _written(plain(text))


def _written(text: str) -> bool:
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        _lead_nowhere(sys.stdout)
        return False
    except OSError as error:
        _lead_nowhere(sys.stdout)
        raise OutputError(
            f"stdout could not be written: {(error.strerror or str(error)).lower()}",
            hint="the command itself was carried out; see `backupd history` and `backupd show RUN`",
        ) from error
    return True


@contextlib.contextmanager
def reported(errors: list[BackupdError]) -> Iterator[None]:
    """What is said of one of several things: where it cannot be, that is among the errors, and the others follow."""
    try:
        yield
    except OutputError as error:
        errors.append(error)


def say_findings(findings: "Iterable[Finding]") -> None:
    """Each on a line, and what to do about one that is not in order below it."""
    from backupd.vocabulary.records import Level

    for finding in findings:
        say(f"{finding.level:8} {finding.name}: {finding.detail}")
        if finding.hint and finding.level is not Level.OK:
            say(f"{'':8} hint: {finding.hint}")


def tell_findings(findings: "Iterable[Finding]") -> None:
    """Of what deserves attention beside a result."""
    for finding in findings:
        tell(f"attention: {finding.detail}")
        tell(f"hint: {finding.hint}")


def tell(line: str) -> None:
    """A line about the work, for people: never part of a result, and the work goes on where it cannot be written."""
    with contextlib.suppress(OSError):
        print(indented(line), file=sys.stderr, flush=True)  # noqa: T201


def open_standard_streams() -> None:
    """stdin, stdout and stderr are there, as /dev/null where we were started without them (`>&-`).

    Else the next file that is opened, say the catalogue, gets the number of one, and what others print goes into it.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):  # in this order: the lowest number is taken
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode)  # noqa: SIM115  # until the process ends
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def _lead_nowhere(stream: TextIO) -> None:
    """What still waits in the stream must not fail once more, when Python writes it out at the end."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def write_report(path: Path, text: str, *, hint: str) -> None:
    """The file has this text, and stderr says so; `hint` tells what is not lost where that fails.

    Raises:
        UsageError: it could not be written.
    """
    from backupd.host.filesystem import write_words

    write_words(path, text, hint=hint)
    tell(f"wrote {path}")
