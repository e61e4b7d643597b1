"""Hostile archives: members that lead elsewhere, that are what no backup has, or that two programs read differently."""

import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tests.hostile.attacks import SERVERS, Attack, Base, Command, Ground
from tests.hostile.backups import BINLOG, FIRST, FIRST_OBJECT, SECOND, SECOND_OBJECT, Backup
from tests.hostile.tarring import (
    BLOCK,
    END,
    Entry,
    Record,
    extended,
    file,
    folder,
    hard_link,
    padded,
    record,
    stream,
    symlink,
    ustar,
)

_CONCERNS = _REFUSED_BY = frozenset({Command.RESTORE, Command.DRILL})
_SIZE = (124, 136)

Members = Callable[[Ground], Sequence[Entry]]


def attacks(chance: random.Random) -> Iterator[Attack]:
    """Of each way to lead outside several places to lead to."""
    yield from _in_a_datadir()
    yield from _names()
    yield from _links()
    yield from _across_objects()
    yield from _our_own_names()
    yield from _kinds()
    yield from _modes()
    yield from _records()
    yield from _sizes()
    yield from _sparse()
    yield from _ends()
    yield from _damaged_at_random(chance)


def _attack(name: str, made: Members, *, refused: bool = True, first: bool = False) -> Attack:
    """The members come after those of an object that is sound."""

    def change(backup: Backup, ground: Ground) -> None:
        sound, of = (FIRST, FIRST_OBJECT) if first else (SECOND, SECOND_OBJECT)
        backup.put(of, (*sound, *made(ground)))

    return Attack(f"archive: {name}", change, concerns=_CONCERNS, refused_by=_REFUSED_BY if refused else frozenset())


def _across(name: str, before: Members, after: Members, *, refused: bool = True) -> Attack:
    """Some members in one object, and the others in the next one, which is unpacked at the same time, or later."""

    def change(backup: Backup, ground: Ground) -> None:
        backup.put(FIRST_OBJECT, (*FIRST, *before(ground)))
        backup.put(SECOND_OBJECT, (*SECOND, file("more/large", bytes(8 << 20)), *after(ground)))

    return Attack(f"archive: {name}", change, concerns=_CONCERNS, refused_by=_REFUSED_BY if refused else frozenset())


def _always(members: Sequence[Entry]) -> Members:
    """The same ones, wherever it is."""
    return lambda _ground: members


def _raw(headers: bytes, content: bytes = b"", *, like: Entry | None = None) -> Entry:
    return Entry(headers, content, None if like is None else like.told)


def _in_a_datadir() -> Iterator[Attack]:
    """Files by which a server on the copy may be led elsewhere, or told what to do."""

    def planted(name: str, made: Members) -> Attack:
        def change(backup: Backup, ground: Ground) -> None:
            backup.put(SECOND_OBJECT, made(ground))

        return Attack(f"datadir: {name}", change, base=Base.SERVER, concerns=SERVERS)

    def binlogs(name: str, index: Callable[[Ground], str]) -> Attack:
        def change(backup: Backup, ground: Ground) -> None:
            log, *_ = backup.entries[BINLOG]
            backup.put(BINLOG, [log, file("bin.index", index(ground).encode(), mode=0o660)])

        return Attack(f"datadir: {name}", change, base=Base.SERVER, concerns=SERVERS)

    yield planted(
        "a tablespace that lies outside", lambda ground: [file("t/far.isl", f"{ground.outside}/far.ibd".encode())]
    )
    yield planted(
        "a tablespace by its name that is a live one",
        lambda ground: [file("t/far.isl", f"{ground.outside}/live/ibdata1".encode()), file("t/far.frm")],
    )
    yield planted("a list of tablespaces without an end", lambda _ground: [file("t/far.isl", b"/" * (8 << 20))])
    yield planted("a list of tablespaces that is no text", lambda _ground: [file("t/far.isl", b"\xff\xfe\0" * 100)])
    yield planted("a list of tablespaces that is a folder", lambda _ground: [folder("t/far.isl")])
    yield planted(
        "options in a file",
        lambda ground: [
            file(name, f"[mariadbd]\nplugin-load-add={ground.library}\n[mysqld]\ninit-file={ground.secret}\n".encode())
            for name in ("my.cnf", ".my.cnf", "mysqld-auto.cnf", "auto.cnf")
        ],
    )
    yield planted(
        "a replica's place with another server's address",
        lambda _ground: [
            file(
                "master.info", b"33\nbin.000001\n4\n192.0.2.1\nroot\nsecret\n3306\n60\n0\n\n\n\n\n\n0\n1800.000\n\n0\n"
            ),
            file("relay-log.info", b"./relay-bin.000001\n4\nbin.000001\n4\n"),
        ],
    )
    yield planted(
        "tables that are links to one another",
        lambda _ground: [symlink("t/a.MYD", "b.MYD"), symlink("t/b.MYD", "a.MYD"), file("t/a.frm")],
    )
    yield planted(
        "a table that is a link to a file of another",
        lambda _ground: [symlink("t/a.MYD", "../ibdata1"), file("t/a.MYI")],
    )
    yield planted(
        "definitions of noise", lambda _ground: [file(f"t/noise{n}.frm", bytes([254, 1, n]) * 900) for n in range(9)]
    )
    yield planted(
        "a schema whose name is an escape",
        lambda _ground: [
            folder("@002e@002e@002foutside"),
            file("@002e@002e@002foutside/victim.frm"),
            folder("a\n\\! touch victim"),
        ],
    )
    yield binlogs("an index of binlogs that lie outside", lambda ground: f"{ground.victim}\n{ground.secret}\n")
    yield binlogs("an index of binlogs that climbs", lambda _ground: "../outside/victim\n../../../outside/victim\n")
    yield binlogs("an index of binlogs of 500,000 lines", lambda _ground: "./bin.000001\n" * 500_000)
    yield binlogs("an index of binlogs that are devices", lambda _ground: "/dev/zero\n/dev/tty\n")


