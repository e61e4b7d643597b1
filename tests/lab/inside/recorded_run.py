"""`python -m tests.lab.inside.recorded_run FILE COMMAND…`: backupd, with each look of its copy's pacing in a file.

A line of JSON for each look: the look as the law had it, when it was (epoch), and what the law knew after it. The first
line says what it began with. Nothing of the law is changed.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

from backupd.cli.main import main
from backupd.policy.pace_trial import PaceLook
from backupd.policy.pacing import Pace


@contextmanager
def recording(file: Path) -> Iterator[None]:
    """Whatever paces a copy within the block is recorded."""
    decide = Pace.after
    with file.open("w", encoding="utf-8", buffering=1) as out:

        def after(self: Pace, look: PaceLook) -> Pace:
            known = decide(self, look)
            if not out.tell():
                first = {"usual_seconds": self.usual_seconds, "slowdown": self.slowdown, **asdict(self.budgets)}
                out.write(json.dumps(first) + "\n")
            then = {"at": time.time(), "share": known.allowed, "off": known.off, "base_seconds": known.base_seconds}
            out.write(json.dumps({"look": asdict(look), **then}) + "\n")
            return known

        Pace.after = after  # type: ignore[assignment, method-assign]
        try:
            yield
        finally:
            Pace.after = decide  # type: ignore[method-assign]


if __name__ == "__main__":
    with recording(Path(sys.argv.pop(1))):
        main()
