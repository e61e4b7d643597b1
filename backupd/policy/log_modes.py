"""The settings by which a binlog's statements are applied that no event carries, and what speaks against them.

Knows: that MariaDB logs no `old_mode`, by which the word `utf8` is one character set or another (from 10.6 on); which
other settings decide what a statement gives, DDL and GRANT among them; that what is recorded is the server's own at the
backup. A session's is known to nobody.
"""

from collections.abc import Iterable

from backupd.vocabulary.binlogs import BinlogSegment, ChangeKind
from backupd.vocabulary.servers import Flavour, ServerFacts

OLD_MODE = "old_mode"  # a recorded setting; empty is a value as any other
# Recorded settings that decide what a statement gives, and are in no event. Flags, sql_mode, character sets, time zone,
# lc_time_names and auto-increment are. Of a limit the source's counts, for the default may be less than what it took.
# Seen to matter on MariaDB 10.11.19 or MySQL 9.7.4; of the vector index's defaults MariaDB's source says so
# (`mhnsw_index_options`).
_OF_ROWS = (
    "block_encryption_mode",
    "cte_max_recursion_depth",
    "default_regex_flags",
    "default_week_format",
    "div_precision_increment",
    "ft_boolean_syntax",
    "ft_query_expansion_limit",
    "group_concat_max_len",
    "max_allowed_packet",  # what is longer becomes NULL
    "max_heap_table_size",
    "max_points_in_geometry",
    "max_recursive_iterations",
    "max_sort_length",  # which row comes first for LIMIT
    "max_sp_recursion_depth",
    "old_passwords",
    "regexp_stack_limit",
    "regexp_time_limit",
    "thread_stack",
    "windowing_use_high_precision",
    "explicit_defaults_for_timestamp",  # newer servers log it
)
_OF_DEFINITIONS = (
    "aria_page_checksum",
    "automatic_sp_privileges",
    "innodb_compression_default",
    "innodb_default_row_format",
    "innodb_file_per_table",
    "mhnsw_default_distance",
    "mhnsw_default_m",
    "mysql56_temporal_format",
    "partial_revokes",
    "standard_compliant_cte",
)
DECIDING = (*_OF_ROWS, *_OF_DEFINITIONS)
# Recorded for the doubt alone: they give a table another engine than its statement says, or refuse it, as the session's
# sql_mode has it. MySQL disables none without grant tables. What MariaDB enforces a session may have switched off, and
# its statements would be refused.
OF_ENGINES = ("disabled_storage_engines", "enforce_storage_engine")
ONLY_OF_MOMENTS = (
    *DECIDING,
    *OF_ENGINES,
    OLD_MODE,
    "default_storage_engine",
)  # recorded settings without which a copy starts
MISFITS = "misfits"  # a setting of a judged manifest: names of those that were recorded as nothing that is known here

_FIRST_VERSION = (10, 6, 0)
_DEFINING = (ChangeKind.CREATE, ChangeKind.ALTER, ChangeKind.OTHER)
_CHANGING = (ChangeKind.INSERT, ChangeKind.UPDATE, ChangeKind.DELETE)
_EVERY_SERVER_HAS = "max_sort_length"  # of those that were added last


def mode_doubt(facts: ServerFacts, segments: Iterable[BinlogSegment]) -> str:
    """Why a copy of a server with these facts may get other columns by these segments; empty: it cannot."""
    older = facts.flavour is not Flavour.MARIADB or facts.version_number < _FIRST_VERSION
    if older or OLD_MODE in facts.settings or not any(map(_may_define, segments)):
        return ""
    return "the server's old_mode was not recorded with this backup: in DDL of the log, utf8 may mean another charset"


def statement_doubt(facts: ServerFacts, segments: Iterable[BinlogSegment]) -> str:
    """Why statements of these segments may give other rows than on the source; empty: they cannot."""
    if _EVERY_SERVER_HAS in facts.settings or not any(map(_may_change_by_statement, segments)):
        return ""
    return (
        "settings that decide what statements give (max_sort_length and others) were not recorded with this backup:"
        " rows that the log changes by statements may differ"
    )


def definition_doubt(facts: ServerFacts, segments: Iterable[BinlogSegment]) -> str:
    """Why DDL of these segments may make something else than on the source; empty: it cannot."""
    if not any(map(_may_define, segments)):
        return ""
    if _EVERY_SERVER_HAS not in facts.settings:
        return (
            "settings that decide what DDL makes (innodb_default_row_format, enforce_storage_engine and others) were"
            " not recorded with this backup: engines, formats and foreign keys of tables that the log makes may differ"
        )
    if of_engines := [name for name in OF_ENGINES if facts.settings.get(name)]:
        return (
            f"the server had {' and '.join(of_engines)}, which no copy has: tables that the log makes may have other"
            " engines there, and lack foreign keys"
        )
    return ""


def misfit_doubt(facts: ServerFacts, segments: Iterable[BinlogSegment]) -> str:
    """Why these segments, applied without settings that were not understood, may give something else; empty: cannot."""
    names = facts.settings.get(MISFITS, "")
    if not names or not any(_may_define(segment) or _may_change_by_statement(segment) for segment in segments):
        return ""
    return (
        f"this backupd does not understand the backup's value of {names}, and applies the log without it:"
        " what the log's statements give may differ"
    )


def _may_change_by_statement(segment: BinlogSegment) -> bool:
    return any(change.kind in _CHANGING and not change.rows for change in segment.changes)


def _may_define(segment: BinlogSegment) -> bool:
    return not segment.all_changes or any(change.kind in _DEFINING for change in segment.changes)
