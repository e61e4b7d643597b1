"""What a bench costs its host: how long one scratch volume takes, and how much is written to it. Pure.

Knows: how fast a disk is taken to be before anything is known of it.
"""

from math import ceil

from backupd.policy.probe_plan import bill
from backupd.vocabulary.benches import BenchRequest, PlannedLayout
from backupd.vocabulary.gauges import Mode
from backupd.vocabulary.probes import ProbeRequest, Variant
from backupd.vocabulary.scratch_layouts import MIB, Operation

PROBE_FILE_SIZE = 32 * MIB  # of the probe on each layout: some seconds, and copied on write within them

SNAPSHOT_SIZE = PROBE_FILE_SIZE * 9 // 4  # its COW area: a probe wants twice what it fills, and metadata

DISK_RATE = 150_000_000  # bytes a second that one disk is taken to write
_WINDOW_MORE = 0.3  # seconds that it takes to start and end a window's program
_MAKING_SECONDS = 6.0  # of one scratch volume: made, formatted, mounted, and all that undone
_PROBE_MORE = 8.0  # seconds that a probe takes beside its windows: its snapshots come and go twice


def probe_request(request: BenchRequest) -> ProbeRequest:
    """What is asked of the probe on each layout: what first writes cost, and how fast its snapshot is read."""
    return ProbeRequest(
        modes=(Mode.DIRECT,), file_size=PROBE_FILE_SIZE, seconds=request.seconds, repeat=1, reads=True, scans_only=True
    )


def seconds_of(request: BenchRequest, volume: PlannedLayout, *, probed: bool) -> float:
    """About how long one scratch volume takes: windows are whole seconds."""
    windows = request.repeat * len(volume.cells) * (ceil(request.seconds) + _WINDOW_MORE)
    files = _prepared(request, volume) / (DISK_RATE * volume.layout.width)
    return _MAKING_SECONDS + windows + files + (_probe_seconds(request) if probed else 0.0)


def written_to(request: BenchRequest, volume: PlannedLayout, *, probed: bool) -> int:
    """Bytes at the most, where the disks take `DISK_RATE` each."""
    writing = sum(cell.operation not in (Operation.READ, Operation.RANDOM_READ) for cell in volume.cells)
    rate = DISK_RATE * volume.layout.width
    windows = writing * request.repeat * ceil(request.seconds)
    probe = PROBE_FILE_SIZE + 2 * ceil(request.seconds) * rate if probed else 0  # without a snapshot, and with one
    return _prepared(request, volume) + windows * rate + probe


def _prepared(request: BenchRequest, volume: PlannedLayout) -> int:
    """Bytes that are written before the first window of each medium."""
    return request.file_size * len({cell.medium for cell in volume.cells})


def _probe_seconds(request: BenchRequest) -> float:
    return _PROBE_MORE + bill(probe_request(request), (Variant(0),), cow_size=0).seconds
