"""A backup in the hands of somebody who owns the storage: every byte of it can be another one.

Knows: how a sound backup is made, how it is laid into a target's folder, and that whoever changes it computes every
digest anew that takes no key. Refuses to know which change is an attack.
"""

import copy
import dataclasses
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from backupd.policy import manifest as manifests
from backupd.vocabulary.run_section import LockSection, RunSection, SnapshotSection, StageSection, VerdictSection
from backupd.vocabulary.servers import Position, ReplicaPosition
from backupd.vocabulary.storage import Manifest
from tests.hostile.tarring import END, Entry, file, folder, hard_link, line, stream, symlink
from tests.hostile.trusting import Signer, digest_of
from tests.story import stored as packing
from tests.story.stored import content

JOB, RUN, OLDER = "nightly", "r1", "r0"
FIRST_OBJECT, SECOND_OBJECT, BINLOG, INDEX = "data-1.tar.zst", "data-2.tar.zst", "binlog.tar.zst", "index.jsonl.zst"

FIRST: tuple[Entry, ...] = (
    folder(".", mode=0o750),
    file("ibdata1", content("ibdata1", 200_000)),
    folder("mysql"),
    file("mysql/user.MAD", b"users"),
    folder("shop"),
    file("shop/orders.frm", b"definition"),
    file("shop/orders.ibd", content("orders", 60_000)),
    symlink("shop/same.ibd", "orders.ibd"),
    hard_link("shop/again.ibd", "shop/orders.ibd"),
)
SECOND: tuple[Entry, ...] = (folder("more"), file("more/z.ibd", content("z", 30_000)))
BINLOGS: tuple[Entry, ...] = (file("bin.000001", b"binlog"), file("bin.index", b"./bin.000001\n"))
SECTION = RunSection(
    started_at=datetime(2026, 1, 2, tzinfo=UTC),
    phases={"copy": 2.5},
    verdict=VerdictSection("start", "settled", "3 windows within 10 %", 61.5),
    lock=LockSection("backup-stage", 1, 0.5, 0.031, "metadata-locks", lsn=1 << 40),
    snapshot=SnapshotSection("bk_r1", "vg/data", "linear", 1, None, 4096, 1 << 30, 700, None, "", 0, ""),
    attention=("a note of the run",),
    throughput=(StageSection("read", 1000, 0.5),),
)


