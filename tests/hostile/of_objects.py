"""Hostile objects: frames that lie, what unpacks to more than it says, indexes that lie, ciphers for somebody else."""

import random
import sys
from collections.abc import Callable, Iterator
from typing import Any

from tests.hostile.attacks import EVERY, Attack, Base, Command, Ground
from tests.hostile.backups import (
    BINLOGS,
    FIRST,
    FIRST_OBJECT,
    INDEX,
    SECOND,
    SECOND_OBJECT,
    Backup,
    index_of,
)
from tests.hostile.tarring import END, file, line, stream

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_MIB = 1 << 20
_GIB = 1 << 30
_BY_BYTES = frozenset({Command.VERIFY, Command.RESTORE, Command.DRILL})
_BY_CONTENT = frozenset({Command.RESTORE, Command.DRILL})
_BY_INDEX = frozenset({Command.RESTORE, Command.TABLES, Command.DRILL})


def attacks(chance: random.Random) -> Iterator[Attack]:
    yield from _frames(chance)
    yield from _bombs()
    yield from _indexes()
    yield from _ciphers()


def _frames(chance: random.Random) -> Iterator[Attack]:
    def lying(name: str, lie: Callable[[list[dict[str, Any]]], object]) -> Attack:
        def change(backup: Backup, _ground: Ground) -> None:
            plain, _, files = stream((*FIRST, file("more", bytes(3 * _MIB))))
            backup.put_plain(FIRST_OBJECT, plain, files)
            lie(backup.told(FIRST_OBJECT)["frames"])

        return Attack(f"frames: {name}", change, concerns=_BY_BYTES | {Command.TABLES}, refused_by=_BY_BYTES)

    yield lying("none", list.clear)
    yield lying("the last one is missing", list.pop)
    yield lying("in another order", list.reverse)
    yield lying("one twice", lambda frames: frames.append(frames[0]))
    yield lying("one begins before the one before it ends", lambda frames: _shift(frames, -512))
    yield lying("one begins after the one before it has ended", lambda frames: _shift(frames, 512))
    yield lying("one of less than nothing", lambda frames: _shift(frames, -(1 << 40)))
    yield lying("one of 8 EiB and one that takes them back", lambda frames: _shift(frames, (1 << 62)))
    yield lying("digests of others", lambda frames: frames[0].update(stored_sha256=frames[1]["stored_sha256"]))
    yield lying(
        "a digest in capitals", lambda frames: frames[0].update(stored_sha256=frames[0]["stored_sha256"].upper())
    )

    def sizes_swapped(backup: Backup, _ground: Ground) -> None:
        for told in backup.stored:
            told["plain_bytes"], told["stored_bytes"] = told["stored_bytes"], told["plain_bytes"]

    def cut(backup: Backup, _ground: Ground) -> None:
        backup.objects[FIRST_OBJECT] = backup.objects[FIRST_OBJECT][:-1]

    def longer(backup: Backup, _ground: Ground) -> None:
        backup.objects[FIRST_OBJECT] += b"\0"

    def empty(backup: Backup, _ground: Ground) -> None:
        backup.put_packed(SECOND_OBJECT, b"", 0, files=2)

    def swapped(backup: Backup, _ground: Ground) -> None:
        first, second = backup.objects[FIRST_OBJECT], backup.objects[SECOND_OBJECT]
        backup.objects.update({FIRST_OBJECT: second, SECOND_OBJECT: first})

    for name, change in {
        "sizes of plain and stored bytes are swapped": sizes_swapped,
        "an object is a byte shorter": cut,
        "an object is a byte longer": longer,
        "an object of nothing": empty,
        "two objects are swapped": swapped,
    }.items():
        yield Attack(f"frames: {name}", change, concerns=_BY_BYTES, refused_by=_BY_CONTENT)
    for number in range(6):

        def noise(backup: Backup, _ground: Ground, seed: int = chance.randrange(1 << 30)) -> None:
            """The digests are as they have to be: it is zstd that meets the noise."""
            own = random.Random(seed)
            packed = bytearray(backup.objects[SECOND_OBJECT])
            for _ in range(8):
                packed[own.randrange(len(packed))] = own.randrange(256)
            backup.put_packed(SECOND_OBJECT, bytes(packed), backup.told(SECOND_OBJECT)["plain_bytes"], files=2)

        yield Attack(
            f"frames: noise in what zstd gets, no. {number}", noise, concerns=_BY_BYTES, refused_by=_BY_CONTENT
        )


def _shift(frames: list[dict[str, Any]], by: int) -> None:
    frames[0]["stored_bytes"] += by
    frames[1]["stored_bytes"] -= by


