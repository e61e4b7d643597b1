"""A server on a restored copy, for as long as it is asked questions: nobody else can reach it, and it reaches nothing.

Knows: how it is started, as whom, when it answers, how it ends. Refuses to judge what it says; that is `proof`'s.

Nothing is left to an option file: with the production's `my.cnf`, recovery would run on the *live* redo log. Every
path is given, so is every log; replication information is looked for in an empty folder, except where the copy is to
become a replica, and replication never starts; a symlink or `.isl` file that
leads out of the copy is refused. `--skip-grant-tables` because nobody knows the restored accounts' passwords, and ours
may not read all tables; the socket is in a folder that only its owner can enter, and there is no other way in.

The copy is a stranger's work and the server a large program that reads it. So it never runs as root, has no network,
and can write nothing but the copy and its own folder, whatever it is made to do; of these we read plain files only.
Nor does it run as the account of this host's own server, whose files, processes and socket it would share, unless it
needs that account's keys. Nothing that it starts outlives it, and what we say to it is said to no other server.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from subprocess import Popen, TimeoutExpired
from typing import IO

from backupd.host import process as programs
from backupd.host.process import ChildLedger
from backupd.host.sandbox import NO_PROGRAM, Bounds, not_confined
from backupd.mysql.facts import key_files
from backupd.mysql.kept_out import let_in
from backupd.mysql.keyring import keyring_options, require_known_keyring
from backupd.mysql.own_limits import LONGEST_LINE, ran_out
from backupd.mysql.recorded import is_binlog, judged, libraries
from backupd.mysql.recovery import recovery_seconds, redo_bytes, stop_seconds
from backupd.mysql.refusals import StatementError
from backupd.mysql.relocation import Relocation, owner_of, read_from_copy, require_self_contained
from backupd.mysql.scratch_account import Account, account_for
from backupd.mysql.scratch_places import ScratchPlaces, prepared, private_folder
from backupd.mysql.server_programs import matching_program
from backupd.mysql.server_trace import ServerTrace
from backupd.mysql.session import Login, Session
from backupd.mysql.startup import (
    folders_of,
    require_keys,
    require_no_live_tablespace,
    require_tablespaces,
    server_argv,
)
from backupd.mysql.system_zone import environment_of, require_zone_taken
from backupd.policy.log_zone import SYSTEM_ZONE
from backupd.vocabulary.errors import NeverStarted, ServerError, Undecided, UsageError
from backupd.vocabulary.records import CLEAN_SHUTDOWN, Check
from backupd.vocabulary.storage import Manifest

CHECK_SECONDS = 86400.0  # CHECK TABLE of a large table is one statement

_ENVIRONMENT = {"PATH", "TZ", "TMPDIR"}  # what of ours it gets
_DYING_SECONDS = 1.0
_NOT_EXECUTED = (" cannot be started: ", "failed to execute ")  # in the words of our sandbox, and of setpriv(1)
_MORE = "nothing was learned about the backup: drill it again with more time, memory or disk space"

_LARGEST_INDEX = 4 << 20  # bytes: the names of a hundred thousand binlogs
_POLL_SECONDS = 0.1


class RunningServer:
    """A scratch server that answers."""

    def __init__(self, process: "Popen[bytes]", session: Session, places: ScratchPlaces) -> None:
        self._process = process
        self._places = places
        self._spare: Session | None = None
        self.session = session

    def keep_a_spare_session(self) -> None:
        """`renew_session` will not have to log in: the copy's own accounts, which are about to count, may forbid that.

        Raises:
            ServerError: the server does not answer, or another program does at its socket.
        """
        self._spare = self.another_session(answer_seconds=CHECK_SECONDS)

    def renew_session(self) -> None:
        """Its session is a new one: in the old one an answer may be missing, which a signal has kept us from reading.

        Raises:
            ServerError: the server does not answer, or another program does at its socket.
        """
        self.session.close()
        spare, self._spare = self._spare, None
        self.session = spare or self.another_session(answer_seconds=CHECK_SECONDS)

    @property
    def error_log(self) -> str:
        """What it wrote to its error log so far."""
        return self._places.said

    def another_session(
        self, *, answer_seconds: float, one_statement: bool = False, as_stored: bool = False
    ) -> Session:
        """A session beside the first one; see `Session.open`.

        Raises:
            ServerError: the server does not answer, or another program does at its socket.
        """
        login = _login(self._places)
        session = Session.open(login, answer_seconds=answer_seconds, one_statement=one_statement, as_stored=as_stored)
        _require_itself(session, self._process)
        return session

    def within_limits(self) -> AbstractContextManager[None]:
        """An error in the block is raised as Undecided where it comes of a limit of the server's own."""
        return _within_limits(self._process, self._places)

    def shut_down(self, *, within_seconds: float = 0.0) -> Check:
        """End it cleanly; the answer is whether it went so. Its session is over.

        It has the time that its pool may need to be written, however short `within_seconds` is.

        Raises:
            Undecided: it still works, or it was killed for memory or ran out of memory or room.
        """
        expected = "status 0"
        try:
            with self.within_limits():
                self._end(within_seconds)
        except Undecided:
            raise
        except ServerError as error:
            return Check(CLEAN_SHUTDOWN, ok=False, expected=expected, found=str(error))
        finally:
            self.session.close()
            if self._spare is not None:
                self._spare.close()
        return Check(CLEAN_SHUTDOWN, ok=True, expected=expected, found=expected)

    def _end(self, within_seconds: float) -> None:
        pool = int(self.session.value("SELECT @@global.innodb_buffer_pool_size") or 0)
        within_seconds = max(within_seconds, stop_seconds(pool))
        self.session.execute("SHUTDOWN")
        try:
            status = self._process.wait(within_seconds)
        except TimeoutExpired as error:
            raise Undecided(
                f"the server on the restored files did not shut down within {within_seconds:g} s", hint=_MORE
            ) from error
        if status:
            raise ServerError(f"status {status}")


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
        applying: bool = False,
        partial: bool = False,
        without_binlogs: bool = False,
        confined: bool = True,
        servers: Sequence[Path] = (),
        zone: str = "",
        trace: ServerTrace | None = None,
    ) -> None:
        """With `seeding` it keeps what it is told about replication in the copy.

        With `applying` it can be told to apply what was `laid_down` in the copy before it started.
        Without `start_seconds` it may take as long as `recovery_seconds` says of the backup's redo.
        Of a `partial` copy most tables are missing on purpose: recovery passes over what the log says of them.
        Of a copy `without_binlogs` those that were restored are gone, and it begins another: after a clean shutdown
        none is needed.
        One that is not `confined` has its account's rights, and is for backups that nobody else could have changed.
        `servers` are folders with server programs beside this host's. With `applying` its time zone is `zone`, the
        log's; else the backup's, as far as that is known here. The `trace` tells afterwards whether it was ever there.

        Raises:
            Unreadable: the manifest names what no server has; see `recorded`.
            ServerError: its keys cannot be given to a second server.
        """
        manifest = judged(manifest)
        libraries(manifest.server)
        require_known_keyring(manifest.server)
        self._facts = manifest.server
        self._relocation = Relocation(folder, manifest.datadir, manifest.server.datadir)
        self._binlog = manifest.binlog
        self._start_seconds = recovery_seconds(redo_bytes(manifest.server)) if start_seconds is None else start_seconds
        self._ledger = ledger
        self._seeding = seeding
        self._applying = applying
        self._partial = partial
        self._without_binlogs = without_binlogs
        self._confined = confined
        self._servers = servers
        self._trace = trace or ServerTrace()
        self._zone = zone if applying else manifest.server.settings.get(SYSTEM_ZONE, "")

    def require_startable(self) -> str:
        """The version of the server program that would start. What it takes is here, as far as that is known before.

        Raises:
            ServerError: no matching program is here, or a key file of the server's is not.
        """
        require_keys(self._facts)
        return matching_program(self._facts, self._servers).version

    @contextmanager
    def running(self) -> Iterator[RunningServer]:
        """The server, recovered and answering; it is gone at the end of the block.

        Raises:
            ServerError: no matching program is here, the copy leads out of itself, or the server did not start.
            UsageError: nothing on this host can keep it within its bounds; or it needs none and cannot get to the copy;
                or it does not know the log's time zone.
            Undecided: it ran into a limit of its own, time, memory, room; or AppArmor keeps it from the copy.
            NeverStarted: the account cannot execute the program.
        """
        program = matching_program(self._facts, self._servers)
        copy = self._relocation
        binlog = copy.folder / self._binlog if self._binlog else None
        require_self_contained(copy, *folders_of(copy, self._facts), *([binlog.parent] if binlog else []))
        require_tablespaces(copy, self._facts)
        account = account_for(owner_of(copy).st_uid, with_keys=bool(key_files(self._facts)))
        require_keys(self._facts, account.prefix)
        with ExitStack() as owed:
            with prepared():
                places = owed.enter_context(private_folder())
                owed.enter_context(account.lent(copy, self._trace))
                said = owed.enter_context(places.error_log.open("ab"))
                keyring = keyring_options(self._facts, places.folder, program, account.prefix)
                view = self._view(account, places)
                if binlog is not None and self._binlog is not None:
                    seen_in = (view.folder / self._binlog).parent
                    index = "" if self._without_binlogs else _index(copy.folder, binlog, seen_in=seen_in)
                    places.binlog_index.write_text(index, errors="surrogateescape")
                account.give(places.folder)
            seen = view.folder / self._binlog if self._binlog else None
            argv = server_argv(program, view, self._facts, places, seen, seeding=self._seeding, applying=self._applying)
            passing_over = ["--innodb-force-recovery=1"] if self._partial else []
            argv = [*self._prefix(account, places, view), *argv, *passing_over, *keyring]
            with (
                self._trace.left_by(self._started(argv, said)) as process,
                let_in(program, lambda: places.said, (copy.folder, places.pattern)),
                _within_limits(process, places),
                self._answering(process, places) as session,
            ):
                self._trace.answered = True
                server = RunningServer(process, session, places)
                require_no_live_tablespace(server.error_log)
                if self._applying and self._zone:
                    require_zone_taken(session, self._zone)
                yield server

    def _view(self, account: "Account", places: ScratchPlaces) -> Relocation:
        """The copy where the account can get at it: below our own folder where it may not enter those around it."""
        if account.may_reach(self._relocation.datadir):
            return self._relocation
        if not self._confined:
            raise UsageError(
                f"only root can enter {self._relocation.datadir}, but an unconfined server, which never runs as root,"
                f" must enter it",
                hint="make the folders above it accessible to others (chmod o+x)",
            )
        places.copy.mkdir()
        return replace(self._relocation, folder=places.copy, here=self._relocation.folder)

    def _prefix(self, account: "Account", places: ScratchPlaces, view: Relocation) -> list[str]:
        if not self._confined:
            return [*account.prefix]
        copy = self._relocation.folder
        there = view.folder == copy
        bounds = Bounds(
            writable=(copy, places.folder) if there else (places.folder,),
            seen_at={} if there else {copy: view.folder},
            ids=account.ids,
        )
        return bounds.prefix()

    def _started(self, argv: list[str], said: IO[bytes]) -> AbstractContextManager["Popen[bytes]"]:
        """What it says before it has opened its log is kept too; our own output is for results.

        Our environment may have keys of targets, which a server that a copy has taken over could write into the copy.
        """
        known = {name: value for name, value in os.environ.items() if name in _ENVIRONMENT}
        known |= environment_of(self._zone)
        return programs.spawned(
            argv, stdout=said, stderr=said, ledger=self._ledger, environment=known, only_this_environment=True
        )

    def _answering(self, process: "Popen[bytes]", places: ScratchPlaces) -> Session:
        """Ask until it answers: only its log says that it is ready, in words that differ between servers."""
        login = _login(places)
        deadline = time.monotonic() + self._start_seconds
        while True:
            try:
                session = Session.open(login, answer_seconds=CHECK_SECONDS)
            except ServerError as error:
                if process.poll() is not None:
                    said = places.said
                    if refusal := not_confined(process.returncode, said, doing="the server on the restored files"):
                        raise refusal from error
                    raise ServerError(
                        f"the server did not start on the restored files: {first_error(said)}",
                        hint="the backup is suspect; the log above shows what the server could not read",
                    ) from error
                if time.monotonic() > deadline:
                    raise Undecided(
                        f"the server on the restored files did not answer within {self._start_seconds:g} s",
                        hint=_MORE,
                    ) from error
            else:
                _require_itself(session, process)
                return session
            time.sleep(_POLL_SECONDS)


