"""The program between us and a child that handles what strangers wrote: it binds itself, and becomes that child.

Knows: what Linux has to keep a process from writing elsewhere, and in which order. It is started by path with `-I -S`
and imports nothing of ours, because it is started for every object of a restore.

What a kernel offers is asked for, never guessed from its version:
- A mount namespace (as root; otherwise within a user namespace) in which everything is read-only, no device node works
  but the harmless ones, and only the writable folders are mounted to be written.
- Landlock (landlock(7), Linux 5.13; from ABI 2 on, for ABI 1 forbids hard links) with the same bounds. It does not know
  of chmod, chown and utime, but keeps the child from tracing other processes, too.
- A network namespace; a filter that refuses every socket but local ones (seccomp(2)) where there is none.
One of the first two has to be there, and one of the third where the network is forbidden.
"""

import ctypes
import os
import signal
import struct
import sys

NOT_CONFINED = 97  # the exit status of one that could not be bound; stderr then begins with
REFUSAL = "not confined: "
END_ALL_OF = "--end-all-of"
_NO_FOLDER, NO_PROGRAM = 126, 127

_HARMLESS_DEVICES = ("null", "zero", "full", "random", "urandom")
_KEPT_CAPABILITIES = (0, 1, 3, 4)  # of root: CHOWN, DAC_OVERRIDE, FOWNER, FSETID (linux/capability.h)

# mount(2), open_tree(2), mount_setattr(2), linux/mount.h
_MS_REC, _MS_SLAVE = 1 << 14, 1 << 19
_OPEN_TREE, _MOVE_MOUNT, _MOUNT_SETATTR = 428, 429, 442  # the same number on every architecture
_OPEN_TREE_CLONE, _AT_EMPTY_PATH, _AT_RECURSIVE = 1, 0x1000, 0x8000
_FROM_DESCRIPTOR, _TO_LINKS_END = 0x04, 0x10
_HERE = -100  # AT_FDCWD
_RDONLY, _NOSUID, _NODEV = 1, 2, 4
_MOUNT_ATTR = struct.Struct("=QQQQ")  # set, clear, propagation, user namespace

# clone(2)
_NEWNS, _NEWIPC, _NEWUSER, _NEWNET = 0x20000, 0x08000000, 0x10000000, 0x40000000

# prctl(2)
_PDEATHSIG, _SECCOMP, _DROP_FROM_BOUNDS, _NO_NEW_PRIVILEGES = 1, 22, 24, 38
_CAPABILITY_VERSION = 0x20080522  # capset(2)
_CAPABILITIES = struct.Struct("=IIIIII")  # effective, permitted, inheritable; then the upper halves

# linux/landlock.h
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_ASK_VERSION, _PATH_BENEATH = 1, 1
_WRITE_FILE, _MAKE_CHAR, _MAKE_BLOCK = 1 << 1, 1 << 6, 1 << 11
_CHANGES = 0b11111111110010  # WRITE_FILE, REMOVE_*, MAKE_*, REFER: all that ABI 2 knows but reading and executing
_TRUNCATE = 1 << 14  # ABI 3
_BENEATH = struct.Struct("=Qi")

# linux/seccomp.h, linux/bpf_common.h, linux/audit.h
_FILTER_MODE, _ALLOW, _REFUSE = 2, 0x7FFF0000, 0x00050000 | 1  # EPERM
_LOAD, _IF_EQUAL, _IF_GREATER, _RETURN = 0x20, 0x15, 0x35, 0x06
_SOCKET_NUMBERS = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}
_IO_URING_SETUP = 425
_OTHER_ABI = 0x40000000  # x32 calls have this bit

_libc = ctypes.CDLL(None, use_errno=True)


class ToldBounds:
    """As they stand in our arguments: `[--write FOLDER | --seen FOLDER PLACE]… [--no-network] [--ids UID GID]`."""

    def __init__(self, words: list[str]) -> None:
        self.writable: list[str] = []
        self.seen: list[tuple[str, str]] = []  # a folder, and where else it is mounted
        self.network = True
        self.ids: tuple[int, int] | None = None
        left = words
        while left:
            match left:
                case ["--write", folder, *left]:
                    self.writable.append(folder)
                case ["--seen", folder, place, *left]:
                    self.seen.append((folder, place))
                case ["--ids", uid, gid, *left]:
                    self.ids = int(uid), int(gid)
                case ["--no-network", *left]:
                    self.network = False
                case _:
                    raise SystemExit(f"unknown: {left[0]}")


