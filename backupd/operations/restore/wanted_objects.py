"""Which parts of a backup's objects a restore wants: all of them, or those that a server with some tables needs.

Knows: a backup's objects, and the index of their members.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import tee

from backupd.archive.frames import DAMAGED, Range
from backupd.archive.governor import Unhindered
from backupd.archive.index import INDEX_OBJECT, Index, Member
from backupd.archive.stream import BINLOG_OBJECT
from backupd.archive.unpack import frames_in
from backupd.mysql.tablefiles import Table, TableFiles
from backupd.operations.restore.next_copy import AgreedCopies
from backupd.vocabulary.errors import UsageError, VerificationError
from backupd.vocabulary.storage import Manifest, StoredObject

_LEAST_INDEX = 64 << 20  # bytes that any index may unpack to
_INDEX_LINES = 4 << 10  # more for each file: a usual line has 200
_LEAST_HELD = 96 << 20  # bytes of any index, as it is stored, that are held in memory
_HELD_LINES = 256  # or for each file: a usual line takes 25, one with a long name of random letters 190
_MOST_HELD = 1 << 30  # whatever the manifest says: of 40 million usual files
_BESIDE = frozenset({INDEX_OBJECT, "options.tar.zst"})  # objects that are no part of the restored folder


@dataclass(frozen=True, slots=True)
class WantedPart:
    """What is wanted of one object: these ranges of its tar stream; None is all."""

    stored: StoredObject
    wanted: tuple[Range, ...] | None = None

    @property
    def size(self) -> int:
        """Bytes of the tar stream."""
        return self.stored.plain_bytes if self.wanted is None else sum(end - begin for begin, end in self.wanted)


def parts_of(manifest: Manifest) -> tuple[WantedPart, ...]:
    """All that a restored folder consists of."""
    return tuple(WantedPart(stored) for stored in manifest.objects if stored.plain_name not in _BESIDE)


def parts_with(tables: Collection[Table], listed: Index, manifest: Manifest) -> tuple[WantedPart, ...]:
    """What a server with these tables consists of, by the index of the backup's members.

    Raises:
        UsageError: there is no such table.
        VerificationError: the index does not fit the objects.
    """
    ranges: dict[str, list[Range]] = {}
    for name, member, chosen in selected_members(listed, manifest, tables):
        wanted = ranges.setdefault(name, [])
        if chosen:
            _join(wanted, member, name)
    parts = []
    for part in parts_of(manifest):
        found = ranges.get(part.stored.plain_name)
        if found and found[-1][1] > part.stored.plain_bytes:
            raise _misfit(part.stored.name)
        if found is None:  # nothing of it is known: all of it may be needed
            parts.append(part)
        elif found:
            parts.append(WantedPart(part.stored, tuple(found)))
    return tuple(parts)


def index_of(copies: AgreedCopies) -> Index:
    """From the first copy that has it.

    Raises:
        UsageError: the backup has no index.
        Unreadable: it is larger than any of these files can be.
        VerificationError, TargetError: it cannot be read.
    """
    manifest = copies.manifest
    stored = next((each for each in manifest.objects if each.plain_name == INDEX_OBJECT), None)
    if stored is None:
        raise UsageError(
            f"run {manifest.run_id} has no index of its members: single tables cannot be restored",
            hint="restore everything: omit --tables",
        )
    files = sum(each.files for each in manifest.objects)
    _require_modest_index(stored, manifest, files)
    held = min(max(_LEAST_HELD, files * _HELD_LINES), _MOST_HELD)
    return copies.first_given(
        stored,
        lambda copy: Index(frames_in(copy.stored, copy.reading, key=copy.key, governor=Unhindered(), at_most=held)),
    )


def table_files(listed: Index, manifest: Manifest) -> TableFiles:
    """Which of the backup's members are files of which table; all members are read for it."""
    return TableFiles(
        (member.name for _, member in listed.members()),
        datadir=manifest.datadir,
        lower_case=manifest.server.settings.get("lower_case_table_names", "0") != "0",
    )


def bytes_of_tables(tables: Collection[Table], listed: Index, manifest: Manifest) -> int:
    """What the files of these tables alone take, holes too: whoever copies them fills those."""
    members, named = tee(member for _, member in listed.members())
    own = table_files(listed, manifest).own((member.name for member in named), tables)
    return sum(member.recorded.size for member, is_own in zip(members, own, strict=True) if is_own)


def selected_members(
    listed: Index, manifest: Manifest, tables: Collection[Table]
) -> Iterator[tuple[str, Member, bool]]:
    """Each member with its object's name, and whether a server with these tables needs it.

    Raises:
        UsageError: there is no such table.
    """
    files = table_files(listed, manifest)
    files.require(tables)
    members, named = tee(listed.members())
    chosen = files.selected((member.name for _, member in named), tables)
    return (
        (name, member, wanted or name == BINLOG_OBJECT) for (name, member), wanted in zip(members, chosen, strict=True)
    )


def _join(ranges: list[Range], member: Member, name: str) -> None:
    """The member's range is among them, as one with the last where it follows that."""
    begin, end = member.offset, member.offset + member.size
    last = ranges[-1][1] if ranges else 0
    if begin < last:
        raise _misfit(name)
    if ranges and begin == last:
        begin = ranges.pop()[0]
    ranges.append((begin, end))


def _misfit(name: str) -> VerificationError:
    return VerificationError(f"the index does not match {name}", hint=DAMAGED)


def _require_modest_index(stored: StoredObject, manifest: Manifest, files: int) -> None:
    """It unpacks to no more than lines of these files, and as many folders again, can be.

    Raises:
        VerificationError: it would.
    """
    if stored.plain_bytes > _LEAST_INDEX + files * _INDEX_LINES:
        raise VerificationError(
            f"the index of run {manifest.run_id} unpacks to {stored.plain_bytes} bytes: {files} files need far less",
            hint=DAMAGED,
        )