def _login(places: ScratchPlaces) -> Login:
    return Login("root", socket=places.socket)


def _require_itself(session: Session, process: "Popen[bytes]") -> None:
    """The server that we have started answers. The socket is in its own folder: it may have put another one there.

    Raises:
        ServerError: another program does, of which nothing was asked.
    """
    answering = session.peer
    if answering != process.pid:
        session.close()
        raise ServerError(
            f"process {answering} answers at the socket of the server on the restored files, which is process"
            f" {process.pid}",
            hint="whoever made the backup caused this: use another backup, and check who can write to the target",
        )


@contextmanager
def _within_limits(process: "Popen[bytes]", places: ScratchPlaces) -> Iterator[None]:
    """An error of a server that had no memory or no room left, was killed for memory, or never ran, decides nothing.

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
            raise Undecided("the server on the restored files was killed (out of memory?)", hint=_MORE) from error
        if process.returncode == NO_PROGRAM and any(words in places.said for words in _NOT_EXECUTED):
            raise NeverStarted(
                f"the server program was never started: {first_error(places.said)}",
                hint="the drill's user, which is not root, must be able to enter its folders and execute it",
            ) from error
        if said := ran_out(places.said):
            raise Undecided(f"the server on the restored files ran out of resources: {said}", hint=_MORE) from error
        if process.returncode is None and isinstance(error, StatementError) and error.timed_out:
            raise Undecided(f"the server on the restored files took too long: {error.message}", hint=_MORE) from error
        raise


def _index(copy: Path, binlog: Path, *, seen_in: Path) -> str:
    """The binlogs that were restored, where the server sees them; recovery may need those before the named one."""
    index = binlog.with_suffix(".index")
    text = read_from_copy(copy, index, at_most=_LARGEST_INDEX) if index.exists() else binlog.name
    names = [line.rpartition("/")[2] for line in text.splitlines() if line]
    if not names:
        raise ServerError(f"the binlog's index {index} lists no binlog", hint="check it: is log_bin_index right?")
    if strange := next((name for name in names if not is_binlog(name)), None):
        raise ServerError(f"the restored binlog index lists a file that is not a binlog: {strange!r:.80}")
    return "".join(f"{seen_in / name}\n" for name in names)


def first_error(text: str) -> str:
    """The first line that the server itself calls an error; the last line where it calls none so."""
    lines = [line for line in text.splitlines() if line.strip()]
    errors = (line for line in lines if "[ERROR]" in line)
    return next(errors, lines[-1] if lines else "it wrote nothing").strip()[:LONGEST_LINE]
