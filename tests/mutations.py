"""A stored backup, and whatever can become of it on its way or where it lies.

Knows: how a backup is mutated, one mutation for each number, and which mutations mean nothing. Refuses to know how they
are noticed.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyrage import x25519

from backupd.archive.encryption import Identities, read_identities
from backupd.archive.packing import CopyManner
from backupd.config import CopyConfig, EncryptionConfig
from backupd.operations.backup import copying
from backupd.operations.restore.into_folder import restore
from backupd.operations.restore.verify import verify_backup
from backupd.policy import manifest as manifests
from backupd.targets import BackupSource
from backupd.vocabulary.errors import TargetError, VerificationError
from tests.fakes.target import BELIEVED, MemoryTarget
from tests.story.world import World

Objects = dict[str, bytes]  # of one backup, by name; its manifest is one of them
Mutation = Callable[[Random, Objects, str], None]

MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Stored:
    """What a run left on its target."""

    objects: Mapping[str, bytes]
    files: Mapping[str, bytes]  # that a restore of it makes
    identities: Identities | None

    def source(self, objects: Mapping[str, bytes]) -> BackupSource:
        target = MemoryTarget(name="vault")
        target.stored = {("nightly", "r1", name): content for name, content in objects.items()}
        return BackupSource(target, "nightly", "r1", BELIEVED)

    @property
    def manifest(self) -> bytes:
        return self.objects[MANIFEST]


def stored_backup(base: Path, *, encrypted: bool) -> Stored:
    """What a run of two streams leaves, with binlog, option files and index; its frames are of 16 KiB."""
    (base / "my.cnf").write_text("[mysqld]\ninnodb_buffer_pool_size = 1G\n")
    key = x25519.Identity.generate()
    key_file = base / "key"
    key_file.touch(mode=0o600)
    key_file.write_text(str(key))
    recipients = (str(key.to_public()),) if encrypted else ()
    world = World(base / "world")
    (world.datadir / "shop" / "orders.ibd").write_bytes(Random(7).randbytes(60_000))  # does not compress
    (world.datadir / "shop" / "lines.ibd").write_bytes(Random(8).randbytes(30_000) + bytes(30_000))
    world.memory = MemoryTarget(name="vault")
    job = world.job(
        copy=CopyConfig(streams=2, option_files=(base / "my.cnf",)), encryption=EncryptionConfig(recipients=recipients)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copying, "CopyManner", partial(CopyManner, frame_bytes=16 << 10))
        world.back_up(job=job)
    identities = read_identities(key_file) if recipients else None
    objects = {name: content for (_, _, name), content in world.memory.stored.items()}
    found = Stored(objects, {}, identities)
    restore([found.source(objects)], to=base / "restored", identities=identities)
    return replace(found, files=files_in(base / "restored"))


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def flip(random: Random, objects: Objects, name: str) -> None:
    content = bytearray(objects[name])
    content[random.randrange(len(content))] ^= 1 << random.randrange(8)
    objects[name] = bytes(content)


def cut(random: Random, objects: Objects, name: str) -> None:
    objects[name] = objects[name][: random.randrange(len(objects[name]))]


def cut_the_beginning(random: Random, objects: Objects, name: str) -> None:
    objects[name] = objects[name][random.randint(1, len(objects[name])) :]


def append(random: Random, objects: Objects, name: str) -> None:
    objects[name] += random.choice([bytes(random.randint(1, 600)), random.randbytes(9), objects[name]])


def insert(random: Random, objects: Objects, name: str) -> None:
    at = random.randrange(len(objects[name]))
    objects[name] = objects[name][:at] + random.randbytes(random.randint(1, 4)) + objects[name][at:]


def blank(random: Random, objects: Objects, name: str) -> None:
    """A block that a disk lost."""
    at = random.randrange(len(objects[name]))
    size = min(random.choice([1, 512, 4096]), len(objects[name]) - at)
    objects[name] = objects[name][:at] + bytes(size) + objects[name][at + size :]


def move(random: Random, objects: Objects, name: str) -> None:
    """Two pieces of an object change places, as long as each other."""
    content = objects[name]
    size = random.randint(1, max(1, len(content) // 3))
    first = random.randint(0, len(content) - 2 * size)
    second = random.randint(first + size, len(content) - size)
    a, b = content[first : first + size], content[second : second + size]
    objects[name] = content[:first] + b + content[first + size : second] + a + content[second + size :]


def swap(random: Random, objects: Objects, name: str) -> None:
    other = random.choice([each for each in objects if each != name])
    objects[name], objects[other] = objects[other], objects[name]


def drop(_random: Random, objects: Objects, name: str) -> None:
    del objects[name]


def duplicate(random: Random, objects: Objects, name: str) -> None:
    copied = random.choice([f"{name}.1", name.replace("1", "3"), "data-9.tar.zst", *objects])
    objects[copied if copied != name else f"{name}.copy"] = objects[name]


def rename(random: Random, objects: Objects, name: str) -> None:
    objects[f"{name}{random.choice(['~', '.age', '.partial'])}"] = objects.pop(name)


def edit(random: Random, objects: Objects, name: str) -> None:
    """As somebody with an editor would: a digit, a letter, a line."""
    lines = objects[name].split(b"\n")
    at, other = random.randrange(len(lines)), random.randrange(len(lines))
    match random.randrange(4):
        case 0:
            del lines[at]
        case 1:
            lines.insert(other, lines[at])
        case 2:
            lines[at], lines[other] = lines[other], lines[at]
        case _:
            lines[at] = lines[at].translate(bytes.maketrans(b"0123456789abcdef", b"1234567890fedcba"))
    objects[name] = b"\n".join(lines)


HARMS: list[Mutation] = [flip, cut, cut_the_beginning, append, insert, blank, move, swap, drop, duplicate, rename]


def mutated(seed: int, objects: Mapping[str, bytes]) -> Objects:
    """The mutation of that number; a few mutations hit upon what was there, and are drawn again."""
    random = Random(seed)
    while True:
        changed = dict(objects)
        name = random.choice(sorted(objects))
        random.choice([*HARMS, edit] if name == MANIFEST else HARMS)(random, changed, name)
        if changed != objects:
            return changed


def is_harmless(stored: Stored, objects: Objects) -> bool:
    """The manifest is another text of the same document, and all else is as it was."""
    others = {name: content for name, content in objects.items() if name != MANIFEST}
    if MANIFEST not in objects or {**others, MANIFEST: stored.manifest} != stored.objects:
        return False
    try:
        return bool(json.loads(objects[MANIFEST]) == json.loads(stored.manifest))
    except ValueError:
        return False


def require_noticed(stored: Stored, seeds: range) -> None:
    """Each of these mutations is noticed without a key, or means nothing."""
    harmless = 0
    for seed in seeds:
        objects = mutated(seed, stored.objects)
        try:
            found = verify_backup(stored.source(objects))
        except (VerificationError, TargetError):
            continue
        if found.unknown:
            assert objects.items() >= stored.objects.items(), f"mutation {seed} was not noticed"
            continue
        assert is_harmless(stored, objects), f"mutation {seed} was not noticed"
        assert manifests.from_text(objects[MANIFEST]) == manifests.from_text(stored.manifest)
        harmless += 1
    assert harmless < len(seeds) // 50


def lie(random: Random, node: object) -> None:
    """One value somewhere below becomes another one, of its own kind or of none."""
    while isinstance(node, dict | list) and node:
        key = random.choice(sorted(node)) if isinstance(node, dict) else random.randrange(len(node))
        below = node[key]
        if not isinstance(below, dict | list) or not below or random.random() < 0.05:
            lies = [0, -1, 1 << 70, 1.5, "", "../x", None, True, [], {}, [below], [below, below]]
            node[key] = random.choice(lies)
            return
        node = below


def add_of_tomorrow(node: Any, wanted: Callable[[], bool], value: Callable[[], Any], name: str = "") -> None:
    """Where it is wanted an object of the document gets a key that this backupd does not know."""
    if isinstance(node, dict):
        for key, below in list(node.items()):
            add_of_tomorrow(below, wanted, value, key)
        if name not in ("settings", "phases") and wanted():  # there a key is a word
            node["of tomorrow"] = value()
    elif isinstance(node, list):
        for below in node:
            add_of_tomorrow(below, wanted, value)


def sealed(body: dict[str, object]) -> bytes:
    """As somebody without a key can write it."""
    body = {**{key: value for key, value in body.items() if key != "digest"}, "signature": None}
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return json.dumps({**body, "digest": hashlib.sha256(text.encode()).hexdigest()}).encode()
