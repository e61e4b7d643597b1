"""What the logs of a server are called that have statements, and so values of rows: errors, queries, audits.

Knows: the settings that name them, and what becomes of a name when a log is rotated. The name counts and never its
path, wherever in a copy a file is called so: a path of a manifest's is a stranger's, and the server's own may have led
through a link. A name from before somebody changed the setting is known to nobody.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

from backupd.mysql.tablefiles import has_suffix_of_tables, is_of_a_table
from backupd.vocabulary.servers import ServerFacts

LOG_SETTINGS = (
    "audit_log_file",
    "audit_log_filter.file",
    "general_log_file",
    "log_error",
    "server_audit_file_path",
    "slow_query_log_file",
    "sql_error_log_filename",
)
_EVERY_SERVER_HAS = "general_log_file"

# MySQL's as JSON: host.err.00.json. Rotated: host-slow.log.1.gz, host-slow.log-20261127.xz (dateext), host.err-old.
_BY_SUFFIX = r".+\.(?:log|err)(?:[.~_-].*)?"
# InnoDB's tablespaces, which may be called app.log.ibd, and its logs and Aria's: the copy is gone without them.
_OF_AN_ENGINE = r".+\.ib[du]|ibdata[0-9]+|ibtmp[0-9]+|undo_?[0-9]+|ib_logfile[0-9]+|#ib_redo.+|aria_log[._].+"
# Each part begins with what no part has within it: so no name takes long, whoever made it.
_PART = r"[0-9][0-9A-Za-z:]*|old|prev|bak|backup|save|orig|copy|json|tar|tgz|gz|bz2|xz|zstd?|lz4?|lzma|lzo|zip|z|br|enc"
_ROTATED = rf"(?:[._-](?:{_PART}))"
# What InnoDB's monitor wrote until its server died, with rows of deadlocks; the server's memory at its death.
_LAST_WORDS = r"innodb_status\.[0-9]+|core(?:\..+)?"


def log_of(facts: ServerFacts) -> Callable[[str, bool], bool]:
    """Whether a file of this name is a log of that server, or one of its rotated ones; told whether it lies directly in
    the datadir, where no table's file can be, and where a server that dies leaves its last words.
    """
    by_suffix, by_setting = _any_of(_BY_SUFFIX), _any_of(*map(_rotated, _named(facts)))
    kept, last_words = _any_of(_OF_AN_ENGINE, *map(re.escape, _system_tablespaces(facts))), _any_of(_LAST_WORDS)

    def is_log(name: str, in_datadir: bool) -> bool:
        if kept(name):
            return False
        return (
            (by_suffix(name) and not has_suffix_of_tables(name))
            or (by_setting(name) and (in_datadir or not is_of_a_table(name)))
            or (in_datadir and last_words(name))
        )

    return is_log


def logs_doubt(facts: ServerFacts) -> str:
    """Why a log may be left in a copy; empty: their names are recorded, and no other file can be called so."""
    if _EVERY_SERVER_HAS not in facts.settings:
        return (
            "the names of the server's logs were not recorded with this backup: any that is not called NAME.log or"
            " NAME.err is left in the copy, and may have original rows"
        )
    is_log = log_of(facts)
    spared = sorted({path.name for path in _named(facts) if not is_log(path.name, False)})
    if not spared:
        return ""
    return (
        f"the server had logs that are called as files of tables or of its engines are: {', '.join(map(repr, spared))};"
        " any that may be such a file is left in the copy, and may have original rows"
    )


def _named(facts: ServerFacts) -> list[PurePosixPath]:
    paths = (PurePosixPath(facts.settings.get(setting, "")) for setting in LOG_SETTINGS)
    return [path for path in paths if path.name]


def _any_of(*patterns: str) -> Callable[[str], bool]:
    pattern = re.compile("|".join(patterns) or "(?!)", re.IGNORECASE | re.DOTALL)
    return lambda name: pattern.fullmatch(name) is not None


def _system_tablespaces(facts: ServerFacts) -> Iterator[str]:
    """Their files' names: `app.log:12M:autoextend` may be one."""
    for file in facts.settings.get("innodb_data_file_path", "").split(";"):
        yield PurePosixPath(file.partition(":")[0].strip()).name


def _rotated(path: PurePosixPath) -> str:
    """`slow.txt`, `slow.txt.1.gz` and `slow-20261130.txt.gz`."""
    stem, suffix = re.escape(path.stem), re.escape(path.suffix)
    return f"{stem}{_ROTATED}*{suffix}{_ROTATED}*~?"
