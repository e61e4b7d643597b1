"""Which program a scratch server is, and the command line that shows it the copy and nothing else.

Knows: how the recorded settings become options. Refuses to start anything but `--version`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from backupd import command
from backupd.errors import CommandError, ServerError
from backupd.model import Flavour, ServerFacts
from backupd.mysql.facts import version_number
from backupd.mysql.relocation import Relocation

_PROGRAMS = {Flavour.MARIADB: ("mariadbd", "mysqld")}

# Recorded settings without which the server does not start, or reads the files wrongly.
_CARRIED_OVER = (
    "innodb_page_size",
    "innodb_undo_tablespaces",
    "innodb_log_file_size",
    "innodb_checksum_algorithm",
    "lower_case_table_names",
    "character_set_server",
    "collation_server",
    "file_key_management_filename",
    "file_key_management_filekey",
    "file_key_management_encryption_algorithm",
)

_ALWAYS = (
    "--skip-grant-tables",
    "--skip-networking",
    "--skip-slave-start",
    "--event-scheduler=OFF",
    "--server-id=4294967000",
    "--loose-wsrep-on=OFF",
    "--loose-wsrep-provider=none",
    "--loose-feedback=OFF",
    "--performance-schema=OFF",
    "--innodb-buffer-pool-size=128M",
    "--loose-innodb-buffer-pool-size-max=128M",  # else newer servers reserve address space for the machine's RAM
    "--innodb-buffer-pool-load-at-startup=OFF",
    "--innodb-buffer-pool-dump-at-shutdown=OFF",
    "--innodb-flush-log-at-trx-commit=2",
    "--aria-pagecache-buffer-size=16M",
    "--key-buffer-size=16M",
    "--myisam-recover-options=OFF",  # a table that needs repair must be seen, not repaired when it is opened
    "--aria-recover-options=OFF",
    "--max-connections=10",
    "--log-warnings=2",
)


@dataclass(frozen=True, slots=True)
class ScratchPlaces:
    """Files of a scratch server that are not of the copy; all in one folder that only its owner can enter."""

    folder: Path

    @property
    def socket(self) -> Path:
        """The only way in."""
        return self.folder / "s"

    @property
    def error_log(self) -> Path:
        """MariaDB appends `.err` to a name that has no ending."""
        return self.folder / "log.err"

    @property
    def binlog_index(self) -> Path:
        """Ours, because the copy's own may name the live server's binlogs by absolute paths."""
        return self.folder / "binlog.index"


def matching_program(facts: ServerFacts) -> str:
    """The server program of the recorded flavour and series; crash recovery is promised by no other.

    Raises:
        ServerError: there is none, or it is of another series.
    """
    found = []
    for program in filter(command.found, _PROGRAMS.get(facts.flavour, ())):
        try:
            said = command.run([program, "--no-defaults", "--version"], timeout_seconds=30).stdout
        except CommandError as error:
            raise ServerError(f"cannot ask {program} for its version: {error.message}") from error
        version = said.partition(" Ver ")[2].split(" ")[0]
        if version_number(version)[:2] == facts.version_number[:2]:
            return program
        found.append(f"{program} {version}")
    series = ".".join(map(str, facts.version_number[:2]))
    raise ServerError(
        f"no {facts.flavour} {series} server is installed here; found: {', '.join(found) or 'none'}",
        hint=f"install the server program of the series that was backed up ({facts.version})",
    )


def server_argv(
    program: str, relocation: Relocation, facts: ServerFacts, places: ScratchPlaces, binlog: Path | None
) -> list[str]:
    """The command line of a server that sees the copy and nothing else.

    Raises:
        ServerError: it used paths that are not in the backup.
    """
    carried = [
        f"--loose-{name.replace('_', '-')}={facts.settings[name]}" for name in _CARRIED_OVER if facts.settings.get(name)
    ]
    libraries = [f"--plugin-load-add={name}" for name in facts.settings.get("plugin_libraries", "").split(",") if name]
    return [
        *(program, "--no-defaults", *_ALWAYS, f"--datadir={relocation.datadir}"),
        *(f"--socket={places.socket}", f"--pid-file={places.folder}/pid", f"--tmpdir={places.folder}"),
        *(f"--log-error={places.error_log}", *_innodb_paths(relocation, facts)),
        f"--aria-log-dir-path={relocation.moved(facts.settings.get('aria_log_dir_path', ''))}",
        *(f"--relay-log={places.folder}/relay", f"--relay-log-index={places.folder}/relay.index"),
        *(f"--relay-log-info-file={places.folder}/relay-log.info", f"--master-info-file={places.folder}/master.info"),
        *_binlog_options(places, binlog),
        *carried,
        *libraries,
    ]


def _innodb_paths(relocation: Relocation, facts: ServerFacts) -> Iterator[str]:
    settings = facts.settings
    yield f"--innodb-log-group-home-dir={relocation.moved(settings.get('innodb_log_group_home_dir', ''))}"
    yield f"--innodb-undo-directory={relocation.moved(settings.get('innodb_undo_directory', ''))}"
    files = settings.get("innodb_data_file_path", "")
    if "/" in files:  # with full paths the home folder is empty, as the server wants it
        named = (item.strip().partition(":") for item in files.split(";"))
        yield "--innodb-data-home-dir="
        yield f"--innodb-data-file-path={';'.join(f'{relocation.moved(name)}:{rest}' for name, _, rest in named)}"
    else:
        yield f"--innodb-data-home-dir={relocation.moved(settings.get('innodb_data_home_dir', ''))}"
        if files:
            yield f"--innodb-data-file-path={files}"


def _binlog_options(places: ScratchPlaces, binlog: Path | None) -> Iterator[str]:
    """With the binlog, so that the server decides about prepared transactions as it would after a power cut."""
    if binlog is None:
        yield "--skip-log-bin"
        return
    yield f"--log-bin={binlog.with_suffix('')}"
    yield f"--log-bin-index={places.binlog_index}"