def main(argv: list[str]) -> None:
    """Become the command behind `--`, within the bounds before it; or, with `--end-all-of UID GID`, end that user's."""
    if argv[:1] == [END_ALL_OF]:
        _end_all_of(int(argv[1]), int(argv[2]))
        return
    parent = os.getppid()
    end = argv.index("--")
    bounds, command = ToldBounds(argv[:end]), argv[end + 1 :]
    for folder in (*bounds.writable, *(path for pair in bounds.seen for path in pair)):
        try:
            os.close(os.open(folder, os.O_PATH | os.O_DIRECTORY))
        except OSError as error:
            sys.stderr.write(f"{folder}: {error.strerror}\n")
            raise SystemExit(_NO_FOLDER) from error
    try:
        os.chdir("/")
        _confine(bounds)
        _die_with(parent)
    except OSError as error:
        at = f" ({error.filename})" if error.filename else ""
        sys.stderr.write(f"{REFUSAL}{error.strerror}{at}\n")
        raise SystemExit(NOT_CONFINED) from error
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python, and that would be inherited
        signal.signal(ignored, signal.SIG_DFL)
    words = (ctypes.c_char_p * (len(command) + 1))(*map(os.fsencode, command), None)
    _libc.execvp(words[0], words)  # `os.execvp` may have to import something, and that user cannot read it
    sys.stderr.write(f"{command[0]} cannot be started: {_failure('').strerror}\n")
    raise SystemExit(NO_PROGRAM)


def _end_all_of(uid: int, gid: int) -> None:
    """Every process of that user ends, in whatever session it is: kill(2) with -1 spares none but the one that asks."""
    os.setgroups([])
    os.setresgid(gid, gid, gid)
    os.setresuid(uid, uid, uid)
    try:
        os.kill(-1, signal.SIGKILL)
    except ProcessLookupError:
        return  # there was nobody


def _confine(bounds: ToldBounds) -> None:
    """Bind this process for good. Raises OSError where it cannot be."""
    rights = _Rights(bounds)  # before anything is mounted: a folder is what its name leads to now
    why_not = _own_mounts(bounds)
    if why_not is not None and bounds.seen:
        raise why_not
    networkless = bounds.network or _unshared(_NEWNET) is None
    _become(bounds.ids)
    if _prctl(_NO_NEW_PRIVILEGES, 1) != 0:
        raise _failure("no_new_privs")
    landlocked = rights.restrict()
    if why_not is not None and not landlocked:
        raise OSError(why_not.errno, f"no mount namespace ({why_not.filename}: {why_not.strerror}) and no Landlock")
    if not networkless:
        _refuse_sockets()


# --- what is mounted -------------------------------------------------------------------------------------------------


def _own_mounts(bounds: ToldBounds) -> OSError | None:
    """Mounts of our own, and no System V or POSIX queues of others; or why not.

    Some hosts allow the namespace and nothing in it. Where that ends it half-way, less can be written and not more.
    """
    uid, gid = os.geteuid(), os.getegid()
    why_not = _unshared(_NEWNS if uid == 0 else _NEWUSER | _NEWNS)
    if why_not is not None:
        return why_not
    try:
        if uid != 0:
            _write("/proc/self/setgroups", "deny")
            _write("/proc/self/uid_map", f"{uid} {uid} 1")
            _write("/proc/self/gid_map", f"{gid} {gid} 1")
        _mounts(bounds)
    except OSError as error:
        return error
    _unshared(_NEWIPC)
    return None


def _mounts(bounds: ToldBounds) -> None:
    # What the host unmounts is unmounted here, too, or a snapshot would be kept busy; nothing goes the other way.
    _checked(_libc.mount(None, b"/", None, ctypes.c_ulong(_MS_REC | _MS_SLAVE), None), "/")
    trees = [(_tree(folder), place) for folder, place in (*((each, each) for each in bounds.writable), *bounds.seen)]
    devices = [(_tree(path), path) for path in _devices()]
    _set("/", _RDONLY | _NOSUID | _NODEV)
    for tree, path in devices:
        _set(tree, _RDONLY | _NOSUID)
        _move(tree, path)
    for tree, place in trees:
        _set(tree, _NOSUID | _NODEV)
        _move(tree, place)  # in their order: one may lie in another


def _devices() -> list[str]:
    return [path for path in (f"/dev/{name}" for name in _HARMLESS_DEVICES) if os.path.exists(path)]  # noqa: PTH110


def _tree(path: str) -> int:
    """A copy of what is mounted there, with all that is mounted below."""
    flags = _OPEN_TREE_CLONE | os.O_CLOEXEC | _AT_RECURSIVE
    return _checked(_libc.syscall(_OPEN_TREE, _HERE, os.fsencode(path), flags), path)


def _move(tree: int, place: str) -> None:
    """The copy is mounted there."""
    flags = _FROM_DESCRIPTOR | _TO_LINKS_END
    _checked(_libc.syscall(_MOVE_MOUNT, tree, b"", _HERE, os.fsencode(place), flags), place)


def _set(what: str | int, attributes: int) -> None:
    """These attributes, in addition, of a mount and all below it."""
    given = _MOUNT_ATTR.pack(attributes, 0, 0, 0)
    descriptor, path = (_HERE, os.fsencode(what)) if isinstance(what, str) else (what, b"")
    flags = _AT_RECURSIVE | _AT_EMPTY_PATH
    _checked(_libc.syscall(_MOUNT_SETATTR, descriptor, path, flags, given, len(given)), "mount_setattr")


