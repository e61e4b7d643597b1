"""Which members a tar stream of ours may have, judged from its headers while it passes.

Knows: the part of POSIX tar (pax) that GNU tar `--format=posix` and tarfile write: folders, files (sparse ones too),
hard and symbolic links. Everything else is refused, and so is every name or link that leads out of the folder that
the stream is unpacked into, and whatever could be read in two ways. tar looks at that no more: it is given no header
of a stranger's (`restating`), and the kernel keeps it in the folder (`sandbox`).
"""

import re
import tarfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import PurePosixPath

from backupd.archive.index import LARGEST_FILE, LARGEST_ID, Member, MemberKind, Recorded
from backupd.vocabulary.errors import VerificationError
from backupd.vocabulary.storage import MARKER

_BLOCK = tarfile.BLOCKSIZE
_MAGIC = slice(257, 265)  # pax(1), "ustar Interchange Format": of other formats tar and tarfile read other names
_EXTENDED_MOST = 1 << 20  # names, link targets, xattrs of one member
_NUMBERS = {  # the fields of a header that are numbers; of other forms, signed or binary ones, tars think differently
    "mode": slice(100, 108),
    "uid": slice(108, 116),
    "gid": slice(116, 124),
    "size": slice(124, 136),
    "mtime": slice(136, 148),
}
_OCTAL = re.compile(rb"[0-7]+[\0 ]*")
_DECIMAL = re.compile(r"0|[1-9][0-9]{0,18}", re.ASCII)
_DEEPEST = 200  # folders in one another; a datadir has some ten, and few programs can remove a thousand
_RECORD_LENGTH = re.compile(rb"[1-9][0-9]{0,6} ")
_SPARSE = "GNU.sparse."
_KEYWORDS = re.compile(
    r"path|linkpath|size|[amc]time|[ug]id|[ug]name|hdrcharset|GNU\.sparse\.(major|minor|name|realsize)|SCHILY\..*",
    re.DOTALL,
)  # not GNU.dumpdir, which has tar delete files; nor the older sparse formats
_XATTR = "SCHILY.xattr."
_TIME = re.compile(r"(-?)([0-9]{1,18})(?:\.([0-9]+))?", re.ASCII)
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)
_LINKS = (tarfile.LNKTYPE, tarfile.SYMTYPE)
_KINDS = {
    **dict.fromkeys(_FILES, MemberKind.FILE),
    tarfile.DIRTYPE: MemberKind.FOLDER,
    tarfile.SYMTYPE: MemberKind.SYMLINK,
    tarfile.LNKTYPE: MemberKind.HARD_LINK,
}


def leads_outside(name: str, link: str | None = None) -> bool:
    """Whether a member's name, or where a symbolic link of that name points, leaves the folder that it belongs in.

    A link may climb only at its beginning (`../../x`) and no higher than the folder: then it is inside whatever else
    is a link, as long as no member's own name goes through one.
    """
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts:
        return True
    if link is None:
        return False
    parts = PurePosixPath(link).parts
    climbs = next((i for i, part in enumerate(parts) if part != ".."), len(parts))
    return PurePosixPath(link).is_absolute() or ".." in parts[climbs:] or climbs > len(path.parts) - 1


