"""A copy for others: restore a backup, run a person's SQL on it, and hand it over only if every statement ran.

Knows: what of a copy still has the original rows when they are gone from its tables: binlogs and relay logs, the
server's logs, and the logs of its engines. Refuses to promise what it cannot: free space within files that remain may
still hold what was there before.

Tried on MariaDB 10.11.19 and MySQL 9.7.4: after an UPDATE of every row, a full purge and a clean shutdown, the redo log
still has the old rows, all of them; a start with another size of the log writes it anew. Where they find none, MariaDB
begins another Aria log, and MySQL makes new doublewrite files.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import backupd
from backupd.host.filesystem import MORE_ROOM, opened_plain, write_beside
from backupd.mysql.recorded import judged
from backupd.mysql.relocation import Relocation, require_self_contained
from backupd.mysql.replica_files import SCRUBBED_OPTION_FILE, scrubbed_option_file
from backupd.mysql.scratch import ScratchServer
from backupd.mysql.scrubbing import Scrub, scrub
from backupd.mysql.server_logs import log_of, logs_doubt
from backupd.mysql.sql_file import SqlFile
from backupd.operations.restore.clonable_copy import clonable_copy
from backupd.operations.restore.moment.moment_copy import RollForward
from backupd.operations.restore.restored_copy import hand_over, remove_own_binlogs
from backupd.targets import BackupSource
from backupd.vocabulary.errors import ServerError, UsageError
from backupd.vocabulary.servers import ServerFacts
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

PROOF_FILE = "backupd-scrub.json"
WITHIN_SECONDS = 1800.0

_MAGIC = (b"\xfebin", b"\xfdbin")  # of a binlog or relay log; of an encrypted one of MySQL's
_NUMBERED = re.compile(r".+\.[0-9]{6,}")
_ARIA_LOG = re.compile(r"aria_log\.[0-9]+")
_DOUBLEWRITE = re.compile(r"#ib_[0-9]+_[0-9]+\.b?dblwr")
_WRITE_SETS = re.compile(r"galera\.cache|gcache\.page\.[0-9]+")  # Galera's, with rows: a node begins another
_ROCKSDB = ("#rocksdb", ".rocksdb")  # folders in which NAME.log is what no server starts without
_OF_ROCKSDB = ("rocksdb_datadir", "rocksdb_wal_dir")
_REDO_SIZES = ("8388608", "16777216")  # both small, and taken by both servers


@dataclass(frozen=True, slots=True)
class ScrubbedClone:
    """A folder in which a server for others can be started."""

    datadir: Path
    option_file: Path
    proof: Path
    scrub: Scrub


def scrubbed_clone(
    manifest: Manifest,
    sources: Sequence[BackupSource],
    files: Sequence[SqlFile],
    *,
    to: Path,
    forward: RollForward | None = None,
    within_seconds: float = WITHIN_SECONDS,
    identities: "Identities | None" = None,
    confined: bool = True,
    telling: Callable[[str], None] = lambda _step: None,
) -> ScrubbedClone:
    """The folder holds a recovered copy on which every statement of these files ran, and a proof of that.

    `sources` are copies of the run, the first of them preferred, whose manifest it is. Until it is whole, the folder is
    marked as incomplete and has no proof. With `forward` it is one of that moment. When this raises, the folder is as
    empty as before.

    Raises:
        ScrubFailed: a statement failed, or did not end in time.
        UsageError: the folder is not empty, has no room, or cannot be written; the backup is encrypted, and no
            identity opens it.
        TargetError: no target can be read.
        VerificationError: what is stored is not what was written, or its manifest names what no server has.
        ServerError: no matching server is here, or it did not start.
        As `copy_at_moment`.
    """
    manifest = judged(manifest)
    with clonable_copy(
        *(forward, manifest, sources),
        to=to,
        keeps=False,
        identities=identities,
        confined=confined,
        telling=telling,
    ) as copy:
        relocation = copy.relocation
        with suppress(OSError):  # there is none, or no file is called so
            (to / PROOF_FILE).unlink()  # of a scrubbed copy that was backed up
        telling("starting a server on the restored files")
        with copy.server.running() as running:
            done = scrub(
                running, files, flavour=manifest.server.flavour, within_seconds=within_seconds, telling=telling
            )
        _remove_logs(manifest, relocation)
        telling("starting it once more, to write its redo log anew")
        _write_redo_anew(manifest, to, confined=confined)
        written = ScrubbedClone(relocation.datadir, to / SCRUBBED_OPTION_FILE, to / PROOF_FILE, done)
        write_beside(written.option_file, scrubbed_option_file(manifest, relocation), hint=MORE_ROOM)
        write_beside(written.proof, proof_text(manifest, done, forward), hint=MORE_ROOM)
        hand_over(relocation, copy.recorded, made=copy.made)
    return written


def proof_text(manifest: Manifest, done: Scrub, forward: RollForward | None = None) -> str:
    """What the file beside the copy says: of what it is a copy, and what was run on it. None of its rows."""
    document = {
        "run_id": manifest.run_id,
        "job": manifest.job,
        "machine": manifest.machine,
        "backup_created_at": manifest.created_at.isoformat(),
        **({} if forward is None else {"rolled_forward_to": str(forward.plan.end.moment)}),
        "scrubbed_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "backupd": backupd.__version__,
        **done.document,
        **({"doubt": doubt} if (doubt := logs_doubt(manifest.server)) else {}),
    }
    return json.dumps(document, indent=2) + "\n"


def _remove_logs(manifest: Manifest, relocation: Relocation) -> None:
    """No log is left that has rows as they were: of the server that was backed up, or of ours.

    A binlog or relay log is known by how it begins, whatever it is called.
    """
    aria = relocation.moved(manifest.server.settings.get("aria_log_dir_path", ""))
    require_self_contained(relocation, aria)  # a server has worked in it since
    remove_own_binlogs(relocation, manifest)
    for path in list(_logs(relocation, aria, manifest.server)):
        try:
            path.unlink()
        except OSError as error:
            raise UsageError(
                f"{path}, a log with original rows, could not be removed: {error.strerror}",
                hint="clone into a folder on another file system",
            ) from error


def _logs(relocation: Relocation, aria: Path, facts: ServerFacts) -> Iterator[Path]:
    """By their names, wherever in the copy they lie: the server's may be beside its datadir. No link is followed."""
    is_server_log = log_of(facts)
    rocksdb = {relocation.moved(facts.settings[name]) for name in _OF_ROCKSDB if facts.settings.get(name)}
    rocksdb -= {relocation.datadir, *relocation.datadir.parents}
    for within, folders, names in os.walk(relocation.folder):
        folder = Path(within)
        folders[:] = [name for name in folders if name not in _ROCKSDB and folder / name not in rocksdb]
        for name in names:
            path = folder / name
            if (
                is_server_log(name, folder == relocation.datadir)
                or (folder == aria and _ARIA_LOG.fullmatch(name))
                or _DOUBLEWRITE.fullmatch(name)
                or _WRITE_SETS.fullmatch(name)
                or (_NUMBERED.fullmatch(name) and _is_binlog(path, relocation.folder))
            ):
                yield path


def _is_binlog(path: Path, folder: Path) -> bool:
    with suppress(OSError), opened_plain(path, beneath=folder) as file:
        return file.read(len(_MAGIC[0])) in _MAGIC
    return False


def _write_redo_anew(manifest: Manifest, to: Path, *, confined: bool) -> None:
    """By a start with another size of it, and without a binlog."""
    settings = {**manifest.server.settings}
    for name in {"innodb_log_file_size", "innodb_redo_log_capacity"} & settings.keys():
        settings[name] = next(size for size in _REDO_SIZES if size != settings[name])
    resized = replace(manifest, binlog=None, server=replace(manifest.server, settings=settings))
    with ScratchServer(to, resized, confined=confined).running() as server:
        ended = server.shut_down()
    if not ended.ok:
        raise ServerError(
            f"the server on the scrubbed files did not shut down cleanly: {ended.found}",
            hint="`backupd drill` checks whether the backup is sound",
        )
