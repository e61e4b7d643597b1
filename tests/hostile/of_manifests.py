"""Hostile manifests: every text, every type, every size; and what a manifest may ask a server to do."""

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.hostile.attacks import EVERY, READERS, SERVERS, Attack, Base, Command, Ground
from tests.hostile.backups import FIRST_OBJECT, SECOND_OBJECT, Backup

MARK = "hostile-mark"  # where a line of a file that we write begins with it, somebody's client or server obeys it

_MIB = 1 << 20
_LARGE = 400 * _MIB

_FIELDS: Mapping[str, Sequence[str | int]] = {
    "run_id": ("run_id",),
    "job": ("job",),
    "host": ("host",),
    "machine": ("machine",),
    "created_at": ("created_at",),
    "layout": ("layout",),
    "volume": ("volume",),
    "datadir": ("datadir",),
    "binlog": ("binlog",),
    "canary": ("canary",),
    "filesystem": ("filesystem",),
    "audit_head": ("audit_head",),
    "a recipient": ("recipients", 0),
    "server.flavour": ("server", "flavour"),
    "server.version": ("server", "version"),
    "server.datadir": ("server", "datadir"),
    "server.socket": ("server", "socket"),
    "server.binlog_basename": ("server", "binlog_basename"),
    "server.settings' value": ("server", "settings", "server_id"),
    "server.settings' collation": ("server", "settings", "collation_server"),
    "position.binlog_file": ("position", "binlog_file"),
    "position.gtid": ("position", "gtid"),
    "position's channel": ("position", "replicas", 0, "channel"),
    "position's source log": ("position", "replicas", 0, "source_log_file"),
    "position's source gtid": ("position", "replicas", 0, "gtid"),
    "an object's name": ("objects", 0, "name"),
    "the last object's name": ("objects", -1, "name"),
    "an object's digest": ("objects", 0, "stored_sha256"),
    "a frame's digest": ("objects", 0, "frames", 0, "stored_sha256"),
    "run.verdict.detail": ("run", "verdict", "detail"),
    "run.verdict.outcome": ("run", "verdict", "outcome"),
    "run.lock.strategy": ("run", "lock", "strategy"),
    "run.lock.proof": ("run", "lock", "proof"),
    "run.snapshot.name": ("run", "snapshot", "name"),
    "run.snapshot.volume": ("run", "snapshot", "volume"),
    "run.attention": ("run", "attention", 0),
    "run.throughput's stage": ("run", "throughput", 0, "stage"),
}

_TEXTS: Mapping[str, Callable[[Ground], str]] = {
    "climbs": lambda _ground: "../../../outside/victim",
    "is an absolute path": lambda ground: str(ground.victim),
    "has a NUL": lambda _ground: "db1\0victim",
    "goes on in a new line with a client's command": lambda ground: f"db1\n\\! {MARK} > {ground.victim}\n{MARK}",
    "goes on after a carriage return": lambda _ground: f"db1\r{MARK}",
    "goes on in a new line with an option": lambda ground: f"db1\n{MARK}\nplugin-load-add={ground.library}\n",
    "is an option": lambda ground: f"--plugin-load-add={ground.library}",
    "ends a comment and a statement": lambda _ground: f"*/; {MARK} -- ' \" ` $(touch victim) `touch victim`",
    "rewrites the terminal": lambda _ground: "\x1b]0;owned\x07\x1b[2J\x1b[1;1Hproven in 1 s\x1b[8m",
    "has eight-bit controls": lambda _ground: "db1\x9b2J\x85\x90q",
    "turns the reading direction": lambda _ground: "db1\u202egpj.\u2066\u2069\u2028second line",
    "has half a surrogate": lambda _ground: "db1\ud800\udfff\ud83d",
    "is 8 MiB long": lambda _ground: "x" * (8 * _MIB),
    "is empty": lambda _ground: "",
    "formats itself": lambda _ground: "%s%n%(asctime)s{0.__class__}{run_id!r}[bold red]",
}

