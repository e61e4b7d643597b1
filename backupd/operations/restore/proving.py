"""A proof host's work, told in order: what lies on the targets, which of it is drilled next, what became of each.

Knows: that one copy, or one target, that cannot be drilled keeps no other from its turn, not even where that is a bug
of ours, or where this host runs out of memory or room: neither is a result. Refuses to know what the results mean for
whoever asked, and when no drill may begin.
"""

import errno
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from backupd.config import ProofCheckConfig
from backupd.host.filesystem import remove_tree
from backupd.operations.restore.proof_host import Proof, ProofHost, TooLarge, provable, prove_copy
from backupd.operations.tools import HostTools
from backupd.policy.proof_order import ProvableCopy, in_order
from backupd.targets import Target
from backupd.vocabulary.errors import (
    BackupdError,
    Busy,
    Cancelled,
    CleanupIncomplete,
    HostExhausted,
    InternalError,
    TargetAway,
    UsageError,
)

log = logging.getLogger(__name__)

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)


@dataclass(frozen=True, slots=True)
class TriedCopy:
    """What became of a copy: a result, or why there is none."""

    copy: ProvableCopy
    result: Proof | TooLarge | BackupdError


@dataclass(frozen=True, slots=True)
class LostTarget:
    """A target that cannot be listed, or does not answer any more: the rest of it is passed over."""

    name: str
    why: BackupdError
    passed_over: int = 0  # copies


@dataclass(frozen=True, slots=True)
class UnaskedCheck:
    """A check of one's own that no copy is of: its job or its machine may be misspelt."""

    check: ProofCheckConfig


@dataclass(frozen=True, slots=True)
class NotNow:
    """The hours have begun in which no drill may begin."""

    why: str


Proven = TriedCopy | LostTarget | UnaskedCheck | NotNow


def prove_copies(
    host: ProofHost,
    targets: Mapping[str, Target],
    *,
    signers: frozenset[str],
    most: int | None,
    not_now: Callable[[], str],
    stepping: Callable[[ProvableCopy, str], None],
) -> Iterator[Proven]:
    """Drill at most so many copies (None: each once), those that need it most first, and yield what becomes of each.

    `signers` are other proof hosts, whose drills count as tries. `not_now` says why no drill may begin; empty where one
    may. What earlier ones left on this host when they were killed is removed first.

    Raises:
        UsageError: there is no backup on any target.
        Busy: another process does the same on this host.
    """
    with host.tools.claims.proving():
        _remove_what_the_killed_left(host.tools)
        copies: list[ProvableCopy] = []
        lost: set[str] = set()
        for name, target in targets.items():
            try:
                copies += provable(target, signers | {host.signer.public})
            except Cancelled:
                raise
            except BackupdError as error:
                lost.add(name)
                yield LostTarget(name, error)
        if not copies and not lost:
            raise UsageError("there is no backup to prove", hint="no target has a finished backup")
        if not lost:
            yield from _unasked(host, copies)
        yield from _drilled(host, targets, in_order(copies), most=most, not_now=not_now, stepping=stepping)


def _unasked(host: ProofHost, copies: list[ProvableCopy]) -> Iterator[UnaskedCheck]:
    for check in host.checks:
        if not any(check.is_of(copy.machine, copy.job) for copy in copies):
            yield UnaskedCheck(check)


def _drilled(
    host: ProofHost,
    targets: Mapping[str, Target],
    copies: list[ProvableCopy],
    *,
    most: int | None,
    not_now: Callable[[], str],
    stepping: Callable[[ProvableCopy, str], None],
) -> Iterator[Proven]:
    lost: set[str] = set()
    drilled = 0
    for number, copy in enumerate(copies):
        if drilled == most:
            return
        if copy.target in lost:
            continue
        if why := not_now():
            yield NotNow(why)
            return
        result = _tried(host, targets[copy.target], copy, stepping)
        yield TriedCopy(copy, result)
        drilled += isinstance(result, Proof)
        error = result.unwritten if isinstance(result, Proof) else result
        if isinstance(error, TargetAway):
            lost.add(copy.target)
            rest = sum(other.target == copy.target for other in copies[number + 1 :])
            yield LostTarget(copy.target, error, passed_over=rest)


def _tried(
    host: ProofHost, target: Target, copy: ProvableCopy, stepping: Callable[[ProvableCopy, str], None]
) -> Proof | TooLarge | BackupdError:
    try:
        return prove_copy(host, target, copy, lambda step: stepping(copy, step))
    except Cancelled:
        raise
    except BackupdError as error:
        return error
    except Exception as bug:  # any fault of ours at all: it is told as one, and the others have their turn
        if lacking := _lacking(bug):
            return HostExhausted(f"this host has no {lacking}", hint="check the free memory (free -m) and disk space")
        log.error(
            "the drill of run %s of job %s of machine %s failed", copy.run_id, copy.job, copy.machine, exc_info=bug
        )
        said = f"internal error: {type(bug).__name__}: {bug}"
        return InternalError(said, hint="this is a bug in backupd; please report it")


def _lacking(error: Exception) -> str:
    """What this host had none left of, which is no bug; empty where it is one."""
    if isinstance(error, MemoryError):
        return "memory left for the drill"
    if isinstance(error, OSError) and error.errno in _NO_ROOM:
        return "room left for the drill" + (f": {error.filename}" if error.filename else "")
    return ""


def _remove_what_the_killed_left(tools: HostTools) -> None:
    """A proof host has no runs, so nothing else recovers there. What resists is logged, and no reason not to drill."""
    for folder in tools.places.drill_folders():
        with suppress(Busy), tools.claims.run(folder.name):
            try:
                remove_tree(folder)
            except CleanupIncomplete as error:
                log.error("%s", error.message)
            else:
                log.warning("removed %s, which a drill that was killed had left", folder)