@dataclass
class Backup:
    """The manifest's document without its digest, the objects as they are stored, and what is laid beside them."""

    body: dict[str, Any]
    objects: dict[str, bytes] = field(default_factory=dict)
    lines: dict[str, bytes] = field(default_factory=dict)  # of the index, by object
    entries: dict[str, tuple[Entry, ...]] = field(default_factory=dict)  # by object, as they were put
    recipients: tuple[str, ...] = ()
    remade: Callable[[bytes], bytes] | None = None  # of the manifest's text, where it is not what the document says
    beside: list[Callable[[Path], object]] = field(default_factory=list)  # what is done to its folder at last

    def copy(self) -> "Backup":
        found = dataclasses.replace(self, body=copy.deepcopy(self.body), beside=[*self.beside])
        found.objects, found.lines, found.entries = dict(self.objects), dict(self.lines), dict(self.entries)
        return found

    @property
    def stored(self) -> list[dict[str, Any]]:
        """What the manifest says of the objects."""
        told: list[dict[str, Any]] = self.body["objects"]
        return told

    def told(self, name: str) -> dict[str, Any]:
        """What it says of this one."""
        return next(one for one in self.stored if one["name"].removesuffix(".age") == name)

    def put(self, name: str, entries: Sequence[Entry], *, end: bytes = END) -> None:
        """An object of these members, in the index as they tell."""
        self.entries[name] = tuple(entries)
        plain, self.lines[name], files = stream(entries, end)
        self.put_plain(name, plain, files)
        self.reindex()

    def put_plain(self, name: str, plain: bytes, files: int, *, recipients: Sequence[str] | None = None) -> None:
        """An object that unpacks to these bytes; the manifest tells of it as of any."""
        packed, told = packing.stored(
            name, plain, files, recipients=self.recipients if recipients is None else recipients
        )
        self.put_stored(dataclasses.asdict(told), packed)

    def put_stored(self, told: dict[str, Any], packed: bytes) -> None:
        """An object as it is stored, in the place of the one of its name."""
        told = json.loads(json.dumps(told))
        bare = told["name"].removesuffix(".age")
        for name in [name for name in self.objects if name.removesuffix(".age") == bare]:
            del self.objects[name]
        self.objects[told["name"]] = packed
        at = next((i for i, one in enumerate(self.stored) if one["name"].removesuffix(".age") == bare), None)
        if at is None:
            self.stored.append(told)
        else:
            self.stored[at] = told

    def put_packed(self, name: str, packed: bytes, plain_bytes: int, files: int = 0) -> None:
        """An object of one frame of these very bytes, of which the manifest says what is told here."""
        digest = hashlib.sha256(packed).hexdigest()
        frame = {"plain_bytes": plain_bytes, "stored_bytes": len(packed), "stored_sha256": digest}
        self.put_stored(
            {
                "name": name,
                "plain_bytes": plain_bytes,
                "stored_bytes": len(packed),
                "plain_sha256": hashlib.sha256(b"").hexdigest(),
                "stored_sha256": digest,
                "files": files,
                "frames": [frame],
            },
            packed,
        )

    def reindex(self) -> None:
        """The index tells what the members do."""
        self.put_index(index_of(self.lines))

    def put_index(self, plain: bytes) -> None:
        self.put_plain(INDEX, plain, 0)

    def sign(self, signer: Signer) -> None:
        """By this key, all of it as it is now."""
        self.body["signature"] = signer(self.body)

    def document(self) -> bytes:
        """The manifest's text, with the digest that it has to have, and whatever was made of that."""
        text = text_of(self.body)
        return text if self.remade is None else self.remade(text)

    def lay(self, at: Path) -> None:
        """It lies in this folder, which is made, and what is to be done to the folder is done."""
        at.mkdir(parents=True, exist_ok=True)
        for name, packed in self.objects.items():
            (at / name).write_bytes(packed)
        (at / "manifest.json").write_bytes(self.document())
        for change in self.beside:
            change(at)


def text_of(body: Mapping[str, Any]) -> bytes:
    """A manifest of this document: anybody can compute its digest."""
    return json.dumps({**body, "digest": digest_of(body)}, indent=1).encode() + b"\n"


def index_of(lines: Mapping[str, bytes]) -> bytes:
    head = line({"index": {"major": 1, "minor": 0}})
    return head + b"".join(line({"object": name}) + told for name, told in lines.items())


def document_of(manifest: Manifest) -> dict[str, Any]:
    """What its text says but for the digest."""
    body: dict[str, Any] = json.loads(manifests.to_text(manifest))
    body.pop("digest")
    return body


def tree(machine: str, *, run: str = RUN, recipients: Sequence[str] = (), salt: str = "") -> Backup:
    """A sound backup of a small tree, which no server would start on."""
    manifest = dataclasses.replace(
        packing.manifest((), recipients),
        machine=machine,
        run_id=run,
        binlog="bin.000001",
        position=Position("bin.000001", 6, "0-1-7", (ReplicaPosition("", "source.000001", 17, "0-2-3"),)),
        run=SECTION,
    )
    made = Backup(document_of(manifest), recipients=tuple(recipients))
    for name, entries in ((FIRST_OBJECT, FIRST), (SECOND_OBJECT, SECOND), (BINLOG, BINLOGS)):
        made.put(name, (*entries, file("of-" + salt)) if salt and name == SECOND_OBJECT else entries)
    return made
