"""The process that serves the disks that forget: `python -m tests.power.forgetful RECORDING record|replay`.

To record, it writes down all that reaches the disks. To replay, it shows them as they were at an instant of a recording
after a power cut, as often as it is asked to; what is written to them then is forgotten with the next one.

Knows: one JSON document asked at `CONTROL`, one answered: `{"do": "count"}`, and `{"do": "cut", "instant": N, "mode":
MODE, "seed": TEXT}`. Instants of cuts may only grow.
"""

import json
import os
import socket
import sys
from pathlib import Path
from random import Random
from typing import Any

from tests.power import nbd
from tests.power.cuts import Mode, Replay
from tests.power.image import Image
from tests.power.places import CONTROL, DISKS, RUNTIME
from tests.power.recording import Journal, Kind, requests


class Served:
    """A disk; what is written to it goes into a journal."""

    def __init__(self, number: int, image: Image, journal: Journal, which: int) -> None:
        self.size = image.size
        self.image = image
        self._number, self._journal, self._which = number, journal, which

    def read(self, offset: int, length: int) -> bytes:
        """As it was written last."""
        return self.image.read(offset, length)

    def write(self, offset: int, data: bytes, *, durable: bool) -> None:
        """What a cache takes."""
        at = self._journal.append(Kind.WRITE, self._number, offset, data, durable=durable)
        self.image.wrote(offset, len(data), (self._which, at))

    def flush(self) -> None:
        """All of it that was answered before is durable."""
        self._journal.append(Kind.FLUSH, self._number)


def record(recording: Path) -> None:
    """From empty disks on."""
    journal = Journal(recording)
    for disk in DISKS:
        nbd.serve(disk.socket, Served(disk.number, Image(disk.size, [journal.descriptor]), journal, 0))
    _attend(lambda _: {"count": journal.count})


def replay(recording: Path) -> None:
    """At first the disks are empty."""
    recorded = os.open(recording, os.O_RDONLY)
    after = Journal(recording.with_name("after-the-cut"))
    files = [recorded, after.descriptor]
    everything = Replay(list(requests(recorded)), {disk.number: Image(disk.size, files) for disk in DISKS})
    served = {disk.number: Served(disk.number, Image(disk.size, files), after, 1) for disk in DISKS}
    for disk in DISKS:
        nbd.serve(disk.socket, served[disk.number])

    def answer(asked: dict[str, Any]) -> dict[str, Any]:
        everything.advance(asked["instant"])
        images, forgotten = everything.cut(Mode(asked["mode"]), Random(asked["seed"]))
        after.empty()
        for number, image in images.items():
            served[number].image = image
        return {"kept_bytes": forgotten.kept_bytes, "lost_bytes": forgotten.lost_bytes}

    _attend(answer)


def _attend(answer: Any) -> None:
    """For ever. The socket appears last: who sees it finds the disks."""
    listening = socket.socket(socket.AF_UNIX)
    unborn = RUNTIME / "control.unborn"
    listening.bind(str(unborn))
    listening.listen(8)
    unborn.rename(CONTROL)
    while True:
        asking, _ = listening.accept()
        with asking, asking.makefile("rb") as words:
            asking.sendall(json.dumps(answer(json.loads(words.readline()))).encode() + b"\n")


if __name__ == "__main__":
    {"record": record, "replay": replay}[sys.argv[2]](Path(sys.argv[1]))
