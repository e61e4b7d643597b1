"""What encrypting costs by each way to an age file: `make bench-age`, on this host, half a minute.

By turns in each round, the same bytes in blocks of a copy's size, from memory to nowhere: ours (`archive.sealing`,
OpenSSL's ciphers), pyrage, and the `age` program in a process of its own, fed by a pipe. Beside each, how far a thread
got that only counts: what is left of Python to the threads that read, hash and compress.
"""

import argparse
import os
import resource
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from io import BytesIO, RawIOBase
from statistics import median

import pyrage

from backupd.archive.sealing import Encryptor

ROUNDS = 5
SIZE_MIB = 512
BLOCK = 1 << 20


class _Nowhere(RawIOBase):
    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        return len(data)  # type: ignore[arg-type]


def _ours(content: bytes, recipient: str) -> None:
    encryptor = Encryptor([recipient])
    for begin in range(0, len(content), BLOCK):
        for _ in encryptor.take(content[begin : begin + BLOCK]):
            pass
    for _ in encryptor.end():
        pass


def _pyrage(content: bytes, recipient: str) -> None:
    pyrage.encrypt_io(BytesIO(content), _Nowhere(), [pyrage.x25519.Recipient.from_str(recipient)])


def _program(content: bytes, recipient: str) -> None:
    program = shutil.which("age")
    assert program is not None, "apt-get install age"
    with subprocess.Popen(
        [program, "-r", recipient], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        reading = threading.Thread(target=_drained, args=(process.stdout.fileno(),))
        reading.start()
        view = memoryview(content)
        while view:
            view = view[process.stdin.write(view[:BLOCK]) :]
        process.stdin.close()
        reading.join()
    assert process.returncode == 0


def _drained(descriptor: int) -> None:
    while os.read(descriptor, BLOCK):
        pass


def _measured(encrypt: Callable[[bytes, str], None], content: bytes, recipient: str) -> tuple[float, float, float]:
    """Seconds, processors' seconds, and turns a second of a thread beside it, in a second go of its own."""
    before, began = _processors(), time.monotonic()
    encrypt(content, recipient)
    seconds, processors = time.monotonic() - began, _processors() - before
    stop, turns = threading.Event(), 0

    def count() -> None:
        nonlocal turns
        while not stop.is_set():
            turns += 1

    beside = threading.Thread(target=count)
    beside.start()
    began = time.monotonic()
    encrypt(content, recipient)
    rate = turns / (time.monotonic() - began)
    stop.set()
    beside.join()
    return seconds, processors, rate


def _processors() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    recipient = str(pyrage.x25519.Identity.generate().to_public())
    content = os.urandom(BLOCK) * SIZE_MIB
    ways = {"ours (OpenSSL)": _ours, "pyrage": _pyrage, "the age program": _program}
    found: dict[str, list[tuple[float, float, float]]] = {way: [] for way in ways}
    for _ in range(rounds):
        for way, encrypt in ways.items():
            found[way].append(_measured(encrypt, content, recipient))
    print(f"{SIZE_MIB} MiB in memory, {rounds} rounds, {os.cpu_count()} processors")  # noqa: T201
    print("                     MiB/s   processors' s   a thread beside it, turns/s")  # noqa: T201
    for way, times in found.items():
        seconds, processors, turns = (median(column) for column in zip(*times, strict=True))
        print(f"{way:16} {SIZE_MIB / seconds:9.0f} {processors:15.2f} {turns:29,.0f}")  # noqa: T201


if __name__ == "__main__":
    main()
