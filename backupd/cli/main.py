"""`backupd`: the command tree, and the one place where an error becomes words and an exit status."""

import logging
import os
import sys
import traceback
from contextlib import suppress
from io import TextIOWrapper
from itertools import takewhile
from pathlib import Path
from typing import Annotated

import typer
from typer.exceptions import TyperException

from backupd import __version__
from backupd.cli.invocation import Invocation
from backupd.cli.output import document_was_printed, open_standard_streams, print_document, say, tell
from backupd.cli.tree import CommandTree
from backupd.vocabulary.errors import BackupdError, Cancelled, ExitStatus, InternalError, OutputError, UsageError
from backupd.vocabulary.escaping import PlainFormatter

_COMPLETING = "_BACKUPD_COMPLETE"  # set by the script of `backupd completion`
_TRACEBACKS = 1  # a level below DEBUG: `-vv`
STATUSES = "\n".join(f"{status.value} {status.meaning}" for status in ExitStatus)

app = typer.Typer(
    name="backupd",
    cls=CommandTree,
    help="Snapshot-aware backups for MySQL and MariaDB on LVM, with the cost of every snapshot measured.",
    epilog=f"\b\nExit statuses:\n{STATUSES}",
    no_args_is_help=True,
    add_completion=False,  # its options write into the shell's own files; `backupd completion` prints the script
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


def _print_version(asked: bool) -> None:
    if asked:
        say(f"backupd {__version__}")
        raise typer.Exit


@app.callback()
def options(
    ctx: typer.Context,
    *,
    config: Annotated[Path | None, typer.Option(help="Configuration file.", show_default=False)] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors on stderr.")] = False,
    verbose: Annotated[
        int,
        typer.Option("--verbose", "-v", count=True, help=("Also log commands; twice: tracebacks."), show_default=False),
    ] = 0,
    version: Annotated[  # noqa: ARG001  # its callback acts
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Options of every command."""
    _set_up_logging(quiet=quiet, verbose=verbose)
    ctx.obj = Invocation(config=config, quiet=quiet)


def main() -> None:
    """Run the command line; every failure ends here with its sentence, its hint and its exit status."""
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # else it looks through all packages
    open_standard_streams()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a terminal without UTF-8 gets a `?` rather than a traceback
            stream.reconfigure(errors="replace")
    if _COMPLETING in os.environ:
        from typer.completion import completion_init  # type: ignore[attr-defined]  # theirs, made elsewhere

        completion_init()
    try:
        app(prog_name="backupd")  # however it was started: completion goes by this name
    except BackupdError as error:
        _explain(error)
        sys.exit(error.exit_status)
    except Exception as bug:  # noqa: BLE001 - it is told with all that Python would say, which would print it raw
        tell("".join(traceback.format_exception(bug)).rstrip())
        _print_error(InternalError(f"{type(bug).__name__}: {bug}", hint="this is a bug in backupd; please report it"))
        sys.exit(ExitStatus.INTERNAL)
    except SystemExit as ended:
        if isinstance(refused := ended.__context__, TyperException):  # told already, in typer's words
            mistyped = UsageError(refused.format_message(), hint="see --help")
            if "--nagios" in _ours():
                from backupd.cli.plugin_line import tell_unknown

                sys.exit(tell_unknown(mistyped))
            _print_error(mistyped)
        if not isinstance(getattr(ended.__context__, "__cause__", None), KeyboardInterrupt):
            raise
        tell("error: interrupted")  # typer makes 130 of it, which a command in the lab may end with as well
        _print_error(Cancelled("interrupted"))
        sys.exit(ExitStatus.CANCELLED)


def _explain(error: BackupdError) -> None:
    if logging.getLogger().isEnabledFor(_TRACEBACKS):
        tell("".join(traceback.format_exception(error)).rstrip())
    tell(f"error: {error.message}")
    for note in getattr(error, "__notes__", ()):
        tell(f"note: {note}")
    if error.hint:
        tell(f"hint: {error.hint}")
    _print_error(error)


def _print_error(error: BackupdError) -> None:
    """As the command's one document, where one was asked for and none was printed; stderr has told it already."""
    if "--json" in _ours() and not document_was_printed():
        with suppress(OutputError):
            print_document({"error": {"code": error.code, "message": error.message, "hint": error.hint}})


def _ours() -> list[str]:
    """The arguments that are ours: what follows `--` is another command's (`lab run`)."""
    return list(takewhile(lambda argument: argument != "--", sys.argv))


def _set_up_logging(*, quiet: bool, verbose: int) -> None:
    level = logging.WARNING if quiet else (logging.INFO, logging.DEBUG, _TRACEBACKS)[min(verbose, 2)]
    shown = logging.StreamHandler(sys.stderr)
    shown.setFormatter(PlainFormatter("%(asctime)s %(levelname)-7s %(message)s", datefmt="%H:%M:%S"))
    logging.basicConfig(level=level, handlers=[shown])
    for noisy in (
        "alembic",
        "asyncssh",
        "azure",
        "boto3",
        "botocore",
        "google",
        "sqlalchemy",
        "urllib3",
    ):  # botocore shows session tokens
        logging.getLogger(noisy).setLevel(logging.WARNING)
    logging.getLogger("asyncio").setLevel(logging.ERROR)  # it warns of each block that a lost connection has not taken
