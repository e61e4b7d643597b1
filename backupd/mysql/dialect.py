"""How the server of each flavour is told to see a copy and nothing else.

Knows: which options each has, and which of its recorded settings its files depend on.

Tried on MySQL 9.7.4 and MariaDB 10.11.19:
- MySQL keeps its channels and its group's settings in tables and in `mysqld-auto.cnf`, both of which are in the copy:
  hence no persisted globals, and no replica start under either of its names.
- MySQL without a folder for LOAD DATA refuses to start, unless an option says that it needs none.

Not tried: with `--upgrade=NONE` MySQL is said to abort on files of an older release of its own series; MINIMAL, which
was tried on files of the same one, upgrades what it must.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from backupd.vocabulary.servers import Flavour

# Of MariaDB: without these a page of an encrypted table is written in clear as soon as it changes, and so is its redo.
ENCRYPTING = (
    *("aria_encrypt_tables", "encrypt_binlog", "encrypt_tmp_disk_tables", "encrypt_tmp_files"),
    *("innodb_default_encryption_key_id", "innodb_encrypt_log", "innodb_encrypt_tables"),
    "innodb_encrypt_temporary_tables",
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What differs between the flavours when a scratch server is started."""

    programs: tuple[str, ...]
    always: tuple[str, ...]
    carried_over: tuple[str, ...]  # recorded settings without which it does not start, or reads the files wrongly
    folders: tuple[str, ...]  # settings that name folders of the copy; an empty one is the datadir
    in_own_folder: Mapping[str, str]  # options that name files which it must not look for in the copy


_BOTH = (
    "--skip-grant-tables",
    "--skip-networking",
    "--server-id=4294967000",
    "--performance-schema=OFF",
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-flush-log-at-trx-commit=2",
    "--key-buffer-size=16M",
    "--myisam-recover-options=OFF",  # a table that needs repair must be seen, not repaired when it is opened
    "--max-connections=10",
    "--wait-timeout=31536000",  # the most both take, a year: one session waits for as long as others work
)
_BOTH_CARRY = (
    "innodb_page_size",
    "innodb_log_file_size",
    "innodb_checksum_algorithm",
    "lower_case_table_names",
    "character_set_server",
    "collation_server",
    # Which words stand in FULLTEXT indexes: what is applied is indexed as what is there.
    "ft_max_word_len",
    "ft_min_word_len",
    "innodb_ft_enable_stopword",
    "innodb_ft_max_token_size",
    "innodb_ft_min_token_size",
    "innodb_ft_server_stopword_table",
    "innodb_ft_user_stopword_table",
    "ngram_token_size",
)
_BOTH_FOLDERS = ("innodb_log_group_home_dir", "innodb_undo_directory")
_BOTH_OWN = {"relay-log": "relay", "relay-log-index": "relay.index"}

DIALECTS: Mapping[Flavour, Dialect] = {
    Flavour.MARIADB: Dialect(
        programs=("mariadbd", "mysqld"),
        always=(
            *_BOTH,
            "--skip-slave-start",
            "--event-scheduler=OFF",
            "--loose-wsrep-on=OFF",
            "--loose-wsrep-provider=none",
            "--loose-feedback=OFF",
            "--aria-pagecache-buffer-size=16M",
            "--aria-recover-options=OFF",
            "--log-warnings=2",
        ),
        carried_over=(
            *_BOTH_CARRY,
            "innodb_undo_tablespaces",
            "gtid_domain_id",
            "file_key_management_filename",
            "file_key_management_filekey",
            "file_key_management_encryption_algorithm",
            *ENCRYPTING,
        ),
        folders=(*_BOTH_FOLDERS, "aria_log_dir_path"),
        in_own_folder={**_BOTH_OWN, "relay-log-info-file": "relay-log.info", "master-info-file": "master.info"},
    ),
    Flavour.MYSQL: Dialect(
        programs=("mysqld",),
        always=(
            *_BOTH,
            "--persisted-globals-load=OFF",
            "--loose-skip-slave-start",  # each series knows one of these names or both
            "--loose-skip-replica-start",
            "--event-scheduler=DISABLED",
            "--loose-binlog-expire-logs-seconds=0",  # what came with the files is not purged for its age
            "--mysqlx=OFF",
            "--secure-file-priv=NULL",
            "--loose-mysql-native-password=ON",  # 8.4 has it OFF, and 9 none: a log may create such accounts
            "--upgrade=MINIMAL",
            "--log-error-verbosity=3",  # the recovered LSN is a note
        ),
        carried_over=(
            *_BOTH_CARRY,
            "innodb_log_files_in_group",
            "innodb_redo_log_capacity",
            "innodb_redo_log_encrypt",  # of an encrypted table's pages, too, the log is written in clear without it
            "innodb_undo_log_encrypt",
            "gtid_mode",
            "enforce_gtid_consistency",
            "mecab_rc_file",  # without its dictionary a parser of FULLTEXT does not load, nor a table with it open
        ),
        folders=(*_BOTH_FOLDERS, "innodb_doublewrite_dir"),
        in_own_folder=_BOTH_OWN,
    ),
}
