"""A server on a restored copy, for as long as it is asked questions: nobody else can reach it, and it reaches nothing.

Knows: how it is started, as whom, when it answers, how it ends. Refuses to judge what it says; that is `proof`'s.

Nothing is left to an option file: with the production's `my.cnf`, recovery would run on the *live* redo log. Every
path is given, so is every log; replication information is looked for in an empty folder, except where the copy is to
become a replica, and replication never starts; a symlink or `.isl` file that
leads out of the copy is refused. `--skip-grant-tables` because nobody knows the restored accounts' passwords, and ours
may not read all tables; the socket lies in a folder that only its owner can enter, and there is no other way in.
"""

import contextlib
import logging
import os
import re
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import Popen, TimeoutExpired

from backupd import command
from backupd.command import ChildLedger
from backupd.errors import ServerError, Undecided
from backupd.model import Check, Manifest
from backupd.mysql.binlogs import listed
from backupd.mysql.keyring import keyring_options
from backupd.mysql.recovery import recovery_seconds, redo_bytes
from backupd.mysql.relocation import Relocation, require_self_contained
from backupd.mysql.session import Login, Session
from backupd.mysql.startup import (
    ScratchPlaces,
    matching_program,
    require_keys,
    require_no_live_tablespace,
    require_tablespaces,
    server_argv,
)

log = logging.getLogger(__name__)

STOP_SECONDS = 600.0
CHECK_SECONDS = 86400.0  # CHECK TABLE of a large table is one statement

_DYING_SECONDS = 1.0
_OWN_LIMIT = re.compile(
    r".*(cannot allocate memory|out of memory|no space left on device|disk is full|error number 28\b).*", re.IGNORECASE
)
_MORE = "the backup is neither proven nor doubted: drill it again when this host has more time, memory or room for it"

_SOCKET_LENGTH = 107  # unix(7): sun_path has 108 bytes with its terminator
_POLL_SECONDS = 0.1


class RunningServer:
    """A scratch server that answers."""

    def __init__(self, process: "Popen[bytes]", session: Session, error_log: Path) -> None:
        self._process = process
        self._error_log = error_log
        self.session = session

    @property
    def error_log(self) -> str:
        """What it wrote to its error log so far."""
        return _text(self._error_log)

    def shut_down(self) -> Check:
        """End it cleanly; the answer is whether it went so. Its session is over.

        Raises:
            Undecided: it still works.
        """
        expected = "status 0"
        try:
            self.session.execute("SHUTDOWN")
            status = self._process.wait(STOP_SECONDS)
        except TimeoutExpired as error:
            raise Undecided(
                f"the server on the restored files did not shut down within {STOP_SECONDS:g} s", hint=_MORE
            ) from error
        except ServerError as error:
            return Check("clean shutdown", ok=False, expected=expected, found=str(error))
        finally:
            self.session.close()
        return Check("clean shutdown", ok=status == 0, expected=expected, found=f"status {status}")


