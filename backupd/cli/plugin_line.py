"""The line and the exit status for Nagios, whatever becomes of the question."""

import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING

from backupd.cli.output import say, tell
from backupd.vocabulary.errors import BackupdError, UsageError

if TYPE_CHECKING:
    from backupd.service.plugin import PluginStatus


def tell_plugin_line(answer: "Callable[[], tuple[PluginStatus, str]]", *, json: bool) -> "PluginStatus":
    """The line is on stdout. Whatever prevents an answer is UNKNOWN: our own statuses would be read as theirs."""
    from backupd.service.plugin import PluginStatus, unknown

    try:
        if json:
            raise UsageError("--nagios and --json cannot be combined", hint="use one of them")  # noqa: TRY301
        status, line = answer()
    except BackupdError as error:
        return tell_unknown(error)
    except Exception as bug:  # noqa: BLE001 - it is told in full on stderr
        tell("".join(traceback.format_exception(bug)).rstrip())
        status, line = PluginStatus.UNKNOWN, unknown(f"internal error: {type(bug).__name__}")
    say(line)
    return status


def tell_unknown(error: BackupdError) -> "PluginStatus":
    """The line is on stdout, with what prevents an answer."""
    from backupd.service.plugin import PluginStatus, unknown

    hint = f"; hint: {error.hint}" if error.hint else ""
    say(unknown(f"{error.message}{hint}"))
    return PluginStatus.UNKNOWN
