"""What kind of server it is: asked for, never guessed from its version's text.

Knows: which variables tell what.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from backupd.mysql import redo
from backupd.mysql.dialect import ENCRYPTING
from backupd.mysql.positions import replica_status
from backupd.mysql.replication import cluster_of
from backupd.mysql.server_logs import LOG_SETTINGS
from backupd.mysql.session import Session, StatementError
from backupd.mysql.system_zone import system_zone
from backupd.policy.log_modes import DECIDING, OF_ENGINES, OLD_MODE
from backupd.policy.log_zone import SYSTEM_ZONE
from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.servers import Flavour, ServerFacts

ENCRYPTION_HEADER = 512  # bytes of a binlog file of MySQL's; see `binlog_header`

_ONLY_MARIADB = "aria_block_size"

# What a server needs to be told to start on a copy of these files; recorded with every backup.
_RECORDED = (
    *DECIDING,
    *ENCRYPTING,
    *LOG_SETTINGS,
    *OF_ENGINES,
    "aria_log_dir_path",
    "aria_log_file_size",
    "binlog_encryption",
    "binlog_space_limit",
    "character_set_server",
    "collation_server",
    "default_storage_engine",
    "ft_max_word_len",
    "ft_min_word_len",
    "ft_stopword_file",
    "innodb_checksum_algorithm",
    "innodb_data_file_path",
    "innodb_data_home_dir",
    "innodb_directories",
    "innodb_doublewrite_dir",
    "enforce_gtid_consistency",
    "gtid_mode",
    "innodb_flush_log_at_timeout",
    "innodb_flush_log_at_trx_commit",
    "innodb_ft_enable_stopword",
    "innodb_ft_max_token_size",
    "innodb_ft_min_token_size",
    "innodb_ft_server_stopword_table",
    "innodb_ft_user_stopword_table",
    "innodb_log_file_size",
    "innodb_log_files_in_group",
    "innodb_log_group_home_dir",
    "innodb_page_size",
    "innodb_redo_log_capacity",
    "innodb_redo_log_encrypt",
    "innodb_undo_directory",
    "innodb_undo_log_encrypt",
    "innodb_undo_tablespaces",
    "file_key_management_encryption_algorithm",
    "file_key_management_filekey",
    "file_key_management_filename",
    "gtid_domain_id",
    "keyring_file_data",
    "log_bin_basename",
    "log_bin_index",
    "log_replica_updates",
    "log_slave_updates",
    "lower_case_table_names",
    "max_binlog_total_size",
    "mecab_rc_file",
    "ngram_token_size",
    OLD_MODE,
    "plugin_dir",
    "relay_log_basename",
    "rocksdb_datadir",
    "rocksdb_wal_dir",
    "server_id",
    "server_uuid",
    "sync_binlog",
    "system_time_zone",
    "time_zone",
    "version",
    "version_comment",
)

_LOADED_PLUGINS = """
    SELECT GROUP_CONCAT(DISTINCT
        IF(PLUGIN_TYPE IN ('AUTHENTICATION', 'FTPARSER'), NULL, PLUGIN_LIBRARY) ORDER BY PLUGIN_LIBRARY) AS libraries,
    GROUP_CONCAT(DISTINCT
        IF(PLUGIN_TYPE IN ('AUTHENTICATION', 'FTPARSER'), PLUGIN_LIBRARY, NULL) ORDER BY PLUGIN_LIBRARY) AS others,
    GROUP_CONCAT(DISTINCT IF(PLUGIN_TYPE = 'STORAGE ENGINE', PLUGIN_NAME, NULL) ORDER BY PLUGIN_NAME) AS engines
    FROM information_schema.PLUGINS WHERE PLUGIN_STATUS = 'ACTIVE'
    AND PLUGIN_TYPE IN ('STORAGE ENGINE', 'ENCRYPTION', 'DATA TYPE', 'FUNCTION', 'DAEMON', 'AUTHENTICATION', 'FTPARSER')