class ScratchServer:
    """The server that a backup's manifest describes, on the folder that it was restored into."""

    def __init__(
        self,
        folder: Path,
        manifest: Manifest,
        *,
        start_seconds: float | None = None,
        ledger: ChildLedger | None = None,
        seeding: bool = False,
        partial: bool = False,
    ) -> None:
        """With `seeding` it keeps what it is told about replication in the copy.

        Without `start_seconds` it may take as long as `recovery_seconds` says of the backup's redo.
        Of a `partial` copy most tables are missing on purpose: recovery passes over what the log says of them.
        """
        self._facts = manifest.server
        self._relocation = Relocation(folder, manifest.datadir, manifest.server.datadir)
        self._binlog = folder / manifest.binlog if manifest.binlog else None
        self._start_seconds = recovery_seconds(redo_bytes(manifest.server)) if start_seconds is None else start_seconds
        self._ledger = ledger
        self._seeding = seeding
        self._partial = partial

    @contextmanager
    def running(self) -> Iterator[RunningServer]:
        """The server, recovered and answering; it is gone at the end of the block.

        Raises:
            ServerError: no matching program is here, the copy leads out of itself, or the server did not start.
            Undecided: it ran into a limit of its own: time, memory, room.
        """
        program = matching_program(self._facts)
        require_self_contained(self._relocation)
        require_keys(self._facts)
        require_tablespaces(self._relocation, self._facts)
        owner = _owner(self._relocation.datadir)
        with _private_folder() as places:
            if self._binlog is not None:
                places.binlog_index.write_text(_index(self._binlog))
            argv = server_argv(program, self._relocation, self._facts, places, self._binlog, seeding=self._seeding)
            passing_over = ["--innodb-force-recovery=1"] if self._partial else []
            keyring = keyring_options(self._facts, places.folder)
            owner.give(places.folder)
            with (
                self._started([*owner.prefix, *argv, *passing_over, *keyring, *owner.option], places) as process,
                _within_limits(process, places.error_log),
                self._answering(process, places) as session,
            ):
                server = RunningServer(process, session, places.error_log)
                require_no_live_tablespace(server.error_log)
                yield server

    @contextmanager
    def _started(self, argv: list[str], places: ScratchPlaces) -> Iterator["Popen[bytes]"]:
        """What it says before it has opened its log is kept too; our own output is for results."""
        with (
            places.error_log.open("ab") as said,
            command.spawned(argv, stdout=said, stderr=said, ledger=self._ledger) as process,
        ):
            yield process

    def _answering(self, process: "Popen[bytes]", places: ScratchPlaces) -> Session:
        """Ask until it answers: only its log says that it is ready, in words that differ between servers."""
        login = Login("root", socket=places.socket)
        deadline = time.monotonic() + self._start_seconds
        while True:
            try:
                return Session.open(login, answer_seconds=CHECK_SECONDS)
            except ServerError as error:
                if process.poll() is not None:
                    raise ServerError(
                        f"the server did not start on the restored files: {first_error(_text(places.error_log))}",
                        hint="the backup is suspect; the log above says what the server could not read",
                    ) from error
                if time.monotonic() > deadline:
                    raise Undecided(
                        f"the server on the restored files did not answer within {self._start_seconds:g} s",
                        hint=_MORE,
                    ) from error
            time.sleep(_POLL_SECONDS)


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom the server runs as: the copy's owner; ourselves when we are not root, or when only root can get there."""

    uid: int
    gid: int

    @property
    def prefix(self) -> tuple[str, ...]:
        """What changes to them. The death signal is asked for again, because a change of user forgets it (prctl(2))."""
        if self.uid == os.geteuid():
            return ()
        ids = (f"--reuid={self.uid}", f"--regid={self.gid}", "--clear-groups")
        return ("setpriv", *ids, "--pdeathsig", "KILL", "--")

    def give(self, folder: Path) -> None:
        """All that is in the folder is theirs, and so is it."""
        for path in (folder, *folder.rglob("*")):
            os.chown(path, self.uid, self.gid, follow_symlinks=False)

    @property
    def option(self) -> tuple[str, ...]:
        """The server runs as root only when told to."""
        return ("--user=root",) if self.uid == 0 else ()


@contextmanager
def _within_limits(process: "Popen[bytes]", error_log: Path) -> Iterator[None]:
    """An error of a server that had no memory or no room left, or that the kernel killed for memory, decides nothing.

    Raises:
        Undecided: in place of such an error.
    """
    try:
        yield
    except Undecided:
        raise
    except ServerError as error:
        with contextlib.suppress(TimeoutExpired):
            process.wait(_DYING_SECONDS)  # its connection is lost a moment before the process is gone
        if process.returncode == -signal.SIGKILL:
            raise Undecided("the server on the restored files was killed (is memory short?)", hint=_MORE) from error
        if said := _OWN_LIMIT.search(_text(error_log)):
            raise Undecided(f"the server on the restored files ran short: {said[0].strip()}", hint=_MORE) from error
        raise


def _index(binlog: Path) -> str:
    """The binlogs that were restored, where they are now; recovery may need those before the one that is named."""
    index = binlog.with_suffix(".index")
    names = listed(index) if index.exists() else (binlog.name,)
    return "".join(f"{binlog.parent / name}\n" for name in names)


def first_error(text: str) -> str:
    """The first line that the server itself calls an error; the last line where it calls none so."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = (line for line in lines if "[ERROR]" in line)
    return next(errors, lines[-1] if lines else "it wrote nothing").strip()


@contextmanager
def _private_folder() -> Iterator[ScratchPlaces]:
    roots = (root for root in (tempfile.gettempdir(), "/tmp") if len(root) < _SOCKET_LENGTH - 30)  # noqa: S108
    folder = Path(tempfile.mkdtemp(prefix="backupd-", dir=next(roots)))
    try:
        yield ScratchPlaces(folder)
    finally:
        shutil.rmtree(folder)


def _owner(datadir: Path) -> Owner:
    ours = Owner(os.geteuid(), os.getegid())
    if ours.uid != 0:
        return ours
    found = datadir.stat()
    if all(_may_enter(folder, found.st_uid, found.st_gid) for folder in (datadir, *datadir.resolve().parents)):
        return Owner(found.st_uid, found.st_gid)
    log.info("drill: only root can enter %s: the scratch server runs as root", datadir)
    return ours


def _may_enter(folder: Path, uid: int, gid: int) -> bool:
    found = folder.stat()
    if found.st_uid == uid:
        return bool(found.st_mode & 0o100)
    return bool(found.st_mode & (0o010 if found.st_gid == gid else 0o001))


def _text(path: Path) -> str:
    with contextlib.suppress(FileNotFoundError):
        return path.read_text(errors="replace")
    return ""
