"""The `old_mode` by which a binlog's DDL is applied, and what speaks against it.

Knows: that MariaDB logs no `old_mode`, by which the word `utf8` is one character set or another (from 10.6 on); that
what is recorded is the server's own at the backup. A session's is known to nobody.
"""

from collections.abc import Iterable

from backupd.vocabulary.binlogs import BinlogSegment, ChangeKind
from backupd.vocabulary.servers import Flavour, ServerFacts

OLD_MODE = "old_mode"  # a recorded setting; empty is a value as any other

_FIRST_VERSION = (10, 6, 0)
_DEFINING = (ChangeKind.CREATE, ChangeKind.ALTER, ChangeKind.OTHER)


def mode_doubt(facts: ServerFacts, segments: Iterable[BinlogSegment]) -> str:
    """Why a copy of a server with these facts may get other columns by these segments; empty: it cannot."""
    older = facts.flavour is not Flavour.MARIADB or facts.version_number < _FIRST_VERSION
    if older or OLD_MODE in facts.settings or not any(map(_may_define, segments)):
        return ""
    return "the server's old_mode was not recorded with this backup: in DDL of the log, utf8 may mean another charset"


def _may_define(segment: BinlogSegment) -> bool:
    return not segment.all_changes or any(change.kind in _DEFINING for change in segment.changes)
