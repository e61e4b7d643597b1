"""Backups of several streams and many small frames, made by hand: the run itself makes frames of 64 MiB."""

import hashlib
import io
import struct
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from backupd.archive.index import MemberLines, written
from backupd.archive.members import Members
from backupd.archive.sealing import Encryptor
from backupd.archive.stations import Compressor
from backupd.targets import BackupSource, Target
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.run_section import RunSection
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Frame, Manifest, StoredObject
from backupd.vocabulary.volumes import Layout
from tests.fakes.server import FACTS
from tests.fakes.target import BELIEVED, MACHINE

JOB, RUN = "nightly", "r1"
FRAME_BYTES = 1 << 20

Stream = Sequence[tuple[str, bytes | str]]  # a name that ends with a slash is a folder's; a text is a link's target

MODES = {"": 0o750, "shop": 0o2750, "locked": 0o500}
_ACL = ((1, 7, -1), (2, 5, 1234), (4, 5, -1), (16, 5, -1), (32, 0, -1))  # tag, rights, whose: linux/posix_acl_xattr.h
DEFAULT_ACLS = {"lists": struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in _ACL)}


def content(seed: str, size: int) -> bytes:
    """Bytes that no other seed has; half of it compresses well."""
    word = hashlib.sha256(seed.encode()).digest()
    return (word * (size // 64 + 1))[: size // 2] + hashlib.shake_128(word).digest(size - size // 2)


def tar(stream: Stream) -> tuple[bytes, MemberLines]:
    """The tar stream, and what the index says of it."""
    out, lines = io.BytesIO(), MemberLines()
    for name, has in stream:
        info = tarfile.TarInfo(name.rstrip("/") or ".")
        info.mtime = 1_700_000_000.5
        if isinstance(has, str):
            info.type, info.linkname = tarfile.SYMTYPE, has
        data = b"" if isinstance(has, str) else has
        info.size = len(data)
        if name.endswith("/"):
            info.type, info.mode = tarfile.DIRTYPE, MODES.get(name.strip("./"), 0o755)
            if (acl := DEFAULT_ACLS.get(name.strip("./"))) is not None:
                told = acl.decode("utf-8", "surrogateescape")
                info.pax_headers = {"SCHILY.xattr.system.posix_acl_default": told}
        out.write(info.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape") + data + bytes(-len(data) % 512))
    out.write(bytes(1024))
    for _ in Members("a stream of a test", told=lines.add).take(out.getvalue()):
        pass
    lines.finish()
    return out.getvalue(), lines


def stored(name: str, plain: bytes, files: int, *, recipients: Sequence[str] = ()) -> tuple[bytes, StoredObject]:
    """What lies on a target, and what the manifest says of it."""
    encryptor = Encryptor(recipients) if recipients else None
    out, frames = b"", []
    for begin in range(0, max(1, len(plain)), FRAME_BYTES):
        part = plain[begin : begin + FRAME_BYTES]
        compressor = Compressor(level=1, threads=1)
        packed = b"".join((*compressor.take(part), *compressor.end()))
        if encryptor is not None:
            packed = b"".join(encryptor.take(packed))
            if begin + FRAME_BYTES >= len(plain):
                packed += b"".join(encryptor.end())
        frames.append(Frame(len(part), len(packed), hashlib.sha256(packed).hexdigest()))
        out += packed
    digests = (hashlib.sha256(plain).hexdigest(), hashlib.sha256(out).hexdigest())
    name = f"{name}.age" if recipients else name
    return out, StoredObject(name, len(plain), len(out), *digests, files, tuple(frames))


def manifest(objects: Sequence[StoredObject], recipients: Sequence[str] = ()) -> Manifest:
    """Of these objects; the folder is the datadir itself."""
    return Manifest(
        run_id=RUN,
        job=JOB,
        host="db1",
        machine=MACHINE,
        created_at=datetime(2026, 1, 2, tzinfo=UTC),
        objects=tuple(objects),
        server=replace(FACTS, settings={"lower_case_table_names": "0"}),
        position=Position(),
        lsn=None,
        layout=Layout.LINEAR,
        volume="vg/data",
        datadir="",
        run=RunSection(started_at=datetime(2026, 1, 2, tzinfo=UTC)),
        recipients=tuple(recipients),
    )


def put(target: Target, streams: Mapping[str, Stream], *, recipients: Sequence[str] = ()) -> BackupSource:
    """A finished backup of these streams with its index lies on the target."""
    objects, members = {}, {}
    for name, stream in streams.items():
        plain, members[name] = tar(stream)
        files = sum(not member.endswith("/") for member, _ in stream)
        packed, told = stored(name, plain, files, recipients=recipients)
        objects[told] = packed
    packed, told = stored("index.jsonl.zst", b"".join(written(members)), 0, recipients=recipients)
    objects[told] = packed
    for told, packed in objects.items():
        with target.writing(JOB, RUN, told.name) as writer:
            writer.write(packed)
    target.publish(manifest(tuple(objects), recipients))
    return BackupSource(target, JOB, RUN, BELIEVED)


def put_in(folder: Path, streams: Mapping[str, Stream]) -> Path:
    """A new folder that is a target with such a backup, named as the folder is."""
    folder.mkdir()
    put(DirectoryTarget(folder.name, folder, machine=MACHINE), streams)
    return folder


def unpacked(streams: Mapping[str, Stream]) -> dict[str, bytes | str]:
    """The files and links that a restore makes of these streams."""
    return {name: data for stream in streams.values() for name, data in stream if not name.endswith("/")}


def files_in(folder: Path) -> dict[str, bytes | str]:
    """What is there."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def damaged(content: bytes) -> bytes:
    """Its last byte is another one."""
    return content[:-1] + bytes([content[-1] ^ 1])