def _names() -> Iterator[Attack]:
    yield _attack("an absolute name", lambda ground: [file(str(ground.victim))])
    yield _attack("an absolute name with two slashes", lambda ground: [file(f"/{ground.victim}")])
    yield _attack(
        "an absolute name in a record", lambda ground: [file("x", records=[(b"path", str(ground.victim).encode())])]
    )
    for name in (
        "../outside/victim",
        "more/../../outside/victim",
        "./../outside/victim",
        "../../../outside/victim",
        "more/./.././../outside/victim",
        "..",
        "more/..",
    ):
        yield _attack(f"the name {name}", _always([file(name)]))
        yield _attack(f"the name {name} in a record", _always([file("x", records=[(b"path", name.encode())])]))
    yield _attack(
        "a name that is parted between prefix and name",
        lambda _ground: [_raw(ustar(b"victim", fields={(345, 500): b"../outside"}), like=file("victim", b""))],
    )
    yield _attack("no name", lambda _ground: [_raw(ustar(b""), like=file("x", b""))])
    yield _attack("a name of blanks and an option", lambda _ground: [file(" --to-command=touch victim")], refused=False)
    yield _attack(
        "a name that is an option of tar's",
        lambda _ground: [file("--checkpoint=1"), file("--checkpoint-action=exec=touch victim")],
        refused=False,
    )
    for how, name in {
        "a new line and a command": "shop\n\\! touch victim",
        "the terminal's commands": "\x1b]0;owned\x07\x1b[2J",
        "bytes of no encoding": "\udcff\udcfe\udc9b2J",
        "a backslash and digits": "x\\057..\\057outside",
        "wildcards": "*[a-z]?{a,b}",
        "a carriage return": "a\rerror: all is well",
    }.items():
        yield _attack(f"a name with {how}", _always([file(name)]), refused=False)
        yield _attack(f"a name with {how} that climbs", _always([file(f"../outside/{name}")]))
    yield _attack("a name of 100,000 letters", lambda _ground: [file("x", records=[(b"path", b"x" * 100_000)])])
    yield _attack("a name of 3,000 folders", lambda _ground: [file("x", records=[(b"path", b"d/" * 3000 + b"f")])])
    yield _attack(
        "a name of more folders than there may be levels of a stack",
        lambda _ground: [file("x", records=[(b"path", b"d/" * 400_000 + b"f")])],
    )
    yield _attack("a NUL in a record's name", lambda ground: [file("x", records=[(b"path", b"a\0/../../x")])])
    yield _attack("a file where a folder stands", lambda _ground: [file("more")])
    yield _attack("a folder where a file stands", lambda _ground: [folder("more/z.ibd")])
    yield _attack("the folder itself is a file", lambda _ground: [file(".")])
    yield _attack("the folder itself is a link", lambda ground: [symlink(".", str(ground.outside))])
    yield _attack("the folder itself is open to all", lambda _ground: [folder(".", mode=0o7777)], refused=False)
    yield _attack(
        "10,000 files", lambda _ground: [file(f"more/{number}", b"") for number in range(10_000)], refused=False
    )


