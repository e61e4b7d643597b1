"""How long a target is waited for where others are left: storage that hangs, as a dead NFS server does, answers nobody.

Knows: that whoever stands in it cannot be killed, so that it is asked in a thread that is left behind.
"""

from collections.abc import Callable
from typing import TypeVar

from backupd.host.daemon_thread import answered
from backupd.targets import Target
from backupd.vocabulary.errors import TargetAway

T = TypeVar("T")

_ANSWER_SECONDS = 120.0  # a store that fails says why before that, mostly: the reason is better than that it is late


def answer_of(target: Target, ask: Callable[[], T]) -> T:
    """What `ask` has of this target, or raises. It does nothing that could not happen later as well, or never.

    Raises:
        TargetAway: it does not answer. If it ever does, what was asked is done then.
    """
    try:
        return answered(ask, within_seconds=_ANSWER_SECONDS, name=f"backupd target {target.name}")
    except TimeoutError as error:
        raise TargetAway(
            f"target {target.name} does not answer within {_ANSWER_SECONDS:g} s",
            hint="is its storage overloaded or down?",
        ) from error
