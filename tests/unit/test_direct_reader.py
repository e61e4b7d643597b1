"""Where our own reader reads, and what it refuses. How it reads a file on a disk is in the contract suite."""

from itertools import islice
from pathlib import Path

import pytest

from backupd.load.direct import scan_offsets
from backupd.load.direct_reader import DirectReader, random_offsets
from backupd.vocabulary.errors import CommandError

BLOCK = 16 << 10


def test_every_whole_block_is_read_and_nothing_past_the_last() -> None:
    seen = set(islice(random_offsets(4 * BLOCK + 100, BLOCK), 1000))
    assert seen == {0, BLOCK, 2 * BLOCK, 3 * BLOCK}


def test_a_scan_begins_again_at_the_end() -> None:
    assert list(islice(scan_offsets(2 * BLOCK, BLOCK), 5)) == [0, BLOCK, 0, BLOCK, 0]


def test_a_scan_reads_the_part_that_is_no_whole_block() -> None:
    assert list(islice(scan_offsets(BLOCK + 1, BLOCK), 3)) == [0, BLOCK, 0]


def test_the_page_cache_is_never_read() -> None:
    """What /proc holds is in memory only: it can be read in every way but directly."""
    with pytest.raises(CommandError) as caught:
        DirectReader().random(Path("/proc/stat"), 1, block_size=512, threads=1)
    assert "direct I/O" in caught.value.hint
    with pytest.raises(CommandError) as caught:
        DirectReader().scan(Path("/proc/stat"), 1)
    assert "direct I/O" in caught.value.hint
