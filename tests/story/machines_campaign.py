"""Many histories of many machines: `make campaign SEED=0 COUNT=20000`.

Each is that of its seed alone, so that a campaign goes on where it was ended: with the seed that it named last.
"""

import logging
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tests.statements import compiled_once
from tests.story.machines_world import Violation, figures, run_histories

_AT_ONCE = 100
_MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None  # where syncs cost nothing


def main(words: Sequence[str]) -> int:
    """So many histories from this seed on, with what happened in them; 1 where one broke a promise."""
    seed, count = (int(word) for word in words)
    logging.disable(logging.CRITICAL)
    counted: Counter[str] = Counter()
    broken: list[Violation] = []
    for begin in range(seed, seed + count, _AT_ONCE):
        end = min(begin + _AT_ONCE, seed + count)
        before = len(broken)
        with tempfile.TemporaryDirectory(prefix="backupd-campaign-", dir=_MEMORY) as folder, compiled_once():
            counted += run_histories(Path(folder), range(begin, end), broken=broken)
        sys.stdout.writelines(f"{violation}\n" for violation in broken[before:])
        sys.stdout.write(f"to seed {end - 1}: {figures(counted)}\n")
        sys.stdout.flush()
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