def _links() -> Iterator[Attack]:
    def through(link: Entry, name: str) -> list[Entry]:
        return [link, file(name)]

    yield _attack("a link outside", lambda ground: [symlink("way", str(ground.outside))])
    yield _attack(
        "a file through a link outside", lambda ground: through(symlink("way", str(ground.outside)), "way/victim")
    )
    yield _attack(
        "a file through a link that climbs", lambda _ground: through(symlink("way", "../outside"), "way/victim")
    )
    yield _attack("a link to a secret", lambda ground: [symlink("shop/orders.ibd2", str(ground.secret))])
    yield _attack(
        "a link with a target in a record",
        lambda ground: [
            _raw(
                extended([(b"linkpath", str(ground.outside).encode())]) + ustar(b"way", b"2"), like=symlink("way", "x")
            ),
            file("way/victim"),
        ],
    )
    yield _attack(
        "a link whose record has it elsewhere than its header",
        lambda ground: [
            _raw(
                extended([(b"linkpath", str(ground.outside).encode())]) + ustar(b"way", b"2", link=b"more"),
                like=symlink("way", "more"),
            ),
            file("way/victim"),
        ],
    )
    yield _attack(
        "a link to nothing, and a file of its name",
        lambda _ground: [symlink("more/way", "../gone"), file("more/way")],
        refused=False,
    )
    yield _attack("a file through a link inside", lambda _ground: through(symlink("way", "more"), "way/victim"))
    yield _attack(
        "a link that goes down and up", lambda _ground: through(symlink("way", "more/../../outside"), "way/victim")
    )
    yield _attack(
        "a link of links",
        lambda _ground: [
            symlink("more/a", ".."),
            symlink("b", "more/a/.."),
            symlink("c", "b/outside"),
            file("c/victim"),
        ],
    )
    yield _attack(
        "a file through a link that was a folder before",
        lambda ground: [folder("way"), file("way/x"), symlink("way", str(ground.outside)), file("way/victim")],
    )
    yield _attack(
        "a link that leads round in circles",
        lambda _ground: [symlink("more/a", "b"), symlink("more/b", "a"), file("more/a/x")],
    )
    for how, target in {"outside": "{outside}/victim", "that climbs": "../outside/victim"}.items():
        yield _attack(
            f"a hard link {how}",
            partial(_hard_linked, target),
        )
        yield _attack(
            f"a hard link {how} and a file through it",
            partial(_hard_linked_and_written, target),
        )
        yield _attack(
            f"a hard link {how} by a record",
            partial(_hard_linked_by_a_record, target),
        )
    yield _attack("a hard link to a folder", lambda _ground: [hard_link("mine", "more")])
    yield _attack("a hard link to itself", lambda _ground: [hard_link("mine", "mine")])
    yield _attack(
        "a hard link with content",
        lambda _ground: [
            _raw(ustar(b"mine", b"1", link=b"more/z.ibd", size=7), b"hostile", like=hard_link("mine", "more/z.ibd"))
        ],
    )
    yield _attack(
        "a hard link to a link, at another place",
        lambda _ground: [*_deep(), hard_link("way", "a/b/c/way"), file("way/victim")],
    )
    yield _attack(
        "a hard link to a link, at another place, and nothing through it",
        lambda _ground: [*_deep(), hard_link("way", "a/b/c/way")],
    )
    yield _attack(
        "a hard link through a link",
        lambda _ground: [*_deep(), hard_link("way", "a/b/c/way"), hard_link("mine", "way/victim")],
    )
    yield _attack(
        "a hard link to a link to a file outside",
        lambda _ground: [
            folder("a"),
            folder("a/b"),
            symlink("a/b/way", "../../outside/victim"),
            hard_link("mine", "a/b/way"),
            file("mine"),
        ],
    )


def _hard_linked(target: str, ground: Ground) -> list[Entry]:
    return [hard_link("mine", target.format(outside=ground.outside))]


