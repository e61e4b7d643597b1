"""The command line that shows a scratch server the copy and nothing else.

Knows: how the recorded settings become options, for a scratch server and for a replica that is to live on the copy.
Refuses to start anything.
"""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from backupd.host import process
from backupd.mysql.aria_control import aria_block_size
from backupd.mysql.dialect import DIALECTS
from backupd.mysql.facts import external_tablespaces, key_files, lacks_key_password
from backupd.mysql.recorded import libraries
from backupd.mysql.recovery import buffer_pool_bytes, memory_available, redo_bytes
from backupd.mysql.relocation import NOT_HERE, Relocation
from backupd.mysql.scratch_places import ScratchPlaces
from backupd.mysql.server_programs import ServerProgram
from backupd.policy.log_modes import DECIDING, OLD_MODE
from backupd.vocabulary.errors import KeyUnreadable, ServerError
from backupd.vocabulary.servers import Flavour, ServerFacts

RELAY_LOG = "replica-relay-bin"  # of a seeded replica: its info files name it, so it may not depend on the host's name
RELAY_FOLDER = "backupd-relay-logs"  # of a copy: what is to be applied to it
_ENCRYPTING = "innodb_encrypt_tables"
_STOPWORDS = "ft_stopword_file"
_BUILT_IN = "(built-in)"  # what both servers say where they were given no file
_OF_ROCKSDB = ("rocksdb_datadir", "rocksdb_wal_dir")  # without its log it starts, and lacks what was only there


def server_argv(
    program: ServerProgram,
    relocation: Relocation,
    facts: ServerFacts,
    places: ScratchPlaces,
    binlog: Path | None,
    *,
    seeding: bool = False,
    applying: bool = False,
) -> list[str]:
    """The command line of a server that sees the copy and nothing else.

    With `seeding` what it is told about replication is written into the copy. Else it looks for that in an empty
    folder, so that a drill can never begin to replicate. With `applying` it has the relay logs of the copy's own folder
    for them.

    Raises:
        ServerError: it used paths that are not in the backup.
    """
    dialect = DIALECTS[facts.flavour]
    pool = buffer_pool_bytes(redo_bytes(facts), available=memory_available())
    elsewhere = {option: places.folder / name for option, name in dialect.in_own_folder.items()}
    relay = [f"--relay-log={RELAY_LOG}"] if seeding else [f"--{option}={path}" for option, path in elsewhere.items()]
    return [
        *(*program.argv, *dialect.always),
        f"--innodb-buffer-pool-size={pool}",
        f"--loose-innodb-buffer-pool-size-max={pool}",  # else newer MariaDB reserves address space for all RAM
        *(f"--socket={places.socket}", f"--pid-file={places.folder}/pid", f"--tmpdir={places.folder}"),
        *relay,
        f"--log-error={places.error_log}",
        *_file_statements(facts.flavour, places),
        *_binlog_options(places, binlog),
        *file_options(relocation, facts),
        *(_applying_options(relocation, facts) if applying else ()),
    ]


def _applying_options(relocation: Relocation, facts: ServerFacts) -> Iterator[str]:
    """The last that is said counts. What is applied is written to no binlog, and no log of ours is anybody's source.

    A table that was created without an engine gets that which it had on the source, and `utf8` is what it was there.
    SYSDATE() is the time of the event, for no log tells what the clock said then.
    Whatever MySQL's `gtid_mode` was at the backup, the log may have transactions with and without a GTID: it can be
    changed while the server runs.
    """
    folder = relocation.folder / RELAY_FOLDER
    yield f"--relay-log={folder / 'relay'}"
    yield f"--relay-log-index={folder / 'relay.index'}"
    yield "--relay-log-purge=ON"  # a log that has been applied takes no room
    yield "--loose-log-slave-updates=OFF"
    yield "--loose-log-replica-updates=OFF"
    # No log has these: what the source took with a warning, and whatever it let people create, is no error here.
    yield "--loose-innodb-strict-mode=OFF"
    yield "--loose-log-bin-trust-function-creators=ON"
    yield "--loose-restrict-fk-on-non-standard-key=OFF"
    yield "--loose-sysdate-is-now"
    yield "--loose-skip-symbolic-links"  # MariaDB: what has a DATA DIRECTORY in the log is made in the copy, all of it
    if facts.settings.get(_ENCRYPTING) == "FORCE":  # it may have been ON, and ENCRYPTED=NO, while the log was written
        yield f"--loose-{_option(_ENCRYPTING)}=ON"
    if facts.flavour is Flavour.MYSQL:
        yield "--gtid-mode=OFF_PERMISSIVE"
    if engine := facts.settings.get("default_storage_engine"):
        yield f"--default-storage-engine={engine}"
    if (mode := facts.settings.get(OLD_MODE)) is not None:
        yield f"--loose-old-mode={mode}"
    for name in DECIDING:
        if value := facts.settings.get(name):
            yield f"--loose-{_option(name)}={value}"


