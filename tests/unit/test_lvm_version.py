"""Which LVM a figure was measured with."""

import pytest

from backupd.lvm.version import parse_lvm_version
from backupd.vocabulary.errors import UnexpectedOutput

SAID = """  LVM version:     2.03.16(2) (2022-05-18)
  Library version: 1.02.185 (2022-05-18)
  Driver version:  4.47.0
"""


def test_the_version_is_told_without_its_date() -> None:
    assert parse_lvm_version(SAID) == "2.03.16(2)"


def test_what_nobody_knows_is_shown() -> None:
    with pytest.raises(UnexpectedOutput, match="no such thing"):
        parse_lvm_version("no such thing\n")
