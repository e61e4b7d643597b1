"""What a disk holds, as references to where its bytes were written down: a copy of a disk costs no bytes.

Knows: pages, and writes that cover parts of one. Refuses to know why something was written, and whether it lasts.
"""

import os
from collections.abc import Iterator, Sequence

PAGE = 4096  # bytes

Place = tuple[int, int]  # which of the files, and the offset in it
Piece = Place | bytes  # a page: all of it in a file, or put together of several writes


class Image:
    """A disk of `size` bytes that begins as zeros; what is written to it lies in these open files."""

    def __init__(self, size: int, files: Sequence[int]) -> None:
        self.size = size
        self._files = files
        self._pages: dict[int, Piece] = {}

    def copy(self) -> "Image":
        """Another disk that holds the same."""
        other = Image(self.size, self._files)
        other._pages = dict(self._pages)
        return other

    def wrote(self, offset: int, length: int, place: Place) -> None:
        """From now on these bytes are those that begin at `place`."""
        which, at = place
        end = offset + length
        while offset < end:
            page, within = divmod(offset, PAGE)
            part = min(PAGE - within, end - offset)
            if part == PAGE:
                self._pages[page] = (which, at)
            else:
                old = self._page(page)
                self._pages[page] = old[:within] + os.pread(self._files[which], part, at) + old[within + part :]
            offset, at = offset + part, at + part

    def read(self, offset: int, length: int) -> bytes:
        """Bytes of it, wherever they begin."""
        first = offset // PAGE
        whole = b"".join(self._runs(first, -(-(offset + length) // PAGE)))
        return whole[offset - first * PAGE :][:length]

    def _page(self, page: int) -> bytes:
        return b"".join(self._runs(page, page + 1))

    def _runs(self, page: int, end: int) -> Iterator[bytes]:
        """The pages' bytes; those that lie behind one another in a file are read at once."""
        while page < end:
            piece = self._pages.get(page)
            count = 1
            if isinstance(piece, tuple):
                which, at = piece
                while page + count < end and self._pages.get(page + count) == (which, at + count * PAGE):
                    count += 1
                yield os.pread(self._files[which], count * PAGE, at)
            else:
                yield piece or bytes(PAGE)
            page += count
