"""What a manifest records of a server, judged before any of it reaches a command line, an option file or SQL.

Knows: how each setting, name, path and position of a real server looks, and which plugin libraries servers come with.
All of it is a stranger's: whoever owns the storage may have written it.

What fits is given on; what does not is refused with a sentence, because nobody can tell what it was meant to do. A
setting that is not known here is left out, so that a newer backupd may record more of them; and so is one that only
moments need and that does not fit, for servers show more than anybody has seen, and restores do without: see `MISFITS`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Final

from backupd.mysql.server_logs import LOG_SETTINGS
from backupd.policy import gtid
from backupd.policy.log_modes import MISFITS, ONLY_OF_MOMENTS
from backupd.policy.time_zones import is_zone_name
from backupd.vocabulary.errors import ServerError, Unreadable
from backupd.vocabulary.records import RUN_ID
from backupd.vocabulary.servers import Position, ReplicaPosition, ServerFacts
from backupd.vocabulary.storage import Manifest

_LONGEST = 4096  # bytes of a path (PATH_MAX), and more than any of these settings needs
_HINT = "something other than backupd wrote it: use another backup, and find out who can write to the target"
_PLUGIN_HINT = "if you know where it comes from, start a server on a restored copy by hand, on a separate machine"

# What comes with MariaDB and MySQL, of the kinds that are recorded: engines, keys, compression, types. Of what loads
# at the server's start nothing else is needed by files.
_LIBRARIES: Final = frozenset(
    {
        *("ha_archive.so", "ha_blackhole.so", "ha_connect.so", "ha_example.so", "ha_federated.so", "ha_federatedx.so"),
        *("ha_mock.so", "ha_mroonga.so", "ha_oqgraph.so", "ha_rocksdb.so", "ha_s3.so", "ha_sphinx.so", "ha_spider.so"),
        *("ha_tokudb.so", "ha_columnstore.so", "ha_innodb.so", "ha_archive_mock.so"),
        *("file_key_management.so", "hashicorp_key_management.so", "aws_key_management.so"),
        *("keyring_file.so", "keyring_encrypted_file.so", "keyring_udf.so"),
        *("provider_bzip2.so", "provider_lz4.so", "provider_lzma.so", "provider_lzo.so", "provider_snappy.so"),
        *("type_mysql_json.so", "type_mysql_timestamp.so", "type_inet.so", "type_uuid.so"),
    }
)
# Theirs as well: how accounts log in, which a log may create, and how FULLTEXT indexes find words.
_OPTIONAL_LIBRARIES: Final = frozenset(
    {
        *("auth_ed25519.so", "auth_gssapi.so", "auth_mysql_sha2.so", "auth_pam.so", "auth_pam_v1.so", "auth_parsec.so"),
        *("auth_socket.so", "authentication_fido.so", "authentication_kerberos.so", "authentication_ldap_sasl.so"),
        *("authentication_ldap_simple.so", "authentication_oci.so", "authentication_pam.so"),
        *("authentication_webauthn.so", "mysql_no_login.so", "libpluginmecab.so"),
    }
)
# Theirs as well, without any effect on files; some listen or reach out.
_IDLE_LIBRARIES: Final = frozenset(
    {
        *("handlersocket.so", "group_replication.so", "semisync_master.so", "semisync_slave.so", "rewriter.so"),
        *("semisync_source.so", "semisync_replica.so", "ddl_rewriter.so", "version_token.so", "locking_service.so"),
        *("mysqlx.so", "daemon_example.so", "libdaemon_example.so", "test_services.so", "func_test.so", "type_test.so"),
        *("mysql_clone.so", "connection_control.so", "validate_password.so", "server_audit.so", "audit_log.so"),
    }
)

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII | re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,20}[KMGT]?", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_SWITCH = re.compile(r"ON|OFF|ON_PERMISSIVE|OFF_PERMISSIVE|WARN|FORCE|0|1", re.ASCII)
_NO_PLACE = "INVALID"  # MySQL's word where a channel goes by GTIDs alone, in early backups
_CIPHER = re.compile(r"aes-[0-9]{3}-[a-z0-9]{3,8}", re.ASCII | re.IGNORECASE)
_OPERATORS = re.compile(r"[ -~]{14,15}", re.ASCII)
_INNODB_TABLE = re.compile(r"[^/;]{1,192}/[^/;]{1,192}")
_BINLOG = re.compile(r"""[^/\\'"`;]{1,200}\.[0-9]{6,10}""")
_PLUGIN = re.compile(r"[A-Za-z0-9_-]{1,64}\.so", re.ASCII)
_TABLESPACE = re.compile(r" *[^:;]+:[0-9]{1,19}[KMGkmg]?(?::autoextend(?::max:[0-9]{1,19}[KMGkmg]?)?)? *", re.ASCII)


def judged(manifest: Manifest) -> Manifest:
    """The same manifest, all of whose words about the server may be put on a line: a path's may lie anywhere.

    Raises:
        Unreadable: naming the first that no server has, or that does not print on one line.
    """
    _require(RUN_ID.fullmatch(manifest.run_id) is not None, "run_id", manifest.run_id)
    for name in ("job", "host", "machine", "volume"):
        _require(is_printable_line(getattr(manifest, name)), name, getattr(manifest, name))
    _require(is_path(manifest.datadir), "datadir", manifest.datadir)
    known = not manifest.locked or manifest.position.binlog_file is None or manifest.position.binlog_offset is not None
    _require(known, "position.binlog_offset", None)
    if manifest.binlog is not None:
        _require(is_path(manifest.binlog) and is_binlog(PurePosixPath(manifest.binlog).name), "binlog", manifest.binlog)
    return replace(manifest, server=_server(manifest.server), position=judged_position(manifest.position))


def judged_position(position: Position) -> Position:
    """A position in which each binlog has a binlog's name, and each GTID set is one, on one line.

    Raises:
        Unreadable: naming what is none.
    """
    file = position.binlog_file
    _require(file is None or is_binlog(file), "position.binlog_file", file)
    _require((position.binlog_offset or 0) >= 0, "position.binlog_offset", position.binlog_offset)
    found = None if position.gtid is None else _gtids(position.gtid, "position.gtid")
    return replace(position, gtid=found, replicas=tuple(map(_replica, position.replicas)))


def libraries(facts: ServerFacts) -> tuple[str, ...]:
    """The plugin libraries that the files may need, by their bare names: the local server looks for them at home.

    An optional one that is not known here is left out: most tables and accounts do without, and a server starts.

    Raises:
        ServerError: one is none that servers come with; it may do anything, and is of this host's making at best.
    """
    named = tuple(filter(None, facts.settings.get("plugin_libraries", "").split(",")))
    for name in named:
        if name not in _LIBRARIES | _IDLE_LIBRARIES:
            raise ServerError(
                f"the manifest names a plugin library that is not part of any server: {name!r:.80}", hint=_PLUGIN_HINT
            )
    optional = facts.settings.get("optional_libraries", "").split(",")
    known = [name for name in named if name in _LIBRARIES]
    return tuple(dict.fromkeys([*known, *(name for name in optional if name in _LIBRARIES | _OPTIONAL_LIBRARIES)]))


def is_printable_line(text: str) -> bool:
    """Whether a setting may be so: short, and stricter than `escaping.is_one_line`, for it is written into options."""
    return len(text) <= _LONGEST and text.isprintable()


def is_path(text: str) -> bool:
    """Whether it can be a path. Nothing is said of where it leads: see `Relocation`."""
    return is_printable_line(text)


def is_binlog(name: str) -> bool:
    """Whether a binlog file may be called so; it needs no quoting anywhere but in a shell."""
    return is_printable_line(name) and _BINLOG.fullmatch(name) is not None


def _server(facts: ServerFacts) -> ServerFacts:
    _require(is_printable_line(facts.version), "server.version", facts.version)
    for name in ("datadir", "binlog_basename", "socket"):
        path: Path | None = getattr(facts, name)
        _require(path is None or is_path(str(path)), f"server.{name}", path)
    _require(facts.datadir.is_absolute(), "server.datadir", facts.datadir)
    known = {name: value for name, value in facts.settings.items() if name in _SETTINGS}
    misfits = [name for name, value in known.items() if value and not _SETTINGS[name](value)]
    for name in misfits:
        _require(name in ONLY_OF_MOMENTS, f"server.settings.{name}", known[name])
        del known[name]
    return replace(facts, settings=known | ({MISFITS: ",".join(misfits)} if misfits else {}))


def _replica(channel: ReplicaPosition) -> ReplicaPosition:
    file = "" if channel.source_log_file == _NO_PLACE else channel.source_log_file
    _require(is_printable_line(channel.channel), "position.replicas.channel", channel.channel)
    _require(file == "" or is_binlog(file), "position.replicas.source_log_file", file)
    return replace(channel, source_log_file=file, gtid=_gtids(channel.gtid, "position.replicas.gtid"))


def _gtids(text: str, where: str) -> str:
    """Early backups have MySQL's line breaks in it."""
    one_line = "".join(text.split())
    _require(gtid.is_set(one_line), where, text)
    return one_line


def _require(holds: bool, where: str, value: object) -> None:
    if not holds:
        raise Unreadable(f"the manifest's {where} has an invalid value: {value!r:.80}", hint=_HINT)


def _like(pattern: "re.Pattern[str]") -> Callable[[str], bool]:
    return lambda value: pattern.fullmatch(value) is not None


def _are(each: Callable[[str], bool], separator: str) -> Callable[[str], bool]:
    return lambda value: all(each(item) for item in value.split(separator) if item)


def _is_library(name: str) -> bool:
    return _PLUGIN.fullmatch(name) is not None


def _is_innodb_table(name: str) -> bool:
    return is_printable_line(name) and _INNODB_TABLE.fullmatch(name) is not None


def _is_absolute(path: str) -> bool:
    return is_path(path) and path.startswith("/")


_number, _word, _switch = _like(_NUMBER), _like(_WORD), _like(_SWITCH)

_SETTINGS: Mapping[str, Callable[[str], bool]] = {
    **dict.fromkeys(LOG_SETTINGS, is_path),  # of which the name alone goes anywhere
    "aria_encrypt_tables": _switch,
    "aria_log_dir_path": is_path,
    "aria_log_file_size": _number,
    "aria_page_checksum": _switch,
    "automatic_sp_privileges": _switch,
    "binlog_encryption": _switch,
    "binlog_space_limit": _number,
    "block_encryption_mode": _like(_CIPHER),
    "character_set_server": _word,
    "collation_server": _word,
    "cte_max_recursion_depth": _number,
    "default_regex_flags": _are(_word, ","),
    "default_storage_engine": _word,
    "default_week_format": _number,
    "disabled_storage_engines": is_printable_line,  # as in the option file, blanks and all
    "div_precision_increment": _number,
    "encrypt_binlog": _switch,
    "encrypt_tmp_disk_tables": _switch,
    "encrypt_tmp_files": _switch,
    "enforce_gtid_consistency": _switch,
    "enforce_storage_engine": _word,
    "explicit_defaults_for_timestamp": _switch,
    "external_tablespaces": _are(_is_absolute, "\n"),
    "file_key_management_encryption_algorithm": _word,
    "file_key_management_filekey": is_printable_line,
    "file_key_management_filekey_is_withheld": _switch,
    "file_key_management_filename": is_path,
    "group_concat_max_len": _number,
    "gtid_domain_id": _number,
    "gtid_mode": _switch,
    "innodb_checksum_algorithm": _word,
    "innodb_compression_default": _switch,
    "innodb_data_file_path": lambda value: is_printable_line(value) and _are(_like(_TABLESPACE), ";")(value),
    "innodb_data_home_dir": is_path,
    "innodb_directories": _are(is_path, ";"),
    "innodb_doublewrite_dir": is_path,
    "innodb_default_encryption_key_id": _number,
    "innodb_default_row_format": _word,
    "innodb_encrypt_log": _switch,
    "innodb_encrypt_tables": _switch,
    "innodb_encrypt_temporary_tables": _switch,
    "innodb_file_per_table": _switch,
    "innodb_flush_log_at_timeout": _number,
    "innodb_flush_log_at_trx_commit": _number,
    "ft_boolean_syntax": _like(_OPERATORS),
    "ft_max_word_len": _number,
    "ft_min_word_len": _number,
    "ft_query_expansion_limit": _number,
    "ft_stopword_file": is_path,
    "innodb_ft_enable_stopword": _switch,
    "innodb_ft_max_token_size": _number,
    "innodb_ft_min_token_size": _number,
    "innodb_ft_server_stopword_table": _is_innodb_table,
    "innodb_ft_user_stopword_table": _is_innodb_table,
    "innodb_log_file_size": _number,
    "innodb_log_files_in_group": _number,
    "innodb_log_group_home_dir": is_path,
    "innodb_page_size": _number,
    "innodb_redo_log_capacity": _number,
    "innodb_redo_log_encrypt": _word,  # Percona Server 8.0.16 to 8.0.29 had MASTER_KEY and KEYRING_KEY, too
    "innodb_undo_directory": is_path,
    "innodb_undo_log_encrypt": _switch,
    "innodb_undo_tablespaces": _number,
    "keyring_component": _word,
    "keyring_file_data": is_path,
    "log_bin_basename": is_path,
    "log_bin_index": is_path,
    "log_replica_updates": _switch,
    "log_slave_updates": _switch,
    "lower_case_table_names": _number,
    "max_allowed_packet": _number,
    "max_binlog_total_size": _number,
    "max_heap_table_size": _number,
    "max_points_in_geometry": _number,
    "max_recursive_iterations": _number,
    "max_sort_length": _number,
    "max_sp_recursion_depth": _number,
    "mecab_rc_file": is_path,
    "mhnsw_default_distance": _word,
    "mhnsw_default_m": _number,
    MISFITS: _are(_word, ","),
    "mysql56_temporal_format": _switch,
    "ngram_token_size": _number,
    "old_mode": _are(_word, ","),
    "old_passwords": _like(re.compile(r"ON|OFF|[0-2]", re.ASCII)),  # MySQL 5.7 has three
    "optional_libraries": is_printable_line,  # only those that are known here go anywhere
    "partial_revokes": _switch,
    "plugin_libraries": _are(_is_library, ","),
    "regexp_stack_limit": _number,
    "regexp_time_limit": _number,
    "relay_log_basename": is_path,
    "rocksdb_datadir": is_path,
    "rocksdb_wal_dir": is_path,
    "server_id": _number,
    "server_uuid": _like(_UUID),
    "standard_compliant_cte": _switch,
    "sync_binlog": _number,
    "system_time_zone": is_printable_line,
    "system_zone": is_zone_name,
    "thread_stack": _number,
    "time_zone": is_printable_line,
    "version": is_printable_line,
    "version_comment": is_printable_line,
    "windowing_use_high_precision": _switch,
}
