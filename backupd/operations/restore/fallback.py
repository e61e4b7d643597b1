"""A run may have left several copies: what one of them has lost or does not give, the next one may have.

Knows: in which order they are asked, and what is told where none of them answers.
"""

import logging
from collections.abc import Callable, Sequence
from typing import TypeVar

from backupd.operations.restore.verify import manifest_of
from backupd.targets import BackupSource
from backupd.vocabulary.errors import BackupdError, TargetError, VerificationError
from backupd.vocabulary.storage import Manifest

log = logging.getLogger(__name__)

T = TypeVar("T")


def first_given(sources: Sequence[BackupSource], ask: Callable[[int, BackupSource], T]) -> T:
    """What the first of these copies gives; `ask` is told its number as well.

    Raises:
        TargetError, VerificationError: none of them does. Where a target may come back, that one is told of.
    """
    errors: list[BackupdError] = []
    for number, source in enumerate(sources):
        try:
            return ask(number, source)
        except (TargetError, VerificationError) as error:
            errors.append(error)
            another = "; continuing with the next copy" if number + 1 < len(sources) else ""
            log.warning("target %s: %s%s", source.target.name, error.message, another)
    raise _gravest(errors)


def agreed(sources: Sequence[BackupSource]) -> tuple[Manifest, Sequence[BackupSource]]:
    """The manifest of the first copy that has one, and the copies from there on.

    Raises:
        TargetError, VerificationError: none has one; as the first of them says it.
    """
    return first_given(sources, lambda number, source: (manifest_of(source), sources[number:]))


def _gravest(errors: Sequence[BackupdError]) -> BackupdError:
    """What is told where no copy could give it: that a target may come back, if one may; the others are notes on it."""
    chosen = next((error for error in errors if isinstance(error, TargetError)), errors[0])
    for error in errors:
        if error is not chosen:
            chosen.add_note(error.message)
    return chosen
