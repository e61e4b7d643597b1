"""Whom a server on a restored copy runs as, and what the copy's files are to that account for as long as it runs.

Knows: an account that nobody else has, except where the copy needs keys that only the server's own account may read. An
archive says whose its files are: it must not be the one to choose as which of this host's people a program runs.
"""

import contextlib
import os
import pwd
import stat
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import SystemRandom
from shlex import quote

from backupd.host import process as programs
from backupd.host.filesystem import walked
from backupd.host.sandbox import ending_argv
from backupd.host.signals import shielded
from backupd.mysql.relocation import Relocation, owner_of
from backupd.mysql.server_trace import ServerTrace
from backupd.vocabulary.errors import CleanupIncomplete, CommandError, ServerError
from backupd.vocabulary.storage import MARKER

_END_SECONDS = 30.0
_ITS_ACCOUNTS = frozenset({"mysql", "mariadb"})  # whom a server's files may belong to, of those known here
_NOBODYS = range(61184, 65520)  # users that systemd gives to services for as long as they run, and no account has


@dataclass(frozen=True, slots=True)
class Account:
    """Whom the server runs as. Never root; without `ids` ourselves, who are not root."""

    ids: tuple[int, int] | None = None
    alone: bool = False  # nothing else runs as it

    @property
    def prefix(self) -> tuple[str, ...]:
        """What changes to it. The death signal is asked for again, because a change of user forgets it (prctl(2))."""
        if self.ids is None:
            return ()
        ids = (f"--reuid={self.ids[0]}", f"--regid={self.ids[1]}", "--clear-groups")
        return ("setpriv", *ids, "--no-new-privs", "--pdeathsig", "KILL", "--")

    def give(self, folder: Path) -> None:
        """A folder of ours, which nobody else could change until now, is theirs with all that is in it."""
        if self.ids is not None:
            for path in (folder, *folder.rglob("*")):
                os.chown(path, *self.ids, follow_symlinks=False)

    @contextmanager
    def lent(self, copy: Relocation, trace: ServerTrace) -> Iterator[None]:
        """The copy's own files are theirs within the block, and its owner's after it, with what was made meanwhile.

        So are its datadir and the folders above it, as far as they could not enter them: these are held open, for the
        server can rename what is in them, and let others in. Nothing runs as them any more when they give it back;
        where no child was there, by the `trace`, none is looked for: who could not start it starts no other either.
        """
        if self.ids is None:
            yield
            return
        uid, _ = self.ids
        owner = owner_of(copy)
        with ExitStack() as opened:
            closed = self._closed(copy, opened)
            opened.enter_context(self._given_back(copy, owner, closed, trace))
            if uid != owner.st_uid:
                _change_owner(copy.folder, users={owner.st_uid: uid}, groups={})
            for descriptor in closed:
                os.fchown(descriptor, uid, -1)
            yield

    @contextmanager
    def _given_back(
        self, copy: Relocation, owner: os.stat_result, closed: Mapping[int, os.stat_result], trace: ServerTrace
    ) -> Iterator[None]:
        """However the block ends; what resists is told with how it ended."""
        try:
            yield
        except BaseException as error:
            try:
                self._give_back(copy, owner, closed, trace)
            except CleanupIncomplete as second:
                error.add_note(f"{second.message}; {second.hint}")
            raise
        self._give_back(copy, owner, closed, trace)

    def _closed(self, copy: Relocation, opened: ExitStack) -> Mapping[int, os.stat_result]:
        """Descriptors of the datadir and of folders above it, where they cannot enter them, and what each was."""
        assert self.ids is not None
        found = {}
        for each in (each for each in (copy.datadir, *copy.datadir.parents) if each.is_relative_to(copy.folder)):
            if not _may_enter(each, *self.ids):
                descriptor = os.open(each, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
                opened.callback(os.close, descriptor)
                found[descriptor] = os.fstat(descriptor)
        return found

    def _give_back(
        self, copy: Relocation, owner: os.stat_result, closed: Mapping[int, os.stat_result], trace: ServerTrace
    ) -> None:
        """Nothing runs as them any more, and nothing is theirs.

        Raises:
            CleanupIncomplete: something still is theirs.
        """
        assert self.ids is not None
        uid, gid = self.ids
        server, trace.server = trace.server, True  # unless all of it is the owner's again
        with shielded():
            try:
                if trace.child:
                    self._end_all()
                for descriptor, was in closed.items():  # first: a folder that is root's is the owner's at no time
                    os.fchown(descriptor, was.st_uid, was.st_gid)
                    os.fchmod(descriptor, stat.S_IMODE(was.st_mode))  # it masks an access list, too
                if self.ids != (owner.st_uid, owner.st_gid):
                    _change_owner(copy.folder, users={uid: owner.st_uid}, groups={gid: owner.st_gid})
            except (OSError, CommandError) as error:
                why = error.strerror if isinstance(error, OSError) else error.message
                of_it = quote(str(copy.folder))
                raise CleanupIncomplete(
                    f"files in {copy.folder} still belong to user {uid}: {why}",
                    hint=f"chown -R --from={uid} {owner.st_uid} {of_it};"
                    f" chown -R --from=:{gid} :{owner.st_gid} {of_it}",
                ) from error
            trace.server = server

    def _end_all(self) -> None:
        """Whatever the server has started ends, in whatever session it is."""
        if self.alone and self.ids is not None:
            programs.run(ending_argv(*self.ids), timeout_seconds=_END_SECONDS)

    def may_reach(self, folder: Path) -> bool:
        """Whether it may enter a folder and all above it."""
        ids = self.ids
        return ids is None or all(_may_enter(each, *ids) for each in (folder, *folder.resolve().parents))


def account_for(owner: int, *, with_keys: bool) -> Account:
    """A user of its own; where the copy needs keys, its `owner`, who may read them.

    An archive says whose its files are: it must not be the one to choose as which of this host's people a program runs.
    """
    if os.geteuid() != 0:
        return Account()
    known = _known(owner)
    if with_keys and known is not None and known.pw_name in _ITS_ACCOUNTS and known.pw_gid != 0:
        return Account((owner, known.pw_gid))
    own = _of_its_own()
    is_free = with_keys and known is None and owner not in _running()
    return Account((owner if is_free else own, own), alone=True)


def ids_of_nobody() -> tuple[int, int] | None:
    """A user and a group whom nobody knows; None where we are not root, and stay who we are."""
    if os.geteuid() != 0:
        return None
    own = _of_its_own()
    return own, own


def _of_its_own() -> int:
    """A user, and a group, whom nobody knows and as whom nothing runs: not even `nobody` can look at the copy."""
    running = _running()
    first = _NOBODYS[os.getpid() % len(_NOBODYS)]  # drills side by side have different ones
    candidates = (first, *SystemRandom().sample(_NOBODYS, len(_NOBODYS)))  # not the next: that is a neighbour's first
    free = (uid for uid in candidates if _known(uid) is None and uid not in running)
    found: int | None = next(free, None)
    if found is None:
        raise ServerError(f"every user id from {_NOBODYS[0]} to {_NOBODYS[-1]} is taken", hint="see getent passwd")
    return found


def _known(uid: int) -> pwd.struct_passwd | None:
    try:
        return pwd.getpwuid(uid)
    except KeyError:
        return None


def _running() -> frozenset[int]:
    """The users as whom something runs now, containers' included."""
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            found.add(process.stat().st_uid)
    return frozenset(found)


def _may_enter(folder: Path, uid: int, gid: int) -> bool:
    found = folder.stat()
    if found.st_uid == uid:
        return bool(found.st_mode & 0o100)
    return bool(found.st_mode & (0o010 if found.st_gid == gid else 0o001))


def _change_owner(top: Path, *, users: Mapping[int, int], groups: Mapping[int, int]) -> None:
    """Whatever in the folder is of one of these is of the other, but for our mark; no link in it is followed.

    Who is killed meanwhile goes by the mark, and believes none but its own: not one that a server has put there either.
    """
    for within, names, descriptor in walked(top):
        for name in (".", *(name for name in names if str(within / name) != MARKER)):
            found = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            ids = users.get(found.st_uid, found.st_uid), groups.get(found.st_gid, found.st_gid)
            if ids != (found.st_uid, found.st_gid):
                with contextlib.suppress(PermissionError):  # an immutable file (chattr +i) stays whose it is
                    os.chown(name, *ids, dir_fd=descriptor, follow_symlinks=False)
