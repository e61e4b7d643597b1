"""The door to the targets: every verb of the contract, and every object that is written piece by piece.

A refusal is a `TargetError`: before, nothing has happened; after, it has, and the answer was lost.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from backupd import wiring
from backupd.targets import ObjectWriter
from backupd.vocabulary.errors import TargetError
from tests.fire.injecting import Fire, Refusal, where
from tests.fire.points import When
from tests.fire.undoing import Patches

_VERBS = (
    *("require_usable", "machines", "manifest", "objects", "backups", "segments", "owner", "last_owner_number"),
    *("publish", "remove", "remove_segments", "attach", "abandon", "succeed"),
)
_HIDDEN = "backupd.targets"


def targets(fire: Fire, patches: Patches) -> None:
    """Each target that the wiring makes, of whatever kind."""
    make = wiring.target
    known: set[type[Any]] = set()

    def make_under_fire(*words: Any) -> Any:
        made = make(*words)
        if type(made) not in known:
            known.add(type(made))
            put_under_fire(type(made), fire, patches)
        return made

    patches.set(wiring, "target", make_under_fire)


def put_under_fire(kind: type[Any], fire: Fire, patches: Patches) -> None:
    """Every verb of this class."""
    for verb in _VERBS:
        patches.set(kind, verb, _verb(fire, verb, getattr(kind, verb)))
    patches.set(kind, "writing", _writing(fire, kind.writing))
    patches.set(kind, "reading", _reading(fire, kind.reading))


def _verb(fire: Fire, verb: str, effect: Callable[..., Any]) -> Callable[..., Any]:
    def under_fire(self: Any, *words: Any, **named: Any) -> Any:
        with fire.passing(f"target {verb} < {where(_HIDDEN)}", refusals=_refusals(self.name)):
            return effect(self, *words, **named)

    return under_fire


def _writing(fire: Fire, effect: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def under_fire(self: Any, job: str, backup_id: str, name: str, **named: Any) -> Iterator[ObjectWriter]:
        """A fault before the end is met while the object can still be given up."""
        what, refusals = f"{_sort(name)} < {where(_HIDDEN)}", _refusals(self.name)
        with ExitStack() as unfinished:
            with fire.passing(f"target write {what}", refusals=refusals):
                writer = unfinished.enter_context(effect(self, job, backup_id, name, **named))
            yield _Pieces(writer, fire, f"target write a piece of {what}", refusals)
            with fire.passing(f"target end {what}", refusals=refusals):
                unfinished.close()

    return under_fire


def _reading(fire: Fire, effect: Callable[..., Any]) -> Callable[..., Any]:
    @contextmanager
    def under_fire(self: Any, job: str, backup_id: str, name: str, **named: Any) -> Iterator[Iterator[bytes]]:
        what, refusals = f"{_sort(name)} < {where(_HIDDEN)}", _refusals(self.name)
        with ExitStack() as reading:
            with fire.passing(f"target read {what}", refusals=refusals):
                pieces = reading.enter_context(effect(self, job, backup_id, name, **named))
            yield _read(pieces, fire, f"target read a piece of {what}", refusals)

    return under_fire


def _read(pieces: Iterator[bytes], fire: Fire, name: str, refusals: dict[When, Refusal]) -> Iterator[bytes]:
    while True:
        with fire.passing(name, refusals=refusals):
            piece = next(pieces, None)
        if piece is None:
            return
        yield piece


class _Pieces:
    """A writer under fire."""

    def __init__(self, writer: ObjectWriter, fire: Fire, name: str, refusals: dict[When, Refusal]) -> None:
        self._writer = writer
        self._fire = fire
        self._name = name
        self._refusals = refusals

    def write(self, data: bytes) -> None:
        with self._fire.passing(self._name, refusals=self._refusals):
            self._writer.write(data)


def _sort(name: str) -> str:
    return re.sub(r"[0-9]+", "N", name)


def _refusals(target: str) -> dict[When, Refusal]:
    refusal = partial(_refused, target)
    return {When.BEFORE: refusal, When.AFTER: refusal}


def _refused(target: str) -> BaseException:
    return TargetError(f"target {target} failed, as told", hint="check the kernel log on this host")