def folders_of(relocation: Relocation, facts: ServerFacts) -> tuple[Path, ...]:
    """The folders of the copy, beside its datadir, in which the server is told to look for files.

    Raises:
        ServerError: the recorded server used paths that are not in the backup.
    """
    named = (facts.settings.get(name, "") for name in (*DIALECTS[facts.flavour].folders, *_OF_ROCKSDB))
    moved = {relocation.moved(path) for path in (*named, facts.settings.get("innodb_data_home_dir", "")) if path}
    moved |= _folders_of_tablespaces(relocation, facts)
    return tuple(filter(relocation.is_folder, sorted(moved)))


def file_options(relocation: Relocation, facts: ServerFacts) -> list[str]:
    """What any server needs to be told that is to read these files, wherever else it finds its settings.

    Raises:
        ServerError: the recorded server used paths that are not in the backup.
    """
    dialect, settings = DIALECTS[facts.flavour], facts.settings
    return [
        f"--datadir={relocation.datadir}",
        *(f"--{_option(name)}={relocation.moved(settings.get(name, ''))}" for name in dialect.folders),
        *(f"--loose-{_option(name)}={relocation.moved(settings[name])}" for name in _OF_ROCKSDB if settings.get(name)),
        *_system_tablespace(relocation, settings),
        *_external_tablespaces(relocation, facts),
        *(f"--loose-{_option(name)}={settings[name]}" for name in dialect.carried_over if settings.get(name)),
        *_stopword_file(relocation, settings),
        *_aria_pages(relocation, facts),
        *(f"--plugin-load-add={name}" for name in libraries(facts)),
    ]


def stopwords_doubt(facts: ServerFacts) -> str:
    """Why words may be indexed otherwise than the server did; empty: its file of stopwords is here, or it had none.

    A server goes without a file that it cannot read, and says nothing.
    """
    named = facts.settings.get(_STOPWORDS, "")
    file = facts.datadir / named
    if named in (_BUILT_IN, "") or file.is_relative_to(facts.datadir) or os.access(file, os.R_OK):
        return ""
    return (
        f"the server's ft_stopword_file {file} is not here: FULLTEXT indexes of MyISAM tables may be damaged by the log"
    )


def require_keys(facts: ServerFacts, reader: Sequence[str] = ()) -> None:
    """The key files are where the server had them, and who runs behind `reader` may read them.

    Raises:
        KeyUnreadable: they may not; names the first.
        ServerError: naming the first that is not there, or that the password of one is nowhere. Without it the server
            would fail over some page, in other words; a keyring component would go on with a new and empty file.
    """
    for file in key_files(facts):
        if not file.is_file():
            raise ServerError(
                f"the key file {file} is not here: the backup's encrypted data cannot be read",
                hint="put the key back where the server had it: a backup must not contain it",
            )
        if process.run([*reader, "test", "-r", str(file)], timeout_seconds=30, accept=(0, 1)).status != 0:
            raise KeyUnreadable(
                f"the key file {file} cannot be read as the owner of the restored files",
                hint="the server's account, which owns the files, must be able to read the keys",
            )
    if lacks_key_password(facts):
        raise ServerError(
            "the password of the server's key file is not in the backup: encrypted data cannot be read here",
            hint="give it to the server in a separate file, then back up: file_key_management_filekey = FILE:/PATH",
        )