_VALUES: Mapping[str, Any] = {
    "null": None,
    "true": True,
    "a number below zero": -1,
    "2⁶³": 1 << 63,
    "2⁶⁴ and more": (1 << 64) + 1,
    "a list": [[]],
    "an object": {"": {}},
    "a fraction": 0.5,
    "a text": "x",
}
_TYPED: Sequence[Sequence[str | int]] = (
    ("objects",),
    ("objects", 0),
    ("objects", 0, "frames"),
    ("objects", 0, "frames", 0, "plain_bytes"),
    ("objects", 0, "frames", 0, "stored_bytes"),
    ("objects", 0, "plain_bytes"),
    ("objects", 0, "stored_bytes"),
    ("objects", 0, "files"),
    ("server",),
    ("server", "settings"),
    ("server", "version_number"),
    ("server", "page_size"),
    ("position",),
    ("position", "binlog_offset"),
    ("lsn",),
    ("locked",),
    ("recipients",),
    ("run",),
    ("run", "phases"),
    ("run", "snapshot"),
    ("run", "snapshot", "redo_left_out"),
    ("run", "snapshot", "taken_at"),
    ("run", "throughput"),
    ("schema",),
    ("schema", "major"),
)

_BY_TEXT = frozenset({Command.VERIFY, Command.RESTORE, Command.REBUILD})
_BY_TYPE = frozenset({Command.RESTORE, Command.REBUILD})


def attacks(chance: random.Random) -> Iterator[Attack]:
    """Of every text field three kinds of texts, of every typed one two wrong values, and all the others."""
    for field, path in _FIELDS.items():
        for how in sorted(chance.sample(sorted(_TEXTS), 3)):
            yield Attack(f"manifest: {field} {how}", _text(path, _TEXTS[how]), concerns=_BY_TEXT)
    for path in _TYPED:
        for how in sorted(chance.sample(sorted(_VALUES), 2)):
            name = f"manifest: {'.'.join(map(str, path))} is {how}"
            yield Attack(name, _value(path, _VALUES[how]), concerns=_BY_TYPE)
    yield from _documents()
    yield from _many()
    yield from _told_to_the_server()


def _text(path: Sequence[str | int], made: Callable[[Ground], str]) -> Callable[[Backup, Ground], object]:
    return lambda backup, ground: _set(backup.body, path, made(ground))


def _value(path: Sequence[str | int], value: Any) -> Callable[[Backup, Ground], object]:
    return lambda backup, _ground: _set(backup.body, path, value)


def _set(body: dict[str, Any], path: Sequence[str | int], value: Any) -> None:
    inner: Any = body
    for key in path[:-1]:
        inner = inner[key]
    if path[-1] == 0 and not inner:
        inner.append(value)
    else:
        inner[path[-1]] = value


def _documents() -> Iterator[Attack]:
    """What is no proper document."""

    def raw(name: str, made: Callable[[bytes], bytes], refused_by: frozenset[Command] = EVERY) -> Attack:
        def change(backup: Backup, _ground: Ground) -> None:
            backup.remade = made

        return Attack(f"manifest: {name}", change, concerns=_BY_TYPE, refused_by=refused_by)

    yield raw("nothing at all", lambda _text: b"")
    yield raw("not UTF-8", lambda text: text.replace(b"nightly", b"night\xff\xfe"))
    yield raw("UTF-16", lambda text: text.decode().encode("utf-16"), frozenset())
    yield raw("a list", lambda _text: b"[]")
    yield raw("a number of 100,000 digits", lambda text: text.replace(b'"lsn": null', b'"lsn": ' + b"9" * 100_000))
    yield raw("a number beyond every float", lambda text: text.replace(b'"lsn": null', b'"lsn": 1e999999'))
    yield raw("a number that is none", lambda text: text.replace(b'"lsn": null', b'"lsn": NaN'))
    yield raw("nested a million deep", lambda _text: b"[" * _MIB)
    yield raw("nested deep in a key that nobody knows", lambda text: b'{"x": ' + b'{"x": ' * 200_000 + text)
    yield raw("a key twice", lambda text: text.replace(b'"lsn": null', b'"lsn": null, "lsn": null'))
    yield raw("a digest of nothing", lambda text: text.replace(b'"digest": "', b'"digest": "00'))
    yield raw("followed by something", lambda text: text + b"{}")
    yield raw("a key of 16 MiB", lambda text: b'{"' + b"k" * (16 * _MIB) + b'": 1, ' + text[1:])
    yield Attack("manifest: 400 MiB of blanks before it", _large(b" "), concerns=_BY_TEXT, refused_by=EVERY)
    yield Attack("manifest: 400 MiB of nothing after it", _large(b""), concerns=_BY_TEXT, refused_by=EVERY)
    yield Attack("manifest: a future major that is a text", _value(("schema", "major"), "2"), refused_by=EVERY)
    yield Attack("manifest: a newer major", _value(("schema", "major"), 2), refused_by=EVERY)
    yield Attack("manifest: keys that a later minor may add, with controls", _later)
    yield Attack("manifest: taken in the year 9999", _value(("created_at",), "9999-12-31T23:59:59+00:00"))
    yield Attack("manifest: taken before time", _value(("created_at",), "0001-01-01T00:00:00+14:00"))