def _hard_linked_and_written(target: str, ground: Ground) -> list[Entry]:
    return [*_hard_linked(target, ground), file("mine")]


def _hard_linked_by_a_record(target: str, ground: Ground) -> list[Entry]:
    linkpath = target.format(outside=ground.outside).encode()
    return [_raw(extended([(b"linkpath", linkpath)]) + ustar(b"mine", b"1"), like=hard_link("mine", "x"))]


def _deep() -> list[Entry]:
    """A link that is harmless where it stands, and leads outside from higher up."""
    return [folder("a"), folder("a/b"), folder("a/b/c"), symlink("a/b/c/way", "../../../outside")]


def _across_objects() -> Iterator[Attack]:
    yield _across(
        "a link in one object, a file through it in the next",
        lambda _ground: [*_deep(), symlink("way", "a/b/c")],
        lambda _ground: [file("way/x"), file("way/way/victim")],
    )
    yield _across(
        "a hard link to a link in one object, a file through it in the next",
        lambda _ground: [*_deep(), hard_link("way", "a/b/c/way")],
        lambda _ground: [file("way/victim")],
    )
    yield _across(
        "a link in one object, a hard link to it in the next, a file through that",
        lambda _ground: _deep(),
        lambda _ground: [hard_link("way", "a/b/c/way"), file("way/victim")],
    )
    yield _across(
        "folders of one object are links in the next",
        lambda _ground: [folder("a"), folder("a/b"), symlink("a/b/way", "../..")],
        lambda _ground: [symlink("short", "a/b/way"), file("short/outside/victim"), file("short/../outside/victim")],
    )
    yield _across(
        "a chain of links over two objects",
        lambda _ground: [folder("a"), folder("a/b"), symlink("a/b/up", "../.."), symlink("one", "a/b")],
        lambda _ground: [
            symlink("two", "one/up"),
            folder("q"),
            symlink("q/three", "../two"),
            file("q/three/../outside/x"),
        ],
    )
    yield _across(
        "a link outside in one object, and the same name a folder in the next",
        lambda _ground: [*_deep(), hard_link("way", "a/b/c/way")],
        lambda _ground: [folder("way", mode=0o777), file("way/victim")],
    )
    yield _across(
        "a file of one object is a link in the next",
        lambda _ground: [file("shop/t.ibd", b"sound")],
        lambda ground: [symlink("shop/t.ibd", str(ground.secret))],
    )
    yield _across(
        "a hard link in one object to a file of the next",
        lambda _ground: [hard_link("mine", "more/z.ibd")],
        lambda _ground: [],
        refused=False,  # where the next one happens to come first, it is a link to a file beside it
    )


def _our_own_names() -> Iterator[Attack]:
    """What backupd itself writes into a restored folder. A clone's folder, or a schema, may well have such names."""
    own = ("replica.sql", "replica.cnf", ".backupd-incomplete", ".backupd-incomplete.new", "tables")
    for name in own:
        yield _attack(
            f"our {name} is a link outside by a hard link",
            _always(
                [
                    folder("a"),
                    folder("a/b"),
                    symlink("a/b/way", "../../outside/victim"),
                    hard_link(name, "a/b/way"),
                ]
            ),
        )
        yield _attack(f"our {name} is a link inside", _always([symlink(name, "ibdata1")]), refused=False)
        yield _attack(f"our {name} is a file", _always([file(name, b"{}")]), refused=False)
    yield _attack("our replica.sql is a folder", lambda _ground: [folder("replica.sql")], refused=False)
    yield _attack(
        "our marker says how far a restore has come",
        lambda _ground: [file(".backupd-incomplete", b'{"job": "nightly", "run_id": "r1", "objects": {}}')],
    )