# --- what it may do --------------------------------------------------------------------------------------------------


def _become(ids: tuple[int, int] | None) -> None:
    """That user and no other; root keeps what it needs to give files away, and nothing can be got back."""
    uid, gid = ids or (os.geteuid(), os.getegid())
    privileged = os.geteuid() == 0
    last = int(_read("/proc/sys/kernel/cap_last_cap"))
    for capability in range(last + 1):
        if ids is not None or capability not in _KEPT_CAPABILITIES:
            _prctl(_DROP_FROM_BOUNDS, capability)  # it fails where there is none to be dropped from
    if privileged and set(os.getgroups()) - {gid}:
        os.setgroups([])
    if (uid, gid) != (os.geteuid(), os.getegid()):
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
    header, held = struct.pack("=Ii", _CAPABILITY_VERSION, 0), ctypes.create_string_buffer(24)
    _checked(_libc.capget(header, held), "capget")
    kept = _CAPABILITIES.unpack(held.raw)[1] & sum(1 << capability for capability in _KEPT_CAPABILITIES)
    _checked(_libc.capset(header, _CAPABILITIES.pack(kept, kept, 0, 0, 0, 0)), "capset")


def _die_with(parent: int) -> None:
    """A change of user or of namespaces forgets the signal that was asked for before (prctl(2))."""
    _prctl(_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit(f"process {parent} is gone")


class _Rights:
    """Landlock's view of the same bounds."""

    def __init__(self, bounds: ToldBounds) -> None:
        self._ruleset: int | None = None
        version = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _ASK_VERSION)
        if version < 2:
            return
        handled = _CHANGES | (_TRUNCATE if version > 2 else 0)
        attributes = struct.pack("=Q", handled)
        ruleset = _libc.syscall(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
        self._ruleset = _checked(ruleset, "landlock")
        for folder in bounds.writable + [folder for folder, _ in bounds.seen]:
            self._allow(folder, handled & ~(_MAKE_CHAR | _MAKE_BLOCK))
        for path in _devices():
            self._allow(path, handled & (_WRITE_FILE | _TRUNCATE))

    def _allow(self, path: str, rights: int) -> None:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
        rule = _BENEATH.pack(rights, place)
        _checked(_libc.syscall(_ADD_RULE, self._ruleset, _PATH_BENEATH, rule, 0), path)
        os.close(place)

    def restrict(self) -> bool:
        """Whether it holds from now on."""
        if self._ruleset is None:
            return False
        _checked(_libc.syscall(_RESTRICT_SELF, self._ruleset, 0), "landlock")
        os.close(self._ruleset)
        return True


def _refuse_sockets() -> None:
    """A socket that is not local cannot be opened any more, nor a ring that could open one."""
    architecture, socket_number = _SOCKET_NUMBERS.get(os.uname().machine, (0, 0))
    if not architecture:
        raise OSError(0, f"no network namespace, and no filter is known for {os.uname().machine}")
    program = (
        (_LOAD, 0, 0, 4),  # the architecture
        (_IF_EQUAL, 0, 7, architecture),
        (_LOAD, 0, 0, 0),  # the call's number
        (_IF_GREATER, 5, 0, _OTHER_ABI),
        (_IF_EQUAL, 4, 0, _IO_URING_SETUP),
        (_IF_EQUAL, 0, 2, socket_number),
        (_LOAD, 0, 0, 16),  # its first argument, a family
        (_IF_EQUAL, 0, 1, 1),  # AF_UNIX
        (_RETURN, 0, 0, _ALLOW),
        (_RETURN, 0, 0, _REFUSE),
    )
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *line) for line in program))
    given = struct.pack("@HP", len(program), ctypes.addressof(code))
    if _prctl(_SECCOMP, _FILTER_MODE, given) != 0:
        raise _failure("seccomp")


# --- the kernel's answers --------------------------------------------------------------------------------------------


def _unshared(flags: int) -> OSError | None:
    """These namespaces are our own; or why not."""
    return _failure("unshare") if _libc.unshare(flags) != 0 else None


def _prctl(option: int, first: int, second: bytes | int = 0) -> int:
    rest = second if isinstance(second, bytes) else ctypes.c_ulong(second)
    return int(_libc.prctl(option, ctypes.c_ulong(first), rest, ctypes.c_ulong(0), ctypes.c_ulong(0)))


def _checked(answer: int, what: str) -> int:
    if answer < 0:
        raise _failure(what)
    return answer


def _failure(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)


def _write(path: str, text: str) -> None:
    with open(path, "w", encoding="ascii") as file:  # noqa: PTH123 - pathlib takes a third of our time
        file.write(text)


def _read(path: str) -> str:
    with open(path, encoding="ascii") as file:  # noqa: PTH123
        return file.read()


if __name__ == "__main__":
    main(sys.argv[1:])
