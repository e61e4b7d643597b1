"""The events of a binlog segment as they are stored, and back: zstd, within age where there are recipients.

Knows: the two forms and their digests. Refuses to know what the events are, and what is told of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from backupd.archive.pipeline import Station, StationChain
from backupd.archive.sealing import Encryptor
from backupd.archive.stations import Compressor, Decompressor, Digest, require_same
from backupd.vocabulary.binlogs import BinlogSegment

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities


_BLOCK_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class SealedBytes:
    """What is stored of a segment's events, and what it was made of."""

    content: bytes
    plain_bytes: int
    plain_sha256: str
    sha256: str  # of `content`


def seal(events: Iterable[bytes], *, recipients: Sequence[str], level: int) -> SealedBytes:
    """All of these events; in memory, for a segment is no larger than what it was cut at, or than one event.

    Raises:
        ConfigurationError: one of the recipients is none, or they are too many.
    """
    plain, stored = Digest(), Digest()
    stations: list[Station] = [plain, Compressor(level=level, threads=1)]
    if recipients:
        stations.append(Encryptor(recipients))
    chain = StationChain(*stations, stored)
    parts = [part for block in _blocks(events) for part in chain.take(block)]
    parts += chain.end()
    return SealedBytes(b"".join(parts), plain.size, plain.sha256, stored.sha256)


def _blocks(events: Iterable[bytes]) -> Iterator[bytes]:
    """Of about so many bytes that what is done with each block costs nothing, or of one event that is larger."""
    held: list[bytes] = []
    size = 0
    for event in events:
        held.append(event)
        size += len(event)
        if size >= _BLOCK_BYTES:
            yield b"".join(held)
            held, size = [], 0
    yield b"".join(held)


def unseal(segment: BinlogSegment, stored: Iterable[bytes], identities: "Identities | None") -> Iterator[bytes]:
    """The events' bytes, a block at a time. Only when it comes to its end are they known to be the recorded ones.

    Raises:
        NoKey: it is encrypted, and no identity opens it.
        VerificationError: what is stored, or what it opens to, is not what was described.
        Anything that `stored` raises.
    """
    found = Digest(at_most=segment.stored_bytes, what=segment.name)
    plain = Digest(at_most=segment.plain_bytes, what=segment.name)
    with ExitStack() as owed:
        stations: list[Station] = [found]
        if segment.recipients:
            from backupd.archive.encryption import Decryptor

            key = _key(segment, identities)
            stations.append(owed.enter_context(Decryptor(key, segment.name, recipients=segment.recipients)))
        chain = StationChain(*stations, Decompressor(segment.name), plain)
        for block in stored:
            yield from chain.take(bytes(block))
        yield from chain.end()
    require_same(found, name=segment.name, size=segment.stored_bytes, sha256=segment.stored_sha256, which="stored")
    require_same(plain, name=segment.name, size=segment.plain_bytes, sha256=segment.plain_sha256, which="plain")


def require_stored(segment: BinlogSegment, stored: Iterable[bytes]) -> None:
    """What is stored is what was described; nothing is opened.

    Raises:
        VerificationError: it is not.
        Anything that `stored` raises.
    """
    found = Digest(at_most=segment.stored_bytes, what=segment.name)
    for block in stored:
        found.add(block)
    require_same(found, name=segment.name, size=segment.stored_bytes, sha256=segment.stored_sha256, which="stored")


def require_key(segment: BinlogSegment, identities: "Identities | None") -> None:
    """One of the identities opens the segment, or everybody can read it.

    Raises:
        NoKey: neither.
    """
    if segment.recipients:
        _key(segment, identities)


def _key(segment: BinlogSegment, identities: "Identities | None") -> "Identities":
    from backupd.archive.encryption import opening

    return opening(identities, segment.recipients, what=f"the binlog segment {segment.name}")