def _bombs() -> Iterator[Attack]:
    def packed(name: str, made: Callable[[], bytes], plain_bytes: int) -> Attack:
        def change(backup: Backup, _ground: Ground) -> None:
            backup.put_packed(SECOND_OBJECT, made(), plain_bytes, files=2)

        return Attack(f"bomb: {name}", change, concerns=_BY_BYTES, refused_by=_BY_CONTENT)

    sound = len(stream(SECOND)[0])
    yield packed("2 GiB that say they are 40 KiB", lambda: _of_zeros(2 * _GIB), sound)
    yield packed("2 GiB that say they are 1 PiB", lambda: _of_zeros(2 * _GIB), 1 << 50)
    yield packed("300 MiB as they say, which are no archive", lambda: _of_zeros(300 * _MIB), 300 * _MIB)
    yield packed("a window of 2 GiB", lambda: _of_zeros(_MIB, window_log=31), _MIB)
    yield packed("a window of 128 MiB", lambda: _of_zeros(600 * _MIB, window_log=27), sound)
    yield packed("a frame that says it unpacks to 16 EiB", lambda: _of_size((1 << 64) - 1), sound)
    yield packed("a frame for a dictionary that nobody has", lambda: _MAGIC + b"\x23\xff\xff\xff\xff\0", sound)
    yield packed("frames to be skipped, of 4 GiB", lambda: b"\x50\x2a\x4d\x18\xff\xff\xff\xff" + bytes(_MIB), sound)
    yield packed("1,000,000 empty frames", lambda: zstd.compress(b"") * 1_000_000, sound)
    yield packed("not zstd", lambda: b"\x1f\x8b\x08" + bytes(100_000), sound)
    yield packed("half a frame", lambda: zstd.compress(stream(SECOND)[0])[:-9], sound)

    def followed(backup: Backup, _ground: Ground) -> None:
        plain, _, files = stream(SECOND)
        backup.put_packed(SECOND_OBJECT, zstd.compress(plain) + b"#!/bin/sh\n", len(plain), files=files)

    yield Attack("bomb: letters after the last frame", followed, concerns=_BY_BYTES, refused_by=_BY_CONTENT)

    def large_frame(backup: Backup, _ground: Ground) -> None:
        told = backup.told(SECOND_OBJECT)
        told["frames"][0]["stored_bytes"] = told["stored_bytes"] = 1 << 40

    yield Attack("bomb: a frame of 1 TiB", large_frame, concerns=_BY_BYTES, refused_by=_BY_BYTES)


_MAGIC = b"\x28\xb5\x2f\xfd"  # RFC 8878, "Zstandard Frames"


def _of_zeros(size: int, *, window_log: int | None = None) -> bytes:
    options: dict[int, int] = {zstd.CompressionParameter.compression_level: 1}
    if window_log is not None:
        options[zstd.CompressionParameter.window_log] = window_log
    packer = zstd.ZstdCompressor(options=options)
    zeros = bytes(16 * _MIB)
    return (
        b"".join(packer.compress(zeros[: min(len(zeros), size - at)]) for at in range(0, size, len(zeros)))
        + packer.flush()
    )


def _of_size(size: int) -> bytes:
    """A frame of one segment that has this content size, and an empty last block."""
    return _MAGIC + b"\xe0" + size.to_bytes(8, "little") + b"\x01\0\0"