def _kinds() -> Iterator[Attack]:
    numbers = {(329, 337): b"0000001\0", (337, 345): b"0000005\0"}
    for how, kind in {
        "a device of characters": b"3",
        "a device of blocks": b"4",
        "a pipe": b"6",
        "a contiguous file": b"7",
        "a record for all that follows": b"g",
        "a name of GNU's of 1 GiB": b"L",
        "a link target of GNU's of 1 GiB": b"K",
        "an old sparse file": b"S",
        "a dump's folder": b"D",
        "the rest of another volume": b"M",
        "the name of a volume": b"V",
        "a record of Solaris'": b"X",
        "a kind that nobody knows": b"Z",
        "a kind that is NUL with a slash": b"\0",
    }.items():
        size = 1 << 30 if "1 GiB" in how else 0
        yield _attack(
            how,
            _always(
                [
                    _raw(
                        ustar(b"zero/" if kind == b"\0" else b"zero", kind, size=size, fields=numbers),
                        like=file("zero", b""),
                    )
                ]
            ),
        )
    yield _attack(
        "a name of GNU's before a file",
        lambda ground: [
            _raw(
                ustar(b"././@LongLink", b"L", size=len(str(ground.victim)))
                + padded(str(ground.victim).encode())
                + ustar(b"harmless"),
                like=file("harmless", b""),
            )
        ],
    )
    for magic in (b"ustar  \0", b"\0" * 8, b"ustar\x0001", b"USTAR\x0000"):
        yield _attack(
            f"a header with the magic {magic!r}",
            _always([_raw(ustar(b"x", fields={(257, 265): magic}), like=file("x", b""))]),
        )


def _modes() -> Iterator[Attack]:
    for how, mode in {"setuid": 0o4755, "setgid": 0o2755, "every bit": 0o7777}.items():
        yield _attack(
            f"a program that is {how}",
            _always([file("more/sh", b"#!/bin/sh\n", mode=mode)]),
            refused=False,
        )
    yield _attack(
        "a mode of more digits than there are bits",
        lambda _ground: [_raw(ustar(b"more/sh", fields={(100, 108): b"7777777\0"}), like=file("more/sh", b""))],
        refused=False,
    )
    capability = bytes.fromhex("0100000201000000000000000000000000000000")
    for how, keyword, value in (
        ("a capability", b"SCHILY.xattr.security.capability", capability),
        ("a trusted attribute", b"SCHILY.xattr.trusted.overlay.opaque", b"y"),
        ("a label of another policy", b"SCHILY.xattr.security.selinux", b"system_u:object_r:shadow_t:s0\0"),
        (
            "an access list for everybody",
            b"SCHILY.xattr.system.posix_acl_access",
            b"\2\0\0\0" + b"\1\0\7\0\xff\xff\xff\xff",
        ),
        ("an attribute of a name with a NUL", b"SCHILY.xattr.user.a\0b", b"x"),
        ("an attribute of 900 KiB", b"SCHILY.xattr.user.large", b"x" * 900_000),
        ("an attribute of nobody's", b"SCHILY.xattr.", b"x"),
        ("an attribute that climbs", b"SCHILY.xattr.user/../../x", b"x"),
        ("an access list of Solaris'", b"SCHILY.acl.access", b"user::rwx,user:root:rwx"),
        ("flags of a file system", b"SCHILY.fflags", b"schg"),
        ("a device number", b"SCHILY.dev", b"1:5"),
    ):
        yield _attack(
            how,
            _always([file("more/x", records=[(keyword, value)])]),
            refused=False,
        )