"""
_ENGINES = "storage_engines"  # a setting: those that are active
_ROWS_ELSEWHERE = {  # engines by their plugins' names: on other servers, in object storage, in folders of their own
    "COLUMNSTORE": "ColumnStore",
    "FEDERATED": "FEDERATED",
    "NDBCLUSTER": "NDB",
    "S3": "S3",
    "SPIDER": "Spider",
}


# MySQL's dictionary keeps absolute paths of what is outside of its datadir, and a server on a copy
# opens the live file by them unless it finds another one first (tried on 9.7.4).
_EXTERNAL_TABLESPACES = """
    SELECT FILE_NAME AS file FROM information_schema.FILES
    WHERE ENGINE = 'InnoDB' AND FILE_NAME LIKE '/%' AND TABLESPACE_NAME <> 'innodb_temporary' ORDER BY FILE_NAME
"""
_EXTERNAL = "external_tablespaces"

KEYRING_COMPONENT = "keyring_component"  # a setting
_KEYRING = "SELECT STATUS_KEY AS k, STATUS_VALUE AS v FROM performance_schema.keyring_component_status"
_FILEKEY = "file_key_management_filekey"
_WITHHELD = "file_key_management_filekey_is_withheld"  # a setting: the password itself stood there
_KEY_FILES = ("file_key_management_filename", _FILEKEY, "keyring_file_data")


def flavour_of(session: Session) -> Flavour:
    """Whose server it is.

    Raises:
        ServerError: the session is over.
    """
    return Flavour.MARIADB if session.query(f"SHOW GLOBAL VARIABLES LIKE '{_ONLY_MARIADB}'") else Flavour.MYSQL


def server_facts(session: Session) -> ServerFacts:
    """Everything that `ServerFacts` has, by asking this server.

    Raises:
        ServerError: it cannot be asked.
    """
    variables = session.variables()
    return ServerFacts(
        flavour=Flavour.MARIADB if _ONLY_MARIADB in variables else Flavour.MYSQL,
        version=variables["version"],
        version_number=version_number(variables["version"]),
        datadir=Path(variables["datadir"]),
        socket=Path(variables["socket"]) if variables.get("socket") else None,
        binlog_basename=_binlog_basename(variables),
        binlog_expire_seconds=expire_seconds(variables),
        # MariaDB has NO_LOCK and NO_LOCK_NO_ADMIN beside ON, from 12.0 on (MDEV-36425).
        read_only=any(variables.get(name, "OFF") not in ("OFF", "0") for name in ("read_only", "super_read_only")),
        is_replica=is_replica(session),
        redo_logging=not redo.is_disabled(session.query(redo.ENABLED)),
        page_size=int(variables["innodb_page_size"]),
        settings=_settings(session, variables),
        cluster=cluster_of(session, variables),
    )


def version_number(version: str) -> tuple[int, int, int]:
    """`10.11.19-MariaDB-…` as numbers.

    Raises:
        ServerError: it does not begin with three numbers.
    """
    found = re.match(r"(\d+)\.(\d+)\.(\d+)", version)
    if found is None:
        raise ServerError(f"the server's version cannot be read: {version!r}", hint="is it a MariaDB or MySQL server?")
    major, minor, patch = found.groups()
    return int(major), int(minor), int(patch)


def external_tablespaces(facts: ServerFacts) -> tuple[str, ...]:
    """The absolute paths of MySQL's tablespaces outside of its datadir when the backup was taken."""
    return tuple(filter(None, facts.settings.get(_EXTERNAL, "").split("\n")))


def key_files(facts: ServerFacts) -> tuple[Path, ...]:
    """The files without which encrypted tables, logs and binlogs cannot be read: referred to, never looked into."""
    named = (facts.settings.get(name, "") for name in _KEY_FILES)
    return tuple(facts.datadir / path for name in named if (path := name.removeprefix("FILE:")).startswith(("/", ".")))


