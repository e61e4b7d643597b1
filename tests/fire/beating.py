"""A writer beside everything: a small row 40 times a second, and how long each took, for as long as nobody ends it.

Started as `python -m tests.fire.beating SOCKET FILE`. A line for each: `BEGAN DONE`, by the monotonic clock, which is
that of all processes of a machine. What a stall swallows is not caught up with.
"""

import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pymysql

EVERY_SECONDS = 0.025
_AGAIN_SECONDS = 0.1
_BEFORE_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Beat:
    """One row, by the monotonic clock."""

    began: float
    done: float

    @property
    def seconds(self) -> float:
        """How long its writer waited."""
        return self.done - self.began


def parsed(text: str) -> list[Beat]:
    """The beats of a file; a last line that is being written is left out."""
    lines = text[: text.rfind("\n") + 1].splitlines()
    return [Beat(*map(float, line.split())) for line in lines]


def held_seconds(beats: Iterable[Beat], granted: float) -> float | None:
    """From the grant of a lock to the first acknowledged write that began after it: no less than the lock's life.

    At most a pause between two beats and one write's own time more than that. None where no beat came since.
    """
    return min((beat.done - granted for beat in beats if beat.began >= granted), default=None)


def noise(beats: Iterable[Beat], granted: float) -> float:
    """How late a beat was, or how long it took, at most in the seconds before a lock: what is no lock's doing."""
    before = [beat for beat in beats if granted - _BEFORE_SECONDS <= beat.began and beat.done <= granted]
    late = [later.began - earlier.done - EVERY_SECONDS for earlier, later in pairwise(before)]
    return max([0.0, *late, *(beat.seconds for beat in before)])


def longest(beats: Iterable[Beat], since: float, until: float) -> float:
    """The longest that any writer waited between two moments, in seconds; 0 without a beat."""
    return max((beat.seconds for beat in beats if beat.done >= since and beat.began <= until), default=0.0)


def main(socket: str, file: Path) -> None:
    """Never returns."""
    with file.open("w", encoding="utf-8", buffering=1) as out:
        while True:
            try:
                with pymysql.connect(
                    unix_socket=socket, user="lab_load", database="sbtest", autocommit=True
                ) as session:
                    cursor = session.cursor()
                    while True:
                        began = time.monotonic()
                        cursor.execute("INSERT INTO heartbeat (at) VALUES (%s)", (began,))
                        done = time.monotonic()
                        out.write(f"{began:.4f} {done:.4f}\n")
                        time.sleep(max(0.0, EVERY_SECONDS - (done - began)))
            except pymysql.MySQLError:
                time.sleep(_AGAIN_SECONDS)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