def _records() -> Iterator[Attack]:
    def with_record(
        name: str, records: Sequence[Record] | bytes, *, kind: bytes = b"x", refused: bool = True
    ) -> Attack:
        return _attack(
            name,
            lambda _ground: [_raw(extended(records, kind) + ustar(b"more/x", size=7), b"hostile", like=file("more/x"))],
            refused=refused,
        )

    for value in (
        b"-512",
        b"-1",
        b"1e3",
        b"0x200",
        b"0o7",
        b" 7",
        b"+7",
        b"7 ",
        b"1_0",
        "\u0667".encode(),
        b"",
        b"7\0",
        b"9" * 30,
    ):
        yield with_record(f"a record's size is {value!r}", [(b"size", value)])
    yield with_record("a record's size is 1 GiB of a file of 7 bytes", [(b"size", b"1073741824")])
    yield with_record("a size twice", [(b"size", b"0"), (b"size", b"7")], refused=False)
    yield with_record("a name twice", [(b"path", b"more/x"), (b"path", b"../outside/victim")])
    yield with_record(
        "a name twice, the other way round", [(b"path", b"../outside/victim"), (b"path", b"more/x")], refused=False
    )
    yield with_record("a GNU name beside a name", [(b"path", b"more/x"), (b"GNU.sparse.name", b"../outside/victim")])
    yield with_record("a name in bytes", [(b"hdrcharset", b"BINARY"), (b"path", b"../outside/victim")])
    yield with_record(
        "a name in another writing", [(b"hdrcharset", b"UTF-7"), (b"path", b"+AC4ALg-/outside/victim")], refused=False
    )
    yield with_record("a folder's dump", [(b"GNU.dumpdir", b"Dmore\0")])
    yield with_record("a volume's name", [(b"GNU.volume.label", b"x")])
    yield with_record("an older sparse format", [(b"GNU.sparse.size", b"100"), (b"GNU.sparse.map", b"0,7")])
    yield with_record("a record of no length", b"path=../outside/victim\n")
    yield with_record("a record of length 0", b"0 path=../outside/victim\n")
    yield with_record("a record with zeros before its length", b"0000000000000000030 path=../outside/victim\n")
    yield with_record("a record that ends in the middle", record(b"path", b"../outside/victim")[:-4])
    yield with_record("a record longer than its header", b"999 path=../outside/victim\n")
    yield with_record("a record shorter than it is", b"12 path=more/x\n" + record(b"path", b"../outside/victim"))
    yield with_record("a record hidden in a record", [(b"mtime", b"1\n26 path=../outside/victim")])
    yield with_record("a keyword with a new line", [(b"pa\nth", b"../outside/victim")])
    yield with_record("a keyword that is blank", [(b"", b"x")])
    yield with_record("owners beyond every number", [(b"uid", b"99999999999999999999"), (b"gid", b"-1")])
    yield with_record("a time of nonsense", [(b"mtime", b"nan")])
    yield with_record("a time at the end of times", [(b"mtime", b"9" * 18 + b".999999999")])
    yield with_record("a name for all that follows", [(b"path", b"../outside/victim")], kind=b"g")
    yield _attack(
        "extended headers one upon the other",
        lambda _ground: [
            _raw(
                extended([(b"path", b"more/x")]) + extended([(b"path", b"../outside/victim")]) + ustar(b"more/x"),
                like=file("more/x", b""),
            )
        ],
    )
    yield _attack(
        "an extended header that nothing follows", lambda _ground: [_raw(extended([(b"path", b"../outside/victim")]))]
    )
    yield _attack("an extended header of 1 GiB", lambda _ground: [_raw(ustar(b"x", b"x", size=1 << 30))])
    yield _attack("an extended header of nothing", lambda _ground: [_raw(ustar(b"x", b"x") + ustar(b"more/x"))])


def _sizes() -> Iterator[Attack]:
    """What Python and tar may take for another number: then a file's content is a header to one of them."""
    inner = ustar(b"../outside/victim", size=0)
    for how, written in {
        "base 256": b"\x80" + bytes(9) + b"\x02\x00",
        "base 256 below zero": b"\xff" * 12,
        "base 256 beyond all": b"\x80" + b"\x7f" * 11,
        "blank": b" " * 12,
        "NULs": b"\0" * 12,
        "octal and letters": b"00000001000x",
        "octal after letters": b"x0000001000\0",
        "octal that ends at a blank": b"1000 7777777",
        "octal that ends at a NUL": b"1000\0777777\0",
        "octal after blanks": b"       1000\0",
        "octal with a sign": b"-0000001000\0",
        "octal with Python's prefix": b"0o000001000\0",
        "octal with an underscore": b"0000001_000\0",
        "digits that are not octal": b"00000000999\0",
        "base 64 of old tars": b"+AAAAAAAAIA\0",
        "all twelve digits": b"777777777777",
    }.items():
        yield _attack(
            f"a size in {how}",
            _always([_raw(ustar(b"more/x", fields={_SIZE: written}), inner, like=file("more/x", inner))]),
            refused=how
            not in ("octal after blanks", "base 256", "octal that ends at a blank", "octal that ends at a NUL"),
        )
    yield _attack(
        "a header with a wrong sum",
        lambda _ground: [_raw(ustar(b"more/x")[:148] + b"000000\0 " + ustar(b"more/x")[156:])],
    )
    yield _attack(
        "a header whose sum is of signed bytes", lambda _ground: [_raw(_signed(ustar(b"more/\xff\xfe")))], refused=False
    )


def _signed(header: bytes) -> bytes:
    """With the sum that some old tars computed."""
    blank = header[:148] + b" " * 8 + header[156:]
    total = sum(byte - 256 if byte > 127 else byte for byte in blank)
    return header[:148] + b"%06o\0 " % total + header[156:]


