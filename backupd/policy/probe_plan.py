"""What a probe will do, decided before it does it: which loads, on which snapshots, for how many windows. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from backupd.vocabulary.gauges import CowPlace, FileLoad, Mode
from backupd.vocabulary.probes import ProbeRequest, Variant

SCAN_BLOCK = 1 << 20  # bytes; what a copy reads at once
TUNED_CHUNKS = tuple(size << 10 for size in (16, 64, 256, 512))  # bytes; smaller ones are never best on a disk we met


@dataclass(frozen=True, slots=True)
class ProbeCost:
    """What a probe costs its host at the most, told before it begins."""

    file_bytes: int  # written once, and rewritten at most as fast as the disks allow for `seconds`
    writing_seconds: float
    cow_bytes: int  # of the volume group, while the snapshots exist
    snapshots: int  # taken and removed again, one group after the other
    seconds: float
    rewrites: int = 0  # of the whole file, to fill snapshots that are then read

    def written_bytes(self, rate: float) -> int:
        """How much is written in all when the disks take `rate` bytes a second of it."""
        return round(self.file_bytes * (1 + self.rewrites) + self.writing_seconds * rate)


def write_loads(request: ProbeRequest) -> tuple[FileLoad, ...]:
    """Every mode with every number of threads, in the order in which the rows are shown."""
    return tuple(
        FileLoad(
            mode=mode,
            threads=threads,
            block_size=request.block_size,
            area=request.rewrite_size if mode is Mode.REWRITE else request.file_size,
            write_share=request.write_share,
        )
        for mode in request.modes
        for threads in request.threads
    )


def read_load(request: ProbeRequest, mode: Mode) -> FileLoad:
    """How the file is read: at random like the writes, or from its start to its end like a copy."""
    block = SCAN_BLOCK if mode in (Mode.SCAN, Mode.SCAN_SNAPSHOT) else request.block_size
    return FileLoad(mode=mode, threads=1, block_size=block, area=request.file_size)


def read_modes(request: ProbeRequest, *, of_snapshot: bool = False) -> tuple[Mode, ...]:
    """In which ways the origin is read, or the snapshot."""
    at_random, scan = (Mode.READ_SNAPSHOT, Mode.SCAN_SNAPSHOT) if of_snapshot else (Mode.READ, Mode.SCAN)
    return (scan,) if request.scans_only else (at_random, scan)


def variants(request: ProbeRequest, *, chunk_size: int, place: CowPlace) -> tuple[Variant, ...]:
    """Every snapshot that is to be tried: chunk sizes on each placement, then more than one on the first of these.

    `chunk_size` and `place` are what is taken where the request names none; a PV that it names has a linear COW area.
    """
    chunks = request.chunk_sizes or (chunk_size,)
    places = dict.fromkeys((place, *(((pv,), 1) for pv in request.cow_on)))
    counts = request.snapshots or (1,)
    first = [Variant(chunk, pvs, counts[0], stripes) for pvs, stripes in places for chunk in chunks]
    return tuple(first + [replace(first[0], snapshots=count) for count in counts[1:]])


def tuned_variants(
    request: ProbeRequest, *, default: Variant, usual: int, places: Iterable[CowPlace]
) -> tuple[Variant, ...]:
    """Chunk sizes in each place, the default first; `usual` is the size that the disks' table says, tried always."""
    chunks = dict.fromkeys((default.chunk_size, usual, *(request.chunk_sizes or TUNED_CHUNKS)))
    return tuple(
        Variant(chunk, pvs, stripes=stripes)
        for pvs, stripes in dict.fromkeys((default.place, *places))
        for chunk in chunks
    )


def bill(request: ProbeRequest, tried: tuple[Variant, ...], *, cow_size: int) -> ProbeCost:
    """The most that this can cost. `cow_size` is that of one snapshot's COW area, in bytes."""
    if request.tune:
        windows = request.repeat * (1 + len(tried)) * request.seconds
        file_size, writing = (0, 0.0) if request.passive else (request.file_size, windows)
        return ProbeCost(file_size, writing, cow_size, request.repeat * len(tried), windows)
    if request.passive:
        watching = request.repeat * request.seconds + request.longest_wait_seconds + request.seconds
        return ProbeCost(0, 0.0, cow_size, 1, watching)
    asked = write_loads(request)
    loads, decays = len(asked), sum(load.mode is Mode.REWRITE for load in asked)
    decay = request.longest_wait_seconds + request.seconds
    writing = loads * request.seconds + len(tried) * ((loads - decays) * request.seconds + decays * decay)
    if request.while_copying:
        writing += len(tried) * loads * request.seconds
    fills = request.reads and not request.scans_only
    ways, times = len(read_modes(request)), 2 if fills else 1
    reading = request.seconds * ways * (1 + 2 * times * len(tried)) if request.reads else 0.0
    return ProbeCost(
        file_bytes=request.file_size,
        writing_seconds=writing * request.repeat,
        cow_bytes=max(variant.snapshots for variant in tried) * cow_size,
        snapshots=request.repeat * (loads + request.reads) * sum(variant.snapshots for variant in tried),
        seconds=(writing + reading) * request.repeat,
        rewrites=request.repeat * len(tried) if fills else 0,
    )
