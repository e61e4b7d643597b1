"""Which frames of a backup the next round of verification reads: pure, and the same whoever asks.

Knows: the frames of a copy are read in their order, about an equal part of the bytes in each round; so that after the
promised number of rounds each was read, whatever their sizes.
"""

from collections.abc import Sequence


def next_part(sizes: Sequence[int], begin: int, rounds: int) -> range:
    """The numbers of the frames that the next of so many rounds reads, from `begin` on; 0 where that is none of them.

    Each round but the last reads at least its part of all bytes, and at least one frame: no more rounds are needed.
    """
    first = begin if 0 < begin < len(sizes) else 0
    part, read, end = -(-sum(sizes) // rounds), 0, first
    while end < len(sizes) and (end == first or read < part or not sizes[end]):
        read += sizes[end]
        end += 1
    return range(first, end)