def _sparse() -> Iterator[Attack]:
    def sparse(name: str, text: bytes, real: bytes = b"4096", *, refused: bool = True) -> Attack:
        content = padded(text) + b"x" * BLOCK
        records = [
            (b"GNU.sparse.major", b"1"),
            (b"GNU.sparse.minor", b"0"),
            (b"GNU.sparse.name", b"more/x"),
            (b"GNU.sparse.realsize", real),
        ]
        entry = _raw(
            extended(records) + ustar(b"GNUSparseFile.0/x", size=len(content)), content, like=file("more/x", b"")
        )
        real_size = int(real) if real.isdigit() else 0
        return _attack(f"a sparse file {name}", lambda _ground: [entry.telling(size=real_size)], refused=refused)

    yield sparse("whose pieces overlap", b"2\n0\n512\n256\n512\n")
    yield sparse("whose pieces go backwards", b"2\n512\n256\n0\n256\n")
    yield sparse("with a piece before its begin", b"1\n-512\n512\n")
    yield sparse("with a piece of less than nothing", b"1\n0\n-512\n")
    yield sparse("with a piece beyond its end", b"1\n1125899906842624\n512\n")
    yield sparse("of a thousand million pieces", b"1000000000\n0\n512\n")
    yield sparse("of less than no pieces", b"-1\n")
    yield sparse("with a map of letters", b"one\nzero\nall\n")
    yield sparse("with a map without an end", b"1" * 4096)
    yield sparse("of 8 EiB", b"1\n0\n512\n", b"9223372036854775807")
    yield sparse("of 2⁷⁰ bytes", b"1\n0\n512\n", b"1180591620717411303424")
    yield sparse("of less than nothing", b"1\n0\n512\n", b"-4096")
    yield sparse("of 1 PiB that takes no room", b"1\n0\n512\n", b"1125899906842624", refused=False)


def _ends() -> Iterator[Attack]:
    def ended(name: str, end: bytes, *, refused: bool = True) -> Attack:
        def change(backup: Backup, _ground: Ground) -> None:
            backup.put(SECOND_OBJECT, SECOND, end=end)

        return Attack(
            f"archive: {name}", change, concerns=_CONCERNS, refused_by=_REFUSED_BY if refused else frozenset()
        )

    more, _, _ = stream([file("../outside/victim")])
    yield ended("another archive after its end", END + more)
    yield ended("another archive after its end and 20 KiB of nothing", END + bytes(20 << 10) + more)
    yield ended("one block of nothing, and a member after it", bytes(BLOCK) + more)
    yield ended("letters after its end", END + b"x" * 100)
    yield ended("no end", b"")
    yield ended("half an end", bytes(BLOCK), refused=False)
    yield ended("half a header at its end", ustar(b"x")[:300])
    yield ended("a header whose content is missing", ustar(b"more/x", size=1 << 20))
    yield ended("a header whose content of 8 GiB is missing", ustar(b"more/x", size=(1 << 33) - 1))


def _damaged_at_random(chance: random.Random) -> Iterator[Attack]:
    """Headers in which some bytes are others, with a good sum: nobody knows what they ask for."""
    for number in range(12):
        places = {(at, at + 1): bytes([chance.randrange(256)]) for at in chance.sample(range(0, 345), 4)}
        kind = bytes([chance.choice(b"01256xgLKS")])

        def members(_ground: Ground, places: dict[tuple[int, int], bytes] = places, kind: bytes = kind) -> list[Entry]:
            return [
                _raw(ustar(b"../outside/victim", kind, link=b"../outside/victim", fields=places), like=file("x", b""))
            ]

        yield _attack(f"random headers, no. {number}", members, refused=False)
    for number in range(6):

        def scatter(backup: Backup, _ground: Ground, seed: int = chance.randrange(1 << 30)) -> None:
            own = random.Random(seed)
            plain, _, files = stream((*SECOND, file("more/x", b"x" * 3000), symlink("more/y", "x")))
            noisy = bytearray(plain)
            for _ in range(20):
                noisy[own.randrange(len(noisy) // BLOCK) * BLOCK + own.randrange(265)] = own.randrange(256)
            backup.put_plain(SECOND_OBJECT, bytes(noisy), files)

        yield Attack(f"archive: noise over its headers, no. {number}", scatter, concerns=_CONCERNS)
