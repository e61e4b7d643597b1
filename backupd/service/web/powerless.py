"""How the pages' process gives its powers away before it hears a word from the network.

Knows: accounts, capabilities, and what Linux lets a process give up for ever (capabilities(7), prctl(2)). As root it
becomes another account; not as root it stays who it is, and gives up the rest.

The catalogue's folder is root's alone, so its files are opened on the way: by an account that owns nothing, with one
capability to read whatever there is, so that SQLite gets them for reading only. The real user is root until then,
because SQLite asks access(2) too, which goes by the real user. Afterwards only what is everybody's can be opened.
"""

import ctypes
import os
import pwd
import resource
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from backupd.vocabulary.errors import ConfigurationError

ACCOUNTS = ("backupd-web", "nobody")  # the first that there is; the package makes one
_DESCRIPTORS = 512  # connections, those that wait for a place, and the catalogue's files

_CAP_DAC_READ_SEARCH = 2
_VERSION_3 = 0x20080522  # linux/capability.h
_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 1, 4, 38  # linux/prctl.h
_SIGKILL = 9

_libc = ctypes.CDLL(None, use_errno=True)


@contextmanager
def powerless_afterwards() -> Iterator[None]:
    """Within the block any file may be read, and none written; from its end on we can do nothing but answer.

    No thread may have been started before: capabilities are a thread's.

    Raises:
        ConfigurationError: the kernel does not let us give them up.
    """
    _set_limits()
    account = _account()
    try:
        if account is not None:
            _become_reader(account)
        yield
        if account is not None:
            os.setresuid(account.pw_uid, account.pw_uid, account.pw_uid)  # which ends all capabilities
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _prctl(_PR_SET_DUMPABLE, 0)  # the token is not for others of the same account
        _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
        _require_powerless(account)
    except OSError as error:
        raise ConfigurationError(
            f"the pages' process cannot drop its privileges: {error.strerror}",
            hint="the daemon needs CAP_SETUID, CAP_SETGID and CAP_DAC_READ_SEARCH for that; or serve --no-web",
        ) from error


def nothing_more_to_gain() -> None:
    """We stay who we are, can never become more, and end with whoever started us.

    Raises:
        ConfigurationError: the kernel does not let us give that up.
    """
    _set_limits(files=True)
    try:
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        _prctl(_PR_SET_DUMPABLE, 0)
        _prctl(_PR_SET_PDEATHSIG, _SIGKILL)
    except OSError as error:
        raise ConfigurationError(
            f"the pages' process cannot drop its privileges: {error.strerror}", hint="this is a bug; please report it"
        ) from error


def _account() -> pwd.struct_passwd | None:
    """Whom root becomes; None where we are not root."""
    if os.geteuid() != 0:
        return None
    known = {entry.pw_name: entry for entry in pwd.getpwall()}
    for name in ACCOUNTS:
        if name in known and known[name].pw_uid != 0:
            return known[name]
    raise ConfigurationError(
        f"no account for the pages' process: neither {' nor '.join(ACCOUNTS)}",
        hint=f"useradd --system --shell /usr/sbin/nologin {ACCOUNTS[0]}",
    )


def _become_reader(account: pwd.struct_passwd) -> None:
    os.setgroups([])
    os.setresgid(account.pw_gid, account.pw_gid, account.pw_gid)
    os.setresuid(0, account.pw_uid, 0)
    bits = 1 << _CAP_DAC_READ_SEARCH
    header = (ctypes.c_uint32 * 2)(_VERSION_3, 0)
    sets = (ctypes.c_uint32 * 6)(bits, bits, 0, 0, 0, 0)  # effective, permitted, inheritable; the low halves first
    if _libc.capset(header, sets) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _set_limits(*, files: bool = False) -> None:
    """`files`: some may still be written."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(_DESCRIPTORS, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    if not files and not stat.S_ISREG(
        os.fstat(sys.stderr.fileno()).st_mode
    ):  # where it is a file, complaints must get there
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    with suppress(OSError):  # /proc may not be writable
        Path("/proc/self/oom_score_adj").write_text("1000")  # where memory runs out, the pages go first


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _require_powerless(account: pwd.struct_passwd | None) -> None:
    """By what the kernel itself says."""
    if account is None:
        return
    try:
        os.setresuid(0, 0, 0)
    except PermissionError:
        return
    raise ConfigurationError("the pages' process can become root again", hint="this is a bug; please report it")
