"""What can be asked of a bench, whatever the host: the faults of a request. Pure.

Knows: what direct I/O, sysbench and striping take. Faults that depend on the disks are found in `bench_plan`.
"""

from math import lcm

from backupd.policy.published_benches import cells_of, tables_of
from backupd.vocabulary.benches import LARGE_RECORD, LEAST_SIZE, BenchRequest, PublishedTable
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.units import format_size, size_words

_SECTOR = 512  # bytes; no disk reads or writes less
_LEAST_STRIPE = 4 << 10  # LVM's, a page; the most is an extent (lvcreate(8), `--stripesize`)


def require_sound(request: BenchRequest) -> None:
    """What is asked for can be, on some host.

    Raises:
        UsageError: naming the option.
    """
    _require_place(request)
    _require_sizes(request)
    if request.filesystem not in LEAST_SIZE:
        raise UsageError(f"--filesystem: no {request.filesystem!r}", hint=f"there are: {', '.join(LEAST_SIZE)}")
    if not 0 < request.seconds < float("inf") or request.repeat < 1:
        raise UsageError("--seconds is above 0, and --repeat 1 or more", hint="see `backupd bench layouts --help`")
    if any(threads < 1 for threads in request.threads):
        raise UsageError("--threads are 1 or more", hint="for example --threads 1,2,6")
    if any(width < 2 for width in request.widths):
        raise UsageError("--widths are 2 or more: the linear volume is always measured", hint="e.g. --widths 2,3")
    if request.raw and PublishedTable.E3 not in tables_of(request):
        raise UsageError("--raw measures table e3 on the device, but table e3 is not selected", hint="add --table e3")


def _require_place(request: BenchRequest) -> None:
    if bool(request.vg) == bool(request.array_disks):
        raise UsageError(
            "give a volume group or disks",
            hint="backupd bench layouts --vg VG, or backupd bench layouts --md DISK,DISK",
        )
    if request.array_disks and request.pvs:
        raise UsageError("--pvs needs a volume group, and --md uses none", hint="omit --pvs")
    if request.overwrite_leftovers and not request.array_disks:
        raise UsageError("--overwrite-leftovers belongs to --md", hint="omit it: free extents hold nothing anyway")
    if len(request.array_disks) == 1:
        raise UsageError(f"one disk only: {request.array_disks[0]}; striping needs two", hint="--md DISK,DISK")
    for option, names in (("--pvs", request.pvs), ("--md", request.array_disks)):
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"{option} names {', '.join(twice)} twice", hint="name each disk once")


def _require_sizes(request: BenchRequest) -> None:
    """Direct I/O asks for whole sectors, sysbench for a file of whole records, LVM and mdadm for powers of two."""
    for record in request.records:
        if record < _SECTOR or record % _SECTOR:
            raise UsageError(f"--records: {record} bytes is not a valid block size", hint="a multiple of 512 bytes")
    asked = {cell.record for table in tables_of(request) for cell in cells_of(table, request, (1,))}
    uneven = [record for record in sorted(asked, reverse=True) if request.file_size % record]
    if request.file_size <= 0 or uneven:
        record = uneven[0] if uneven else LARGE_RECORD
        raise UsageError(
            f"--size {size_words(request.file_size)} is not a multiple of a record of {size_words(record)}",
            hint=f"e.g. --size {format_size(16 * lcm(*asked))}",
        )
    for size in request.stripe_sizes:
        if size < _LEAST_STRIPE or size & (size - 1):
            raise UsageError(
                f"--stripe-sizes: {size_words(size)} is not a stripe size that LVM accepts",
                hint="a power of two from 4k on",
            )
    if not request.stripe_sizes:
        raise UsageError("--stripe-sizes is empty", hint="for example --stripe-sizes 64k,256k")
