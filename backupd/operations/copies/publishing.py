"""From bytes on the targets to backups: each copy is read back, held against its manifest, published, looked at again.

Read `publish_copy` aloud. Knows: that a target's own listing must be what the manifest says, before the manifest is
there and after; that no target waits for another one; that a copy which is there is worth more than its record.
"""

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Empty, SimpleQueue

from backupd.archive import Governor
from backupd.archive.governor import CopyGovernor
from backupd.archive.parallel import side_by_side
from backupd.archive.readahead import Left
from backupd.host.daemon_thread import answered
from backupd.host.holdings import Claim
from backupd.host.priority import give_way
from backupd.operations.hanging_targets import no_answer, silent_seconds
from backupd.operations.recorded_copy import copy_on
from backupd.operations.restore.verify import verify_object
from backupd.targets import Target
from backupd.targets.listing import require_listed
from backupd.vocabulary.errors import CatalogueError, TargetError, VerificationError
from backupd.vocabulary.penalty import READ_BACK, Throughput
from backupd.vocabulary.storage import Backup, Manifest


@dataclass(frozen=True, slots=True)
class Published:
    """A copy that is a backup now."""

    target: Target
    backup: Backup
    unknown: tuple[str, ...]  # entries beside its objects that no manifest names
    read_back: Throughput


def publish_copies(
    manifest: Manifest,
    targets: Sequence[Target],
    *,
    max_rate: int | None,
    failing: Callable[[Target], AbstractContextManager[None]],
    published: Callable[[Published], None],
    require_ours: Callable[[Target], object] = lambda _target: None,
    read: Callable[[int], None] = lambda _done: None,
) -> None:
    """Every copy of this manifest that is whole is a backup; the targets work side by side, in the idle class.

    `max_rate` is bytes a second that all of them may read together. `failing(target)` is entered in that target's
    thread: it answers for what fails on the target alone, also that it does not answer for too long (`silent_seconds`).
    `published` is called in this thread, within a tenth of a second of each, so that whatever becomes of the others
    cannot take it back. `require_ours` raises where another machine has written into this machine's folder meanwhile.
    `read` is told the bytes that all of them have read, here and several times a second.

    Raises:
        Cancelled: by a signal. What is published by then and was not told is for whoever holds the copy to remove.
        Anything that `failing` lets through, and that `published` raises.
    """
    governor = _SharedGovernor(max_rate)
    ended: SimpleQueue[Published] = SimpleQueue()

    def tell() -> None:
        read(governor.paced)
        while (one := _next(ended)) is not None:
            published(one)

    def task(target: Target) -> Callable[[Callable[[], None]], None]:
        def work(require_wanted: Callable[[], None]) -> None:
            pace, most = _Pace(governor, require_wanted), silent_seconds(target)

            def publish() -> None:
                give_way()
                with failing(target):
                    ended.put(publish_copy(target, manifest, governor=pace, require_ours=require_ours))

            try:
                name = f"backupd publish {target.name}"
                answered(publish, within_seconds=most, name=name, last_sign=pace.last_sign, idle=require_wanted)
            except TimeoutError as error:
                pace.call_off()
                with failing(target):
                    raise no_answer(target, most) from error

        return work

    side_by_side([task(target) for target in targets], idle=tell, at_once=len(targets))
    tell()


