"""A folder that is being filled: marked as incomplete until it is whole and durable.

Knows: the marker file, that it is the last thing to go, and what an interrupted restore has written into it so that
it can go on.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from backupd.archive.ondisk import remove_lists
from backupd.archive.restating import PRIVATE
from backupd.archive.unpack_progress import UnpackProgress
from backupd.host.filesystem import (
    OWN_TO_A_FILE_SYSTEM,
    opened_plain,
    remove_tree,
    sync_filesystem,
    sync_folder,
    write_among_others,
)
from backupd.host.signals import shielded
from backupd.mysql.running_servers import require_no_server_in
from backupd.mysql.server_trace import ServerTrace
from backupd.operations.restore.unfinished_marker import (
    Unfinished,
    from_text,
    of_something_else,
    say_how_to_go_on,
    say_what_to_do,
    to_text,
)
from backupd.vocabulary.errors import (
    Busy,
    Cancelled,
    CleanupIncomplete,
    HostExhausted,
    NotAsRecorded,
    TargetError,
    UsageError,
)
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import MARKER

_NEXT = f"{MARKER}.new"  # becomes the marker
_INTERRUPTIONS = (Cancelled, HostExhausted, TargetError)  # what passes
MARKERS = frozenset({MARKER, _NEXT})  # ours alone for as long as they are there: others' are not believed


class Filling:
    """A marked folder. `begun` is how far an earlier restore of the same has come, and an interruption `keeps` what is
    worth it.
    """

    def __init__(self, to: Path, what: Unfinished, *, keeps: bool) -> None:
        self._to = to
        self.keeps = keeps
        self._what = what
        self.begun = what.objects
        self.stays = what.worth_keeping  # whatever error comes: an earlier restore has left it, or it is whole

    @property
    def made(self) -> bool:
        """The folder was made for it."""
        return self._what.made

    @property
    def reached(self) -> Position | None:
        """Where a server that has worked in it was shut down."""
        return self._what.reached

    @property
    def as_replica(self) -> bool | None:
        """Whether it has become a replica's there; None where nobody noted it."""
        return self._what.as_replica

    @property
    def is_spoilt(self) -> bool:
        """A server has worked in it that was not shut down: nothing tells which of its files are whole."""
        return self._what.worked_in and self._what.reached is None

    @property
    def exported(self) -> bool:
        """Besides, it has tables that were exported of what is in it."""
        return self._what.exported

    def emptied(self) -> None:
        """Nothing but the marker is in it, and it is filled anew.

        Raises:
            UsageError: something resists.
        """
        try:
            _empty(self._to, marked=True)
        except (OSError, CleanupIncomplete) as error:
            raise UsageError(f"{self._to} cannot be emptied: {error}", hint=f"empty it: rm -r {self._to}") from error
        self._put_down(replace(self._what, objects={}, worked_in=False, reached=None, exported=False))

    @contextmanager
    def worked_in(self) -> Iterator[ServerTrace]:
        """In the block a server may change the files: unless it is shut down, they cannot be used.

        Where the block fails and, by the trace that it is given, no server was there, they are as before, and stay.

        Raises:
            UsageError: the folder's disk failed, or is full.
        """
        before, trace = self._what, ServerTrace()
        self._put_down(replace(before, objects={}, worked_in=True, reached=None, exported=False))
        self.stays = False
        try:
            yield trace
        except BaseException as error:
            if not trace.server:
                with shielded():
                    self._put_back(before, error)
            raise

    def _put_back(self, before: Unfinished, error: BaseException) -> None:
        try:
            self._put_down(before)
            self.stays = before.worth_keeping
        except UsageError as second:
            error.add_note(second.message)

    def stands(self, at: Position, *, as_replica: bool, exported: bool = False) -> None:
        """The server has been shut down there, as a replica's or not, and its files are whole and durable.

        Raises:
            UsageError: the folder's disk failed, or is full.
        """
        self._put_down(replace(self._what, reached=at, as_replica=as_replica, exported=exported))

    @property
    def kept(self) -> bool:
        """Something that is worth going on with is durable, and written down."""
        return self._what.worth_keeping

    def unpacked(self, objects: Mapping[str, UnpackProgress]) -> None:
        """Everything is there and durable, and written down.

        Raises:
            UsageError: the folder's disk failed, or is full.
        """
        self.stays = True
        if objects != self._what.objects:  # or nothing has come since: a disk that is full by now is no matter
            self.save(objects)

    def save(self, objects: Mapping[str, UnpackProgress]) -> None:
        """What is unpacked so far is durable, and written down.

        Raises:
            UsageError: the folder's disk failed, or is full.
        """
        self._put_down(replace(self._what, objects=objects))

    def _put_down(self, what: Unfinished) -> None:
        try:
            sync_filesystem(self._to)  # what is written down must be true after a power cut as well
            _write(self._to, to_text(what))
        except OSError as error:
            raise UsageError(f"{self._to} cannot be written: {error.strerror}", hint="check its disk") from error
        self._what = what


