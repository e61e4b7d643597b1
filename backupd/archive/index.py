"""Where each member lies in the tar streams of a backup: what lets a single table's files be fetched alone.

Knows: the JSON of the index object. Refuses to know how members get into a stream and out of it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backupd.errors import VerificationError

INDEX_OBJECT = "index.json.zst"

_SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Member:
    """A file, folder or link in a tar stream."""

    name: str  # as tar restores it
    offset: int  # of its first header block in the plain stream
    size: int  # bytes up to the next member: headers and padding are counted


def to_bytes(objects: Mapping[str, Sequence[Member]]) -> bytes:
    """The index as it is stored. Objects are named without `.age`: an index tells of plain streams."""
    listed = {
        name: [[member.name, member.offset, member.size] for member in members] for name, members in objects.items()
    }
    return json.dumps({"schema": _SCHEMA, "objects": listed}, separators=(",", ":")).encode()


def from_bytes(content: bytes) -> Mapping[str, tuple[Member, ...]]:
    """What `to_bytes` was given.

    Raises:
        VerificationError: it is no index, or one of a later backupd's.
    """
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise _refusal(str(error)) from error
    if not isinstance(found, dict) or set(found) != {"schema", "objects"} or not isinstance(found["objects"], dict):
        raise _refusal("it does not have the parts of one")
    if found["schema"] != _SCHEMA:
        raise _refusal(f"its schema is {found['schema']!r}, and only {_SCHEMA} is known here")
    return {name: _members(name, listed) for name, listed in found["objects"].items()}


def _members(name: str, listed: object) -> tuple[Member, ...]:
    if not isinstance(listed, list):
        raise _refusal(f"the members of {name} are no list")
    members = []
    for item in listed:
        match item:
            case [str(member), int(offset), int(size)] if (
                offset >= 0 and size > 0 and type(offset) is type(size) is int
            ):
                members.append(Member(member, offset, size))
            case _:
                raise _refusal(f"a member of {name} is not told by name, offset and size")
    return tuple(members)


def _refusal(why: str) -> VerificationError:
    return VerificationError(
        f"the index of the members cannot be understood: {why}",
        hint="restore the whole backup, which needs no index; or use the backupd that wrote it",
    )
