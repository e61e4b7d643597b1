"""Which LVM and which mdadm this is: a figure may depend on them."""

import re

from backupd.host import process
from backupd.vocabulary.errors import CommandError, UnexpectedOutput

_SECONDS = 60.0


def lvm_version() -> str:
    """The version of the LVM tools as they say it, without their date: `2.03.16(2)`.

    Raises:
        CommandError: LVM is not installed or failed.
        UnexpectedOutput: it says something else; the message carries the text.
    """
    return parse_lvm_version(process.run(["lvm", "version"], timeout_seconds=_SECONDS).stdout)


def mdadm_version() -> str:
    """The version of mdadm as it says it: `4.2`.

    Raises:
        CommandError: mdadm is not installed or failed.
        UnexpectedOutput: it says something else; the message carries the text.
    """
    if not process.found("mdadm"):
        raise CommandError("program not found: mdadm", hint="apt-get install mdadm")
    said = process.run(["mdadm", "--version"], timeout_seconds=_SECONDS)
    return parse_mdadm_version(said.stdout + said.stderr)  # 4.2 says it on stderr


def parse_mdadm_version(text: str) -> str:
    """The version in what `mdadm --version` prints, else UnexpectedOutput."""
    return _found(r"^mdadm - v(\S+)", text, command="mdadm --version")


def parse_lvm_version(text: str) -> str:
    """The version in what `lvm version` prints, else UnexpectedOutput."""
    return _found(r"^\s*LVM version:\s+(\S+)", text, command="lvm version")


def _found(pattern: str, text: str, *, command: str) -> str:
    found = re.search(pattern, text, re.MULTILINE)
    if found is None:
        raise UnexpectedOutput(f"`{command}` printed something unexpected:\n{text}")
    return found.group(1)
