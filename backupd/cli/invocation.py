"""What every command was told before its own name: which configuration, how loud."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Invocation:
    """The options of `backupd` itself; a command finds them in its context's `obj`."""

    config: Path | None = None
    quiet: bool = False