def require_tablespaces(relocation: Relocation, facts: ServerFacts) -> None:
    """None of MySQL's tablespaces outside of the datadir is missing from the copy while the live one is here.

    Raises:
        ServerError: naming the first: by the path in its dictionary the server would open the live file, and write it.
    """
    for file in external_tablespaces(facts):
        if Path(file).exists() and not relocation.moved(file).exists():
            raise ServerError(f"tablespace {file} is not in the restored copy, and the live one is here", hint=NOT_HERE)


def require_no_live_tablespace(error_log: str) -> None:
    """MySQL did not go by a path of its dictionary: it warns of a file that is in none of the folders it was given.

    Raises:
        ServerError: naming the first such file. End the server now: it has it open.
    """
    found = re.search(r"\[MY-012177\] \[InnoDB\] The datafile '([^']*)'", error_log)
    if found is not None:
        raise ServerError(
            (f"the server on the restored files opened {found[1]}, which is not one of them"), hint=NOT_HERE
        )


def _file_statements(flavour: Flavour, places: ScratchPlaces) -> Iterator[str]:
    """LOAD DATA INFILE, LOAD_FILE() and the like reach no file of the host: MariaDB has no NULL for that."""
    if flavour is Flavour.MARIADB:
        yield f"--secure-file-priv={places.folder}"


def _option(setting: str) -> str:
    return setting.replace("_", "-")


def _system_tablespace(relocation: Relocation, settings: Mapping[str, str]) -> Iterator[str]:
    files = settings.get("innodb_data_file_path", "")
    if "/" in files:  # with full paths the home folder is empty, as the server wants it
        named = (item.strip().partition(":") for item in files.split(";"))
        yield "--innodb-data-home-dir="
        yield f"--innodb-data-file-path={';'.join(f'{relocation.moved(name)}:{rest}' for name, _, rest in named)}"
    else:
        yield f"--innodb-data-home-dir={relocation.moved(settings.get('innodb_data_home_dir', ''))}"
        if files:
            yield f"--innodb-data-file-path={files}"


def _stopword_file(relocation: Relocation, settings: Mapping[str, str]) -> Iterator[str]:
    """Where it is in the copy, or else on this host. Empty is a value as any other: there are no stopwords."""
    file = settings.get(_STOPWORDS, _BUILT_IN)
    if file == _BUILT_IN:
        return
    if file:
        with contextlib.suppress(ServerError):
            file = str(relocation.moved(file))
    yield f"--ft-stopword-file={file}"


def _aria_pages(relocation: Relocation, facts: ServerFacts) -> Iterator[str]:
    if facts.flavour is Flavour.MARIADB:
        size = aria_block_size(relocation, relocation.moved(facts.settings.get("aria_log_dir_path", "")))
        if size is not None:
            yield f"--aria-block-size={size}"


def _external_tablespaces(relocation: Relocation, facts: ServerFacts) -> Iterator[str]:
    """MySQL's dictionary has absolute paths; a file that is found in these folders goes before its recorded path."""
    if facts.flavour is Flavour.MYSQL:
        folders = filter(relocation.is_folder, sorted(_folders_of_tablespaces(relocation, facts)))
        yield f"--innodb-directories={';'.join(map(str, folders))}"


def _folders_of_tablespaces(relocation: Relocation, facts: ServerFacts) -> set[Path]:
    """Of the folders that the server searched those count that are in the backup: an empty one elsewhere is no loss,
    and of a tablespace in it the recorded path tells.
    """
    folders = {relocation.moved(file).parent for file in external_tablespaces(facts)}
    for searched in filter(None, facts.settings.get("innodb_directories", "").split(";")):
        with contextlib.suppress(ServerError):
            folders.add(relocation.moved(searched))
    return folders


def _binlog_options(places: ScratchPlaces, binlog: Path | None) -> Iterator[str]:
    """With the binlog, so that the server decides about prepared transactions as it would after a power cut."""
    if binlog is None:
        yield "--skip-log-bin"
        return
    yield f"--log-bin={binlog.with_suffix('')}"
    yield f"--log-bin-index={places.binlog_index}"