def _indexes() -> Iterator[Attack]:
    def index(name: str, made: Callable[[Backup], bytes], *, refused: bool = True) -> Attack:
        return Attack(
            f"index: {name}",
            lambda backup, _ground: backup.put_index(made(backup)),
            concerns=_BY_INDEX,
            refused_by=_BY_CONTENT if refused else frozenset(),
        )

    def lines(*documents: object) -> Callable[[Backup], bytes]:
        return lambda backup: index_of(backup.lines) + line({"object": FIRST_OBJECT}) + b"".join(map(line, documents))

    def member(**changes: Any) -> dict[str, Any]:
        return {"offset": 0, "bytes": 512, **(file("shop/orders.ibd").told or {}), **changes}

    yield index("nothing", lambda _backup: b"")
    yield index("no line's end", lambda backup: index_of(backup.lines)[:-1])
    yield index("a later major", lambda _backup: line({"index": {"major": 2, "minor": 0}}))
    yield index("a first line of another kind", lambda backup: line({"object": "x"}) + index_of(backup.lines))
    yield index("not UTF-8", lambda backup: index_of(backup.lines) + b'{"name": "\xff\xfe"}\n')
    yield index("nested a million deep", lambda backup: index_of(backup.lines) + b"[" * _MIB + b"\n")
    yield index("a line of 64 MiB", lambda backup: index_of(backup.lines) + b'{"x": "' + b"x" * (64 * _MIB) + b'"}\n')
    yield index(
        "a number of 100,000 digits", lambda backup: index_of(backup.lines) + b'{"x": ' + b"9" * 100_000 + b"}\n"
    )
    for name in ("../outside/victim", "/etc/passwd", "shop/../../outside/secret", "a\0b", "gone"):
        yield index(f"a member called {name!r}", lines(member(name=name)))
    yield index(
        "a member whose name is the terminal's", lines(member(name="\x1b]0;owned\x07\x1b[2J\n\\! touch victim"))
    )
    for key, value in (
        ("offset", -512),
        ("offset", 1 << 62),
        ("offset", 1 << 70),
        ("bytes", 0),
        ("bytes", -1),
        ("bytes", 1 << 62),
        ("size", -1),
        ("size", 1 << 70),
        ("mode", "rwx"),
        ("mode", "-1"),
        ("uid", -1),
        ("uid", 1 << 40),
        ("mtime_ns", 1 << 90),
        ("kind", "device"),
        ("kind", []),
        ("xattrs", {"user.x": "no base 64"}),
        ("xattrs", {"user.x": 7}),
        ("xattrs", {"\0/../x": ""}),
    ):
        yield index(
            f"a member's {key} is {value!r}", lines(member(**{key: value})), refused=key != "kind" or value == []
        )
    yield index(
        "a folder in another year",
        lines({**member(name="more", kind="folder", mode="0755"), "mtime_ns": 1 << 62}),
        refused=False,
    )
    for key, value in (("mtime_ns", 10**40), ("uid", 1 << 40), ("xattrs", {"system.posix_acl_default\0": ""})):
        folder = member(name="more", kind="folder", mode="0755")
        yield index(f"a folder's {key} is {value!r}", lines({**folder, key: value}))
    yield index("a member whose name stands for no bytes", lines(member(name="shop/\ud800")))
    yield index("a hard link to what stands for no bytes", lines({**member(kind="hardlink"), "target": "\ud800"}))
    yield index("a hard link to a file outside", lines({**member(kind="hardlink"), "target": "../outside/secret"}))
    yield index("members in another order", _turned, refused=False)
    yield index("each table is as large as all", _overlapping)
    yield index("silent about everything", lambda _backup: index_of({}))
    yield index("silent about one object", lambda backup: index_of({FIRST_OBJECT: backup.lines[FIRST_OBJECT]}))
    yield index("of another backup", lambda _backup: index_of({FIRST_OBJECT: stream(BINLOGS)[1]}))
    yield index(
        "of objects that are not there",
        lambda backup: index_of({"../x": b"", "\x1b[2J": b"", **backup.lines}),
        refused=False,
    )
    yield index("of a table that is outside", lines(member(name="shop/../../outside/live.ibd")))

    def bomb(of: bytes) -> Callable[[Backup, Ground], object]:
        def change(backup: Backup, _ground: Ground) -> None:
            head = index_of(backup.lines)
            times = 800 * _MIB // len(of)
            packer = zstd.ZstdCompressor(level=1)
            piece = of * (4 * _MIB // len(of))
            count = times // (len(piece) // len(of))
            packed = packer.compress(head) + b"".join(packer.compress(piece) for _ in range(count)) + packer.flush()
            backup.put_packed(INDEX, packed, len(head) + count * len(piece))

        return change

    yield Attack("index: 800 MiB of blanks", bomb(b" "), concerns=_BY_INDEX, refused_by=_BY_CONTENT)
    yield Attack(
        "index: 800 MiB of lines that mean nothing", bomb(b'{"x":"' + b"x" * 1000 + b'"}\n'), concerns=_BY_INDEX
    )
    yield Attack(
        "index: 800 MiB of members", bomb(line(member(name="shop/no.ibd"))), concerns=_BY_INDEX, refused_by=_BY_CONTENT
    )

    def no_index(backup: Backup, _ground: Ground) -> None:
        backup.body["objects"] = [told for told in backup.stored if not told["name"].startswith("index")]

    yield Attack("index: none", no_index, concerns=_BY_INDEX | {Command.VERIFY}, refused_by=_BY_INDEX)

    def more_than_told(backup: Backup, _ground: Ground) -> None:
        backup.put(SECOND_OBJECT, (*SECOND, file("more/cron", b"* * * * * root id\n").silent()))

    yield Attack("index: silent about one file", more_than_told, concerns=_BY_INDEX)


def _turned(backup: Backup) -> bytes:
    return index_of({name: b"".join(reversed(told.splitlines(keepends=True))) for name, told in backup.lines.items()})


def _overlapping(backup: Backup) -> bytes:
    every = [{"offset": 0, "bytes": 1 << 30, **(file(f"shop/t{number}.ibd").told or {})} for number in range(1000)]
    return index_of({FIRST_OBJECT: b"".join(map(line, every))})


def _ciphers() -> Iterator[Attack]:
    def sealed(
        name: str,
        change: Callable[[Backup, Ground], object],
        *,
        refused_by: frozenset[Command] = _BY_CONTENT,
        substitutes: bool = False,
    ) -> Attack:
        return Attack(
            f"cipher: {name}",
            change,
            base=Base.SEALED,
            concerns=EVERY - {Command.CLONE},
            refused_by=refused_by,
            substitutes=substitutes,
        )

    def plain(backup: Backup, ground: Ground, *, recipients: bool = False) -> None:
        """As anybody can make it who has never seen the key."""
        other = ground.sound("r1")
        kept = backup.body["recipients"]
        backup.body, backup.objects, backup.lines = other.body, other.objects, other.lines
        if recipients:
            backup.body["recipients"] = kept

    def one_plain(backup: Backup, _ground: Ground) -> None:
        bytes_, backup.lines[SECOND_OBJECT], files = stream(SECOND)
        backup.put_plain(SECOND_OBJECT, bytes_, files, recipients=())

    def plain_in_disguise(backup: Backup, _ground: Ground) -> None:
        bytes_, _, files = stream(SECOND)
        name = SECOND_OBJECT + ".age"
        packed = zstd.compress(bytes_)
        backup.put_packed(name, packed, len(bytes_), files=files)

    def another_recipient(backup: Backup, _ground: Ground) -> None:
        """Everybody can encrypt for a public key: what is sealed is not therefore ours."""
        backup.put(SECOND_OBJECT, (*SECOND, file("more/planted")))

    def header(made: Callable[[bytes], bytes]) -> Callable[[Backup, Ground], object]:
        def change(backup: Backup, _ground: Ground) -> None:
            name = SECOND_OBJECT + ".age"
            told = backup.told(SECOND_OBJECT)
            backup.put_packed(name, made(backup.objects[name]), told["plain_bytes"], files=told["files"])

        return change

    end = b"\n--- "
    yield sealed("plain where it was encrypted", plain, substitutes=True, refused_by=frozenset())
    yield sealed(
        "plain where it was encrypted, and the recipients as recorded",
        lambda backup, ground: plain(backup, ground, recipients=True),
        substitutes=True,
        refused_by=frozenset(),
    )
    yield sealed("one object is plain", one_plain, substitutes=True, refused_by=frozenset())
    yield sealed("one object is plain and called encrypted", plain_in_disguise)
    yield sealed("sealed for us, by somebody else", another_recipient, substitutes=True, refused_by=frozenset())
    yield sealed(
        "nobody is its recipient",
        lambda backup, _ground: backup.body.update(recipients=[]),
        substitutes=True,
        refused_by=frozenset(),
    )
    yield sealed("a header without an end", header(lambda packed: packed.replace(end, b"\nxxx ")))
    yield sealed("another header's authentication", header(lambda packed: packed.replace(end, end + b"AAAA")))
    yield sealed(
        "100,000 recipients", header(lambda packed: packed.replace(end, b"\n-> X25519 AAAA\nAAAA" * 100_000 + end))
    )
    yield sealed("a header of 64 MiB", header(lambda packed: packed.replace(end, b"\n-> " + b"x" * (64 * _MIB) + end)))
    yield sealed(
        "a passphrase that takes 2⁶² attempts",
        header(lambda packed: packed.replace(b"-> X25519 ", b"-> scrypt AAAAAAAAAAAAAAAAAAAAAA 62\n-> X25519 ", 1)),
    )
    yield sealed("another version", header(lambda packed: packed.replace(b"/v1\n", b"/v9\n")))
    yield sealed("a payload that is cut at a chunk", header(lambda packed: packed[: packed.index(end) + 60 + 16]))
    yield sealed("a payload with a bit turned", header(lambda packed: packed[:-1] + bytes([packed[-1] ^ 1])))
    yield sealed("a payload with something after it", header(lambda packed: packed + b"x" * 100))
    yield sealed("not age at all", header(lambda _packed: END))