@contextmanager
def filling(to: Path, what: Mapping[str, str]) -> Iterator[bool]:
    """For the length of the block the folder is marked as incomplete; afterwards it is durable, or empty as before.

    The block is told whether the folder had to be made. It is ours alone, whosever it was, until who fills it opens it.

    Raises:
        UsageError: the folder is not empty, or cannot be written.
        Refused: a server works in it.
        Busy: another process fills it.
    """
    made = _require_there(to)
    with _alone(to):
        _require_empty_and_ours(to)
        try:
            _mark(to, json.dumps(what) + "\n")
            yield made
            _finish(to)
        except BaseException as error:
            with shielded():
                _empty_after(error, to, remove=made)
            raise


@contextmanager
def resumable(to: Path, what: Unfinished, *, keeps: bool = True) -> Iterator[Filling]:
    """The same, but what an interruption leaves is kept as far as it was saved, and gone on with by the same restore.

    An interruption is a target that cannot be reached, a host without memory, a signal, or the end of this process. A
    folder whose content is not as recorded is kept as well, and marked. After any other error the folder is as empty as
    before, but what an earlier restore has left, or what is whole, stays. Unless it `keeps` that, the folder is as
    before after any error.

    Raises:
        UsageError: the folder holds something else, or cannot be written.
        Refused: a server works in it.
        Busy: another process fills it.
    """
    made = _require_there(to)
    with _alone(to):
        begun = _begun(to, what)
        if begun is None:
            _require_empty_and_ours(to)
        else:
            _close_to_others(to)
        folder = Filling(to, begun or replace(what, made=made), keeps=keeps)
        try:
            if begun is None:
                _mark(to, to_text(folder._what))
            yield folder
            _finish(to)
        except BaseException as error:
            with shielded():
                if keeps and isinstance(error, NotAsRecorded) and not what.moment:
                    say_what_to_do(error, to)
                elif keeps and (folder.stays or (folder.kept and isinstance(error, _INTERRUPTIONS))):
                    say_how_to_go_on(error, to, what.moment)
                else:
                    _forget(to, folder._what)
                    _empty_after(error, to, remove=folder._what.made)
            raise


def unfinished_in(to: Path) -> Unfinished | None:
    """What an interrupted restore has left there; None where none can be gone on with."""
    try:
        return _begun(to, None)
    except UsageError:
        return None


def _begun(to: Path, what: Unfinished | None) -> Unfinished | None:
    """How far the same restore has come, or any where None is told; None where the folder is not marked.

    Raises:
        UsageError: it is marked for something else.
    """
    try:
        (to / MARKER).lstat()  # in a folder whose path leaves no room for a name nothing can be marked
        with opened_plain(to / MARKER, beneath=to) as file:
            if os.fstat(file.fileno()).st_uid != os.geteuid():
                raise UsageError(
                    f"{to / MARKER} is not backupd's", hint=("something else created it: empty the folder first")
                )
            text = file.read().decode()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UsageError(f"{to} cannot be read: {error.strerror}", hint="pass a folder") from error
    found = from_text(text)
    if found is None:
        raise UsageError(f"{to} has an interrupted restore", hint=f"empty it first: rm -r {to}")
    if what is not None and not found.is_of(what):
        raise of_something_else(to, found)
    return found


