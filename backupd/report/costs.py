"""What backups cost as plain values: a line of `--csv`, and an entry of what `/api` tells of many.

Knows: the names of figures, their units in them. Refuses to judge: `impact` does.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from backupd.catalogue.costs import RunCost
from backupd.mysql import UNLOCKED
from backupd.policy.write_penalty import penalty_of
from backupd.report import words
from backupd.report.json_document import iso
from backupd.vocabulary.records import RunKind, RunStatus

_NONE = RunCost("", "", "", "", RunStatus.FAILED, datetime.min.replace(tzinfo=UTC))  # has every column


def penalties(cost: RunCost) -> tuple[float | None, float | None]:
    """How many times slower writes were at first, and when the copy was started; None where nothing was measured."""
    found = penalty_of(cost.windows)
    return found.initial_ratio, found.settled_ratio


def copy_rate(cost: RunCost) -> float | None:
    """Bytes a second that were read off the snapshot; None where nothing was copied."""
    return cost.bytes_read / cost.copy_seconds if cost.bytes_read and cost.copy_seconds else None


def hold_seconds(cost: RunCost) -> float | None:
    """For how long the server was locked; None where it was not."""
    return None if cost.lock_strategy == UNLOCKED else cost.lock_hold_seconds


def cow_peak(cost: RunCost) -> float | None:
    """The share of the COW area that was used at the most; None where nothing was measured, and in a thin pool."""
    peak = cost.cow_used_peak
    return peak / cost.cow_size if peak is not None and cost.cow_size else None


@dataclass(frozen=True)
class RunFigures:
    """What a run cost. Seconds, bytes, bytes a second; penalties are baseline ÷ measured; null: not measured.

    `error` is the message, for a person; `history --csv` has the error's code there.
    """

    run_id: str
    job: str
    machine: str
    kind: RunKind
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None
    seconds: float | None
    lock_wait_seconds: float | None
    lock_hold_seconds: float | None
    transactions_lost: float | None  # by the server's own counters; 0.0: not to be told from the noise
    transactions_expected: float | None
    stalled_statements: int | None  # that waited behind the lock
    penalty_seconds: float | None  # of the server's writing that the snapshot cost
    copied_on_write_bytes: int | None
    disk_seconds: float | None  # that the origin's disks were busy, summed, whoever used them
    disk_read_seconds: float | None  # that reads of them took, summed, whoever read
    penalty_first: float | None
    penalty_settled: float | None
    settle_seconds: float | None
    copy_seconds: float | None
    copy_bytes_per_second: float | None
    cow_peak: float | None  # of the COW area, 0.0 to 1.0; null in a thin pool, which is everybody's
    read_bytes: int | None
    stored_bytes: int | None  # of one copy
    error: str | None

    @classmethod
    def of(cls, cost: RunCost) -> "RunFigures":
        """The figures that follow from what is recorded."""
        first, settled = penalties(cost)
        return cls(
            run_id=cost.run_id,
            job=cost.job,
            machine=cost.machine,
            kind=cost.kind,
            status=cost.status,
            started_at=cost.started_at,
            ended_at=cost.ended_at,
            seconds=cost.seconds,
            lock_wait_seconds=cost.lock_wait_seconds,
            lock_hold_seconds=hold_seconds(cost),
            transactions_lost=cost.transactions_lost,
            transactions_expected=cost.transactions_expected,
            stalled_statements=cost.stalled,
            penalty_seconds=cost.penalty_seconds,
            copied_on_write_bytes=cost.copied_on_write,
            disk_seconds=cost.disk_seconds,
            disk_read_seconds=cost.disk_read_seconds,
            penalty_first=first,
            penalty_settled=settled,
            settle_seconds=cost.settle_seconds,
            copy_seconds=cost.copy_seconds,
            copy_bytes_per_second=copy_rate(cost),
            cow_peak=cow_peak(cost),
            read_bytes=cost.bytes_read,
            stored_bytes=cost.bytes_stored,
            error=cost.message,
        )


def cost_document(cost: RunCost) -> dict[str, Any]:
    """One backup: sizes in bytes, times in seconds, penalties as baseline ÷ window; `error` is the error's code."""
    first, settled = penalties(cost)
    return {
        "run_id": cost.run_id,
        "job": cost.job,
        "host": cost.host,
        "machine": cost.machine,
        "status": cost.status.value,
        "started_at": cost.started_at.isoformat(),
        "ended_at": iso(cost.ended_at),
        "error": cost.error,
        "lock_strategy": cost.lock_strategy,
        "lock_wait_seconds": cost.lock_wait_seconds,
        "lock_hold_seconds": cost.lock_hold_seconds,
        "gate": None if cost.gate is None else cost.gate.value,
        "settle_seconds": cost.settle_seconds,
        "penalty_initial_ratio": first,
        "penalty_settled_ratio": settled,
        "copy_seconds": cost.copy_seconds,
        "copy_bytes_per_second": copy_rate(cost),
        "read_bytes": cost.bytes_read,
        "stored_bytes": cost.bytes_stored,
        "copies": cost.copies,
        "cow_size_bytes": cost.cow_size,
        "cow_used_peak_bytes": cost.cow_used_peak,
        "stalled_statements": cost.stalled,
        "penalty_seconds": cost.penalty_seconds,
        "copied_on_write_bytes": cost.copied_on_write,
        "disk_seconds": cost.disk_seconds,
        "disk_read_seconds": cost.disk_read_seconds,
        "transactions_expected": cost.transactions_expected,
        "transactions_lost": cost.transactions_lost,
    }


def csv_text(costs: Sequence[RunCost], rolled: Mapping[str, datetime]) -> str:
    """A header, and a line for each backup; what is not known is empty. `rolled`: by run, up to when it can be rolled
    forward by the binlog archive.
    """
    lines = ({**cost_document(cost), "rolls_to": iso(rolled.get(cost.run_id))} for cost in costs)
    return words.csv_text([*cost_document(_NONE), "rolls_to"], lines)