def _large(filled: bytes) -> Callable[[Backup, Ground], object]:
    """A document of 400 MiB: blanks that are really there, or a hole at the end of the file."""

    def change(backup: Backup, _ground: Ground) -> None:
        text = backup.document()

        def write(at: Path) -> None:
            with (at / "manifest.json").open("wb") as file:
                for _ in range(_LARGE // _MIB if filled else 0):
                    file.write(filled * _MIB)
                file.write(text)
                file.truncate(_LARGE + len(text))

        backup.beside.append(write)

    return change


def _later(backup: Backup, _ground: Ground) -> None:
    backup.body["\x1b[2J\n" + MARK] = {"\0": "\x1b]0;owned\x07"}
    backup.body["schema"]["minor"] = 99


def _many() -> Iterator[Attack]:
    """Too many of something, or none."""

    def no_objects(backup: Backup, _ground: Ground) -> None:
        backup.body["objects"] = []

    def twice(backup: Backup, _ground: Ground) -> None:
        backup.stored.append(dict(backup.stored[0]))

    def objects(backup: Backup, _ground: Ground) -> None:
        backup.stored.extend({**backup.stored[0], "name": f"data-{number}.tar.zst"} for number in range(3, 30_000))

    def frames(backup: Backup, _ground: Ground) -> None:
        nothing = {"plain_bytes": 0, "stored_bytes": 0, "stored_sha256": "e3b0c442"}
        backup.told(FIRST_OBJECT)["frames"].extend(nothing for _ in range(100_000))

    def settings(backup: Backup, _ground: Ground) -> None:
        backup.body["server"]["settings"] = {f"setting_{number}": "x" * 20 for number in range(200_000)}

    def attentions(backup: Backup, _ground: Ground) -> None:
        backup.body["run"]["attention"] = [f"{number}\x1b[2J" for number in range(100_000)]

    yield Attack("manifest: no object", no_objects, refused_by=EVERY - {Command.TABLES})
    yield Attack("manifest: an object twice", twice, refused_by=frozenset({Command.VERIFY}))
    yield Attack("manifest: 30,000 objects that are not there", objects, refused_by=READERS)
    yield Attack("manifest: 100,000 frames of nothing", frames)
    yield Attack("manifest: 200,000 settings", settings)
    yield Attack("manifest: 100,000 notes with controls", attentions)
    for name in (
        "../r0/data-1.tar.zst",
        "/etc/passwd",
        "manifest.json",
        ".data-1.tar.zst.partial",
        "evil.sh",
        ".",
        "\n",
    ):
        yield Attack(f"manifest: an object called {name!r}", _value(("objects", 1, "name"), name), refused_by=READERS)
    beyond = (1 << 62, 1 << 50)
    for key in ("plain_bytes", "stored_bytes"):
        for size in beyond:

            def lie(backup: Backup, _ground: Ground, key: str = key, size: int = size) -> None:
                told = backup.told(SECOND_OBJECT)
                told[key] = told["frames"][0][key] = size

            # What it unpacks to is known to who unpacks it only.
            readers = READERS - {Command.VERIFY} if key == "plain_bytes" else READERS
            yield Attack(f"manifest: {size} {key}", lie, refused_by=readers)


def _told_to_the_server() -> Iterator[Attack]:
    """What reaches the command line, the option file or the SQL of a server on the copy."""

    def told(name: str, made: Callable[[Ground], Mapping[str, Any]], *, refused: bool = True) -> Attack:
        def change(backup: Backup, ground: Ground) -> None:
            for key, value in made(ground).items():
                _set(backup.body, ("server", *key.split("/")), value)

        concerns = SERVERS | {Command.VERIFY}
        refused_by = SERVERS if refused else frozenset[Command]()
        return Attack(f"server: {name}", change, base=Base.SERVER, concerns=concerns, refused_by=refused_by)

    plugins = ("settings/plugin_dir", "settings/plugin_libraries")
    yield told(
        "a plugin of a folder that the manifest names",
        lambda ground: dict(zip(plugins, (f"{ground.library.parent}/", ground.library.name), strict=True)),
    )
    yield told("a plugin by its path", lambda ground: {plugins[1]: str(ground.library)})
    yield told("a plugin by a path that climbs", lambda ground: {plugins[1]: "../" * 12 + str(ground.library)[1:]})
    yield told("a plugin by name and path", lambda ground: {plugins[1]: f"x={ground.library}"})
    yield told("plugins parted by semicolons", lambda ground: {plugins[1]: f"a.so;{ground.library}"})
    yield told(  # of the server's own: it is loaded, where it reaches nobody
        "a plugin that downloads", lambda _ground: {plugins[1]: "handlersocket.so,ha_connect.so"}, refused=False
    )
    yield told(
        "a keyring component of a folder that the manifest names",
        lambda ground: {
            "settings/keyring_component": "component_keyring_file",
            "settings/keyring_file_data": str(ground.secret),
            plugins[0]: str(ground.library.parent),
            plugins[1]: ground.library.name,
        },
    )
    yield told(
        "a keyring component by its path",
        lambda ground: {"settings/keyring_component": str(ground.library.with_suffix("")), plugins[0]: "/"},
    )
    yield told(
        "a keyring plugin that is written through a climbing name",
        lambda ground: {
            "settings/keyring_component": "component_keyring_file",
            "settings/keyring_file_data": str(ground.secret),
            plugins[0]: str(ground.library.parent),
            plugins[1]: f"../../../../..{ground.outside}/planted",
        },
    )
    for setting in (
        "innodb_log_group_home_dir",
        "innodb_undo_directory",
        "aria_log_dir_path",
        "innodb_data_home_dir",
    ):
        yield told(f"{setting} climbs out of the copy", _climbing(setting))
        yield told(
            f"{setting} lies outside, of a server whose datadir was everything",
            _of_everything(setting),
        )
    yield told(
        "a system tablespace outside",
        lambda ground: {"settings/innodb_data_file_path": f"{ground.outside}/live/ibdata1:12M:autoextend"},
    )
    yield told(
        "a system tablespace that climbs",
        lambda _ground: {"settings/innodb_data_file_path": "../../../../outside/live/ibdata1:12M:autoextend"},
    )
    yield told(
        "the datadir is a live server's", lambda ground: {"datadir": str(ground.outside / "live")}, refused=False
    )
    yield told(
        "a key file that is a secret of this host",
        lambda ground: {
            "settings/file_key_management_filename": str(ground.secret),
            plugins[1]: "file_key_management.so",
        },
        refused=False,  # a server's key file lies where it lies; it is given to no one but that server
    )
    yield told(
        "a key that is read from where a device is",
        lambda _ground: {"settings/file_key_management_filename": "/dev/zero"},
    )
    yield told("an option for a value", lambda ground: {"settings/collation_server": f"--init-file={ground.secret}"})
    yield told("a page size of 2⁶²", lambda _ground: {"settings/innodb_page_size": str(1 << 62)})
    yield told("a redo log of 2⁶² bytes", lambda _ground: {"settings/innodb_log_file_size": str(1 << 62)})
    yield told("a redo log of a number with letters", lambda _ground: {"settings/innodb_log_file_size": "4E"})
    yield told(
        "2⁴⁰ undo tablespaces", lambda _ground: {"settings/innodb_undo_tablespaces": str(1 << 40)}, refused=False
    )
    yield told("a version that is not here", lambda _ground: {"version_number": [999, 0, 0]})
    yield told(
        "a version of a thousand letters",
        lambda _ground: {"version": f"10.11.19\n{MARK} " + "x" * 1000},
        refused=False,
    )
    yield told(
        "a binlog called as an option of another line",
        lambda ground: {"binlog_basename": f"/srv/bin\n{MARK}\nplugin_load_add={ground.library}"},
    )
    for field, path in (
        ("its host", ("host",)),
        ("its run's id", ("run_id",)),
        ("its GTID", ("position", "gtid")),
        ("its binlog's name", ("position", "binlog_file")),
        ("its canary", ("canary",)),
    ):

        def spoken(backup: Backup, ground: Ground, path: Sequence[str] = path) -> None:
            _set(backup.body, path, f"x\n\\! {MARK} > {ground.victim}\n{MARK}; -- ' ` \\")

        yield Attack(f"server: a command of a client's in {field}", spoken, base=Base.SERVER, concerns=SERVERS)


def _climbing(setting: str) -> Callable[[Ground], Mapping[str, Any]]:
    return lambda _ground: {f"settings/{setting}": "../../../../outside/live"}


def _of_everything(setting: str) -> Callable[[Ground], Mapping[str, Any]]:
    return lambda ground: {f"settings/{setting}": str(ground.outside / "live"), "datadir": "/"}