def _require_there(to: Path) -> bool:
    """True when the folder had to be made; one in which a server works is refused."""
    try:
        require_no_server_in(to)
        if to.is_dir():
            return False
        to.mkdir(mode=0o700, parents=True)
    except FileExistsError as error:
        raise UsageError(f"{to} cannot be read: it is not a folder", hint="pass a folder") from error
    except OSError as error:
        raise UsageError(f"{to} cannot be created: {error.strerror}", hint="choose another folder") from error
    return True


def _require_empty_and_ours(to: Path) -> None:
    """From now on nobody else can enter it, who could put a link in our way; so it is looked at again.

    A folder that is in use is refused as it is.
    """
    _require_empty(to)
    _close_to_others(to)
    _require_empty(to)


def _close_to_others(to: Path) -> None:
    """It is ours, as long as it is not whole: whose it was might be the server's account. Nothing inherits lists."""
    try:
        descriptor = os.open(to, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if os.geteuid() == 0:
                os.fchown(descriptor, 0, 0)
            remove_lists(descriptor)
            os.fchmod(descriptor, PRIVATE)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise UsageError(
            f"{to} cannot be made private while it is being filled: {error.strerror}",
            hint="restore into a folder that you own",
        ) from error


def _require_empty(to: Path) -> None:
    try:
        entries = {entry.name for entry in to.iterdir()}
    except OSError as error:
        raise UsageError(f"{to} cannot be read: {error.strerror}", hint="pass a folder") from error
    if MARKER in entries:
        raise UsageError(f"{to} has an interrupted restore", hint=f"empty it first: rm -r {to}")
    if entries - OWN_TO_A_FILE_SYSTEM - {_NEXT}:  # of one that was killed before it had marked the folder
        raise UsageError(
            f"{to} is not empty",
            hint="restore into an empty folder or mount point; do not empty this one for it: what is left of a lost"
            " datadir may still be needed, so move that aside",
        )


@contextmanager
def _alone(to: Path) -> Iterator[None]:
    """Nobody else fills this folder meanwhile; the kernel forgets it with the process."""
    try:
        descriptor = os.open(to, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise UsageError(f"{to} cannot be read: {error.strerror}", hint="pass a folder") from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise Busy(
                (f"another process is restoring into {to}"), hint="wait for it, or choose another folder"
            ) from error
        yield
    finally:
        os.close(descriptor)


def _mark(to: Path, text: str) -> None:
    try:
        _write(to, text)
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}", hint="choose another folder") from error


def _write(to: Path, text: str) -> None:
    """The marker has this text or the one before, whatever happens."""
    write_among_others(to, _NEXT, text)
    (to / _NEXT).rename(to / MARKER)
    sync_folder(to)


def _finish(to: Path) -> None:
    try:
        sync_filesystem(to)
        (to / _NEXT).unlink(missing_ok=True)
        (to / MARKER).unlink()
        sync_folder(to)
    except OSError as error:
        raise UsageError(f"{to} cannot be written: {error.strerror}", hint="check its disk") from error


def _forget(to: Path, what: Unfinished) -> None:
    """Nobody goes on from what is about to be removed, be that interrupted."""
    if not what.worth_keeping:
        return
    with suppress(OSError):  # what cannot even be shortened is about to be removed all the same
        try:
            _write(to, to_text(replace(what, objects={}, reached=None)))
        except OSError:  # a disk that is full
            os.truncate(to / MARKER, 0)


def _empty_after(error: BaseException, to: Path, *, remove: bool) -> None:
    """As it was; what resists is a note on the error, which is what a person has to know."""
    try:
        _empty(to, remove=remove)
    except (OSError, CleanupIncomplete) as second:
        error.add_note(f"{to} could not be emptied: {second}")


def _empty(to: Path, *, remove: bool = False, marked: bool = False) -> None:
    """As it was; the marker goes last, unless the folder stays `marked`."""
    for entry in sorted(to.iterdir(), key=lambda entry: entry.name == MARKER):
        if marked and entry.name == MARKER:
            continue
        if entry.is_dir() and not entry.is_symlink():
            if entry.name not in OWN_TO_A_FILE_SYSTEM:
                remove_tree(entry)
        else:
            entry.unlink()
    if remove:
        to.rmdir()