@contextmanager
def left_to_recover(
    copies: Callable[[], Mapping[str, Claim]], *, left: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Record what was published. Where the catalogue cannot be written, no copy is removed: `recover` finishes each.

    A disk that is full for a moment must not cost more than the death of the process would. `copies` are those on which
    nothing has failed, by target; `left` is called where some of them stay that are not recorded.

    Raises:
        CatalogueError: the same, with what stays and what finishes it.
    """
    try:
        yield
    except CatalogueError as error:
        unrecorded = {name: claim for name, claim in copies().items() if not claim.kept}
        if not unrecorded:
            raise
        for claim in unrecorded.values():
            claim.kept = True
        left()
        where = ", ".join(unrecorded)
        raise type(error)(
            f"the copy on {where} could not be recorded: {error.message}",
            hint=f"{error.hint}; then `backupd recover`: the copy on {where} stays, and is a backup if it is whole",
        ) from error


def publish_copy(
    target: Target,
    manifest: Manifest,
    *,
    governor: Governor,
    require_ours: Callable[[Target], object] = lambda _target: None,
) -> Published:
    """This target's copy is a backup: success is what was read back, and what the target itself lists.

    Raises:
        VerificationError: it is not what was stored. No manifest is there then.
        TargetError: it cannot be read, or the manifest cannot be written; whether there is one may be unknown.
        Anything that the governor raises: no manifest is there then.
    """
    began = time.monotonic()
    for stored in manifest.objects:
        verify_object(target, manifest.job, manifest.run_id, stored, governor=governor)
    seconds = time.monotonic() - began
    require_listed(target, manifest)
    require_ours(target)
    governor.pace(0)  # the last moment at which it can be called off
    target.publish(manifest)
    try:
        unknown = require_published(target, manifest)
    except VerificationError as error:
        _take_back(target, manifest, error)
        raise
    read = sum(stored.stored_bytes for stored in manifest.objects)
    return Published(
        target,
        copy_on(target, manifest, verified_at=datetime.now(UTC)),
        unknown,
        Throughput(f"{READ_BACK}{target.name}", read, seconds),
    )


def require_published(target: Target, manifest: Manifest) -> tuple[str, ...]:
    """This manifest is there, and so is all that it names; returns the entries that it does not name.

    Raises:
        VerificationError: something is missing, or differs.
        TargetError: it cannot be read.
    """
    if target.manifest(manifest.job, manifest.run_id) != manifest:
        raise VerificationError(
            f"the manifest on target {target.name} is not what was written",
            hint="check the target's disk: it loses or changes what is written to it",
        )
    return require_listed(target, manifest)


def _take_back(target: Target, manifest: Manifest, error: VerificationError) -> None:
    """A manifest without its bytes must not stay while other targets are still being read, which can take hours."""
    try:
        target.remove(manifest.job, manifest.run_id)
    except TargetError as second:
        error.add_note(f"and its manifest could not be removed: {second.message}")


def _next(ended: "SimpleQueue[Published]") -> Published | None:
    try:
        return ended.get_nowait()
    except Empty:
        return None


class _SharedGovernor:
    """One rate for several threads."""

    def __init__(self, max_rate: int | None) -> None:
        self._lock = threading.Lock()
        self._require_wanted: Callable[[], None] = lambda: None
        self._governor = CopyGovernor(max_rate=max_rate, check=self._check)

    @property
    def paced(self) -> int:
        """Bytes that all of them have read."""
        return self._governor.paced

    def pace(self, size: int, require_wanted: Callable[[], None]) -> None:
        """Return when `size` more bytes may be read by whichever thread; it ends early where nobody waits for them."""
        with self._lock:
            self._require_wanted = require_wanted
            self._governor.pace(size)

    def _check(self) -> None:
        self._require_wanted()


class _Pace:
    """One thread's view of it, which tells that it goes on."""

    def __init__(self, governor: _SharedGovernor, require_wanted: Callable[[], None]) -> None:
        self._governor = governor
        self._require_wanted = require_wanted
        self._is_called_off = False
        self._last_sign = time.monotonic()

    def pace(self, size: int) -> None:
        """See `Governor`. Raises when nobody waits any more."""
        self._go_on()
        self._governor.pace(size, self._go_on)

    def last_sign(self) -> float:
        """When it was last asked, by the monotonic clock."""
        return self._last_sign

    def call_off(self) -> None:
        """Nobody waits for this thread any more."""
        self._is_called_off = True

    def _go_on(self) -> None:
        if self._is_called_off:
            raise Left
        self._require_wanted()
        self._last_sign = time.monotonic()