class Members:
    """Lets a tar stream pass block by block once the headers in the block were found harmless.

    `files` is how many of its members are no folders. Each is `told` once its headers were judged.
    """

    def __init__(self, archive: str, *, told: Callable[[Member], None] = lambda _member: None) -> None:
        self.files = 0
        self._told = told
        self._at = 0  # bytes of the stream that were looked at
        self._began = 0  # where the member begins whose headers are being collected
        self._archive = archive
        self._held = b""  # the beginning of a header that the next block continues
        self._wanted = _BLOCK
        self._skip = 0  # bytes of content until the next header
        self._in_extended: int | None = None  # size of the pax header that is being collected
        self._pax: dict[str, str] = {}
        self._content = 0  # bytes that follow the headers of the member that was met last
        self._sparse = False  # it has holes, and a map of them
        self._ended = False
        self._links: set[str] = set()

    def take(self, block: bytes) -> Iterator[bytes]:
        """The block itself.

        Raises:
            VerificationError: a header in it is damaged, or asks for something that no backup needs.
        """
        for _ in self._pieces(block):
            pass
        yield block

    def _pieces(self, block: bytes) -> Iterator[memoryview | bytes]:
        """Content as it is, and of each header what `_collected` says."""
        view = memoryview(block)
        while view:
            if self._skip:
                gone = min(self._skip, len(view))
                self._skip -= gone
                self._at += gone
                yield view[:gone]
                view = view[gone:]
                continue
            missing = self._wanted - len(self._held)
            self._held += view[:missing].tobytes()
            view = view[missing:]
            if len(self._held) == self._wanted:
                held, self._held, self._wanted = self._held, b"", _BLOCK
                self._at += len(held)
                yield self._collected(held)

    def end(self) -> Iterator[bytes]:
        """Nothing more.

        Raises:
            VerificationError: the stream has no proper end.
        """
        if not self._ended or self._held:
            raise self._refusal("it ends in the middle of a member")
        yield from ()

    def _collected(self, held: bytes) -> bytes:
        """What is passed on in its place."""
        if self._in_extended is not None:
            self._pax = self._records(held[: self._in_extended])
            self._in_extended = None
        elif not any(held):
            if self._pax:
                raise self._refusal("an extended header is followed by nothing")
            self._ended = True
        elif self._ended:
            raise self._refusal("something follows its end")
        else:
            self._header(held)
        return held

    def _header(self, held: bytes) -> None:
        if held[_MAGIC] != tarfile.POSIX_MAGIC:
            raise self._refusal("a header is of another format")
        try:
            info = tarfile.TarInfo.frombuf(held, "utf-8", "surrogateescape")
        except tarfile.HeaderError as error:
            raise self._refusal(f"a header is damaged ({error})") from error
        for field, place in _NUMBERS.items():
            if not _OCTAL.fullmatch(held[place]):
                raise self._refusal(f"a header's {field} is not an octal number")
        if info.type == tarfile.XHDTYPE:
            if self._pax:
                raise self._refusal("an extended header is followed by another")
            if not 0 < info.size <= _EXTENDED_MOST:
                raise self._refusal(f"an extended header has {info.size} bytes")
            self._in_extended, self._wanted = info.size, _whole_blocks(info.size)
            return
        pax, self._pax = self._pax, {}
        size = self._number(pax, "size", info.size, LARGEST_FILE)
        self._sparse = self._has_holes(info, pax)
        name = pax.get("GNU.sparse.name") or pax.get("path") or info.name
        self._judge(info, name, pax.get("linkpath", ""))
        if size and info.type not in _FILES:
            raise self._refusal(f"{info.name!r} cannot have {size} bytes")
        self._content, self._skip = size, _whole_blocks(size)
        ends = self._at + self._skip
        self._told(Member(name, self._began, ends - self._began, self._recorded(info, pax, size)))
        self._began = ends

    def _recorded(self, info: tarfile.TarInfo, pax: Mapping[str, str], size: int) -> Recorded:
        return Recorded(
            kind=_KINDS[info.type],
            size=self._number(pax, "GNU.sparse.realsize", size, LARGEST_FILE),
            mode=info.mode & 0o7777,
            uid=self._number(pax, "uid", info.uid, LARGEST_ID),
            gid=self._number(pax, "gid", info.gid, LARGEST_ID),
            mtime_ns=self._nanoseconds(pax.get("mtime", str(info.mtime))),
            target=(pax.get("linkpath") or info.linkname) if info.type in _LINKS else "",
            xattrs={
                _unescaped(keyword.removeprefix(_XATTR)): value.encode("utf-8", "surrogateescape")
                for keyword, value in pax.items()
                if keyword.startswith(_XATTR)
            },
        )

    def _number(self, pax: Mapping[str, str], keyword: str, otherwise: int, largest: int) -> int:
        text = pax.get(keyword)
        if text is not None and not _DECIMAL.fullmatch(text):
            raise self._refusal(f"{keyword} is not a number")
        found = otherwise if text is None else int(text)
        if found > largest:
            raise self._refusal(f"{keyword} is {found}")
        return found

    def _has_holes(self, info: tarfile.TarInfo, pax: Mapping[str, str]) -> bool:
        """Such a file has a name, a size and version 1.0 of the format beside its header; no other has any of that."""
        told = {keyword.removeprefix(_SPARSE) for keyword in pax if keyword.startswith(_SPARSE)}
        if not told:
            return False
        if info.type not in _FILES or told != {"major", "minor", "name", "realsize"}:
            raise self._refusal(f"{info.name!r} has an unknown sparse format")
        if (pax["GNU.sparse.major"], pax["GNU.sparse.minor"]) != ("1", "0"):
            raise self._refusal(f"{info.name!r} has holes of another version")
        return True

    def _nanoseconds(self, text: str) -> int:
        time = _TIME.fullmatch(text)
        if time is None:
            raise self._refusal("a time is not a number")
        sign, seconds, fraction = time.groups()
        found = int(seconds) * 10**9 + int((fraction or "").ljust(9, "0")[:9])
        return -found if sign else found

    def _judge(self, info: tarfile.TarInfo, name: str, linkpath: str) -> None:
        path = PurePosixPath(name)
        link = linkpath or info.linkname
        if info.type not in (*_FILES, *_LINKS, tarfile.DIRTYPE):
            raise self._refusal(f"{name!r} is neither a file, a folder nor a link")
        if info.type != tarfile.DIRTYPE and (name.endswith("/") or not path.name):
            raise self._refusal(f"{name!r} ends in / and is not a folder")
        if len(path.parts) > _DEEPEST:
            raise self._refusal(f"{name[:80]!r}… is {len(path.parts) - 1} folders deep")
        if path.parts[:1] and path.parts[0].startswith(MARKER):
            raise self._refusal(f"the name {name!r} is one of backupd's own")
        if leads_outside(name) or not self._links.isdisjoint(str(parent) for parent in (path, *path.parents)):
            raise self._refusal(f"the name {name!r} leads outside or through a link")
        if info.type == tarfile.LNKTYPE and leads_outside(link):
            raise self._refusal(f"the hard link {name!r} leads outside: {link!r}")
        if info.type == tarfile.SYMTYPE:
            if leads_outside(name, link):
                raise self._refusal(f"the link {name!r} leads outside: {link!r}")
            self._links.add(str(path))
        self.files += info.type != tarfile.DIRTYPE

    def _records(self, data: bytes) -> dict[str, str]:
        """pax records: `LENGTH KEYWORD=VALUE\\n`, LENGTH counting the whole record (pax(1), "pax Extended Header")."""
        found: dict[str, str] = {}
        while data:
            length = (_RECORD_LENGTH.match(data) or (b"",))[0].rstrip()
            size = int(length or b"0")
            keyword, equals, value = data[len(length) + 1 : size].decode("utf-8", "surrogateescape").partition("=")
            if not equals or not value.endswith("\n") or size > len(data):
                raise self._refusal("an extended header is damaged")
            if not _KEYWORDS.fullmatch(keyword):
                raise self._refusal(f"an extended header has the unknown keyword {keyword!r}")
            if "\0" in value and not keyword.startswith(_XATTR):
                raise self._refusal(f"an extended header has a {keyword} with a NUL, where tar would end it")
            if keyword in found:
                raise self._refusal(f"an extended header has {keyword} twice")
            found[keyword] = value[:-1]
            data = data[size:]
        return found

    def _refusal(self, why: str) -> VerificationError:
        return VerificationError(
            f"{self._archive} was not written by backupd: {why}",
            hint="it was damaged or changed on the target; restore another backup",
        )


def _unescaped(keyword: str) -> str:
    """A name with `=` in it would end early as a keyword (GNU tar, xheader.c)."""
    return keyword.replace("%3D", "=").replace("%25", "%")


def _whole_blocks(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK
