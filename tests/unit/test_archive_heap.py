"""A run's threads share two heaps."""

import subprocess
import sys

THREADS = """
import ctypes, sys, threading
from backupd.archive import heap
if sys.argv[1] == "confined":
    heap.confine()
blocks, all_have = [], threading.Barrier(7)
def take():
    blocks.append(bytearray(100_000))
    all_have.wait()
threads = [threading.Thread(target=take) for _ in range(6)]
for thread in threads:
    thread.start()
all_have.wait()
libc = ctypes.CDLL(None)
libc.malloc_info(0, ctypes.c_void_p.in_dll(libc, "stdout"))
libc.fflush(None)
"""


def heaps(how: str) -> int:
    """Of glibc's, once six threads have asked for memory."""
    argv = [sys.executable, "-c", THREADS, how]
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=True).stdout.count("<heap nr=")


def test_threads_share_two_heaps() -> None:
    assert heaps("confined") == 2 < heaps("as it comes")
