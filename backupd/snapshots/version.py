"""Which LVM this is: a figure may depend on it."""

import re

from backupd import command
from backupd.errors import UnexpectedOutput

_SECONDS = 60.0


def lvm_version() -> str:
    """The version of the LVM tools as they say it, without their date: `2.03.16(2)`.

    Raises:
        CommandError: LVM is not installed or failed.
        UnexpectedOutput: it says something else; the message carries the text.
    """
    return parse_version(command.run(["lvm", "version"], timeout_seconds=_SECONDS).stdout)


def parse_version(text: str) -> str:
    """The version in what `lvm version` prints.

    Raises:
        UnexpectedOutput: there is none.
    """
    found = re.search(r"^\s*LVM version:\s+(\S+)", text, re.MULTILINE)
    if found is None:
        raise UnexpectedOutput(f"`lvm version` printed what backupd does not know:\n{text}")
    return found.group(1)
