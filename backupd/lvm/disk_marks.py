"""How a whole disk tells whose it is: in its PV's uuid, and in its md superblock. Pure, but for one read.

Knows: what a run's id may be to fit there, LVM's alphabet, the head of an md superblock of version 1.2 (the kernel's
`uapi/linux/raid/md_p.h`, struct mdp_superblock_1).

A group has tags; but its disks become PVs before it exists, and between the two a run may die. So each PV is given a
uuid that says whose it is: `backupd`, the disk's place, four characters of a digest of the machine's name, for which
there is no more room, and the run's id. An array has a name of 32 characters, which says the run too, and a uuid that
follows from both, so that no other array is taken for ours because of its name, nor another machine's.

A disk that two hosts see (a LUN, the disk of a clone) is thus its maker's: the other one's recovery passes it by, and
its bench refuses it, since it is not empty.
"""

import hashlib
import re
import string
import struct
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID, uuid5

from backupd.lvm import TAG, Mark, scratch_name
from backupd.vocabulary.errors import Refused

_PLACES = string.digits + string.ascii_letters
_MARK_LENGTH = 32  # of a uuid of LVM's without its dashes, and of an array's name
_MACHINE_LENGTH = 4  # of the machine's digest: one in 15 million is the same
_LONGEST_RUN = _MARK_LENGTH - len(TAG) - 1 - _MACHINE_LENGTH
_MARKABLE = re.compile(rf"[0-9A-Za-z][0-9A-Za-z-]{{0,{_LONGEST_RUN - 1}}}")
_DASH, _END = "!", "#"  # LVM's alphabet (lvm2, lib/uuid/uuid.c) has these two beside letters and digits, and no dash
_ARRAYS = UUID("f2b0a8a4-6f0e-4d0c-9f5e-2f6b7f3c1d57")  # a namespace of our own (RFC 4122)

_SUPERBLOCK_OFFSET = 4096  # of version 1.2; bytes
_SUPERBLOCK = struct.Struct("<II8x16s32s104x16s")  # magic, major version, set_uuid, set_name, device_uuid
_MAGIC, _MAJOR = 0xA92B4EFC, 1


def require_markable(run_id: str, disks: tuple[str, ...]) -> None:
    """The run's id can be written onto so many disks.

    Raises:
        Refused: it cannot.
    """
    if not _MARKABLE.fullmatch(run_id):
        raise Refused(
            f"run id {run_id!r} is not a valid disk label, so a dead run's disks could not be found again",
            hint=f"use at most {_LONGEST_RUN} letters, digits and dashes, or omit it",
        )
    if len(disks) > len(_PLACES):
        raise Refused(f"{len(disks)} disks are too many", hint=f"use at most {len(_PLACES)}")


def pv_uuid(mark: Mark, place: int) -> str:
    """The uuid of a run's PV, without dashes; `place` is the disk's among those that were named."""
    run_id = mark.run_id.replace("-", _DASH)
    return f"{TAG}{_PLACES[place]}{_digest(mark.machine)}{run_id}".ljust(_MARK_LENGTH, _END)


def run_of_pv(uuid: str, machine: str) -> str | None:
    """The machine's run whose PV this uuid marks, with or without dashes; None for any other."""
    bare = uuid.replace("-", "")
    machines, runs = bare[len(TAG) + 1 :][:_MACHINE_LENGTH], bare[len(TAG) + 1 + _MACHINE_LENGTH :]
    if not bare.startswith(TAG) or len(bare) != _MARK_LENGTH or machines != _digest(machine):
        return None
    run_id = runs.rstrip(_END).replace(_DASH, "-")
    return run_id if _MARKABLE.fullmatch(run_id) else None


def array_uuid(mark: Mark) -> UUID:
    """The uuid of a run's array."""
    return uuid5(_ARRAYS, f"{mark.machine} {mark.run_id}")


@dataclass(frozen=True, slots=True)
class Superblock:
    """What a disk says of the array that it is part of."""

    uuid: UUID
    name: str
    member: UUID  # which of the array's disks it is; the same by whatever path it is read

    def run_of(self, machine: str) -> str | None:
        """The machine's run whose array it is: by its name and its uuid; None for anybody else's."""
        run_id = self.name.removeprefix(scratch_name(""))
        is_ours = self.name == scratch_name(run_id) and self.uuid == array_uuid(Mark(machine, run_id))
        return run_id if is_ours and _MARKABLE.fullmatch(run_id) else None


def read_superblock(disk: Path) -> Superblock | None:
    """The md superblock of a disk; None where there is none of version 1.2, the only one that we make.

    Raises:
        OSError: it cannot be read (no medium, not root).
    """
    with disk.open("rb", buffering=0) as file:
        file.seek(_SUPERBLOCK_OFFSET)
        return parse_superblock(file.read(_SUPERBLOCK_OFFSET))  # a whole block, whatever a sector is


def parse_superblock(data: bytes) -> Superblock | None:
    """The same for what was read at its place."""
    if len(data) < _SUPERBLOCK.size:
        return None
    magic, major, uuid, name, member = _SUPERBLOCK.unpack_from(data)
    if (magic, major) != (_MAGIC, _MAJOR):
        return None
    return Superblock(UUID(bytes=uuid), name.rstrip(b"\0").decode("utf-8", "replace"), UUID(bytes=member))


def _digest(machine: str) -> str:
    """A few characters of LVM's alphabet that follow from a machine's name."""
    number = int.from_bytes(hashlib.sha256(machine.encode()).digest())
    return "".join(_PLACES[number // len(_PLACES) ** place % len(_PLACES)] for place in range(_MACHINE_LENGTH))