def lacks_key_password(facts: ServerFacts) -> bool:
    """The password of the key file was written in the server's own settings, and so is nowhere in the backup."""
    return facts.settings.get(_WITHHELD) == "ON"


def engines_elsewhere(facts: ServerFacts) -> tuple[str, ...]:
    """The engines that this server has and whose rows no snapshot of its datadir shows.

    Whether there are tables of them nobody tells us: of INFORMATION_SCHEMA an account sees the tables that it may read.
    """
    engines = facts.settings.get(_ENGINES, "").upper().split(",")
    return tuple(name for plugin, name in _ROWS_ELSEWHERE.items() if plugin in engines)


def binlog_header(facts: ServerFacts) -> int:
    """Bytes of a binlog file that come before what positions count: MySQL's header of an encrypted one.

    Seen on 9.7.4: position 1080 in a file of 1592 bytes. MariaDB encrypts the events in their places.
    """
    return ENCRYPTION_HEADER if facts.settings.get("binlog_encryption") == "ON" else 0


def binlog_limit(settings: Mapping[str, str]) -> int:
    """Bytes of binlogs beyond which the oldest go, however young: MariaDB's from 11.4 on, and Percona's. 0: none."""
    return max(int(settings.get(name) or 0) for name in ("max_binlog_total_size", "binlog_space_limit"))


def expire_seconds(variables: Mapping[str, str]) -> int | None:
    """For how long the server keeps its binlogs; None is for ever.

    MariaDB (from 10.6) and MySQL (from 8.0.1) have both variables, kept in step or the seconds taking precedence;
    older servers have only the days. 0 is never.
    """
    seconds = int(variables.get("binlog_expire_logs_seconds", "0"))
    days = float(variables.get("expire_logs_days", "0"))
    if variables.get("binlog_expire_logs_auto_purge") == "OFF":  # MySQL from 8.0.29
        return None
    return seconds or round(days * 86400) or None


def is_replica(session: Session) -> bool:
    """Whether it follows a source. False too where the account may not ask: that privilege is missing, and where it is
    needed the grants' finding says so.
    """
    try:
        return bool(replica_status(session))
    except StatementError as error:
        if error.denied:
            return False
        raise


def _binlog_basename(variables: Mapping[str, str]) -> Path | None:
    basename = variables.get("log_bin_basename", "")
    return Path(basename) if variables.get("log_bin") == "ON" and basename else None


def _settings(session: Session, variables: Mapping[str, str]) -> Mapping[str, str]:
    recorded = {name: variables[name] for name in _RECORDED if name in variables}
    password = recorded.get(_FILEKEY, "")  # empty: the keys lie there in clear
    if password and not password.startswith("FILE:"):  # the password itself, which no backup is to hold
        recorded |= {_FILEKEY: "", _WITHHELD: "ON"}
    recorded[SYSTEM_ZONE] = system_zone(session)
    plugins = session.one(_LOADED_PLUGINS) or {}
    recorded |= {"plugin_libraries": plugins.get("libraries") or "", _ENGINES: plugins.get("engines") or ""}
    recorded["optional_libraries"] = plugins.get("others") or ""  # of accounts, and of some FULLTEXT indexes
    if _ONLY_MARIADB not in variables:
        recorded |= _keyring(session)
        recorded[_EXTERNAL] = "\n".join(row["file"] or "" for row in session.query(_EXTERNAL_TABLESPACES))
    return recorded


def _keyring(session: Session) -> Mapping[str, str]:
    """Of a keyring component its name and its file, never a key; under the name that 8.0's plugin has for the file.

    Nothing where there is none, or where the account may not ask: then the grants' finding says so.
    """
    try:
        told = {row["k"]: row["v"] or "" for row in session.query(_KEYRING)}
    except StatementError as error:
        if error.denied or error.unknown_here:
            return {}
        raise
    if told.get("Component_status") != "Active":
        return {}
    file = {"keyring_file_data": told["Data_file"]} if "Data_file" in told else {}
    return {KEYRING_COMPONENT: told["Component_name"], **file}
