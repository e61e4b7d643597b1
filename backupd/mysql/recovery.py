"""How much redo a recovery may have to read, and what it is given for that: time and memory.

Knows: the recorded settings that bound the redo log, and three formulas.

Redo that is recovered lies between the last checkpoint and the log's end: it is never more than the log holds, whose
size is recorded with the backup. The server keeps what it has parsed in its buffer pool, and goes over the log once
more each time that is full; replay itself is random reading and writing of pages. A clean shutdown writes what is
changed in the pool, which may be all of it.
"""

import re
from pathlib import Path

from backupd.vocabulary.servers import Flavour, ServerFacts

SLOWEST_REPLAY = 4 << 20  # bytes of redo a second that even an idle disk manages
LEAST_SECONDS = 1800.0  # for what takes its time whatever the redo: opening 200,000 tablespaces, rolling back
SLOWEST_FLUSH = 1 << 20  # bytes of changed pages a second: 64 of 16 KiB, by random writes, on a disk that others use
LEAST_STOP_SECONDS = 600.0
_MOST_REDO = 512 << 30
LEAST_POOL = 128 << 20
_POOL_CHUNK = 128 << 20  # the pool is a multiple of innodb_buffer_pool_chunk_size, whose default this is
_SHARE_OF_MEMORY = 4  # of what is available now a fourth, so that the host's own work has the rest


def redo_bytes(facts: ServerFacts) -> int:
    """The most that the redo log of the backup can hold; 0 where nothing was recorded.

    MySQL from 8.0.30 on goes by `innodb_redo_log_capacity`, unless only the older two are set: then by their product.
    Neither server takes more than 512 GiB, whatever a manifest says.
    """
    files = "2" if facts.flavour is Flavour.MYSQL else "1"
    size, count = facts.settings.get("innodb_log_file_size", ""), facts.settings.get("innodb_log_files_in_group", files)
    capacity = _number(facts.settings.get("innodb_redo_log_capacity", ""))
    return min(_MOST_REDO, max(_number(size) * _number(count), capacity))


def recovery_seconds(redo: int) -> float:
    """How long the server may take until it answers: half an hour, and a second more for each 4 MiB of redo."""
    return LEAST_SECONDS + redo / SLOWEST_REPLAY


def stop_seconds(pool: int) -> float:
    """How long a clean shutdown may take with a buffer pool of so many bytes: ten minutes at least."""
    return max(LEAST_STOP_SECONDS, pool / SLOWEST_FLUSH)


def buffer_pool_bytes(redo: int, *, available: int) -> int:
    """As much as the redo, so that it is read once; not more than a fourth of what is available; at least 128 MiB."""
    wanted = min(redo, available // _SHARE_OF_MEMORY)
    return max(LEAST_POOL, wanted // _POOL_CHUNK * _POOL_CHUNK)


def memory_available() -> int:
    """Bytes that a new program can have without swapping, as the kernel estimates it; 0 where it does not report."""
    for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            return int(value.split()[0]) * 1024
    return 0


def _number(setting: str) -> int:
    return int(setting) if re.fullmatch("[0-9]{1,20}", setting) else 0
