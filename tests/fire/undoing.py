"""Patches that are taken back at the end of a block, the last one first."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any


class Patches(ExitStack):
    """What was changed while the block lasts."""

    def set(self, owner: Any, name: str, value: Any) -> None:
        """`owner.name` is this until the block ends."""
        had = name in vars(owner) if hasattr(owner, "__dict__") else True
        before = vars(owner).get(name, getattr(owner, name)) if had else None
        setattr(owner, name, value)
        self.callback(setattr, owner, name, before) if had else self.callback(delattr, owner, name)

    def later(self, undo: Callable[[], object]) -> None:
        """To be done at the block's end."""
        self.callback(undo)
