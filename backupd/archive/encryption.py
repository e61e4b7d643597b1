"""Who can read what is stored: age files, opened with identities, as a station.

Knows: pyrage, which does the cryptography; how its pulling and pushing become blocks handed over one at a time; which
of its failures is a wrong key and which is damage.

An object is one age file (age-encryption.org/v1), whatever its size: `age -d` opens it. pyrage reads and writes as it
likes, so it runs in a thread of its own that works only while its station is inside `take` or `end`: the two are
never at work at once, one block is all that waits, and after `take` all of the block has passed but for the age chunk
(64 KiB) that is not full yet.

pyrage 1.4.0 holds the interpreter's lock while it computes, about a millisecond of a core for a MiB; each of its calls
of `read` and `write`, 8 and 64 KiB, is a place where the lock can change hands. Hence `decrypt_io`, and `read` in
Python. What is written is encrypted by `sealing`, for which that was too slow.
"""

import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, Self

from backupd.archive.sealing import LARGEST_HEADER
from backupd.config.secrets import private_text
from backupd.host.daemon_thread import begin
from backupd.vocabulary.errors import BackupdError, ConfigurationError, NoKey, UsageError, VerificationError

_DAMAGED = "this copy is damaged: do not rely on it, take a new backup"
_HEADER_END = b"\n---"
_NO_MATCH = "No matching keys found"  # pyrage.DecryptError's text, the only sign of it


@dataclass(frozen=True, slots=True)
class Identities:
    """The secret keys of a file. Neither `repr` nor an error shows them."""

    source: str  # the file's path, for people
    recipients: tuple[str, ...]  # the public keys that belong to them
    keys: tuple[Any, ...] = field(repr=False)  # pyrage.x25519.Identity


def read_identities(path: Path) -> Identities:
    """The identities of a file as `age-keygen` writes it: one a line, and comments.

    Raises:
        UsageError: it cannot be read, others can read it too, or it holds anything but X25519 identities.
    """
    try:
        text = private_text("--identity", path, content="the identity")
    except ConfigurationError as error:
        raise UsageError(error.message, hint=error.hint) from error
    if text.startswith(("age-encryption.org/", "-----BEGIN AGE ENCRYPTED FILE-----")):
        raise UsageError(
            f"--identity: {path} is itself encrypted",
            hint=f"decrypt it into memory for as long as it is needed: (umask 077; age -d {path} >/dev/shm/identity)",
        )
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), start=1)]
    keys = tuple(_identity(line, f"{path}, line {number}") for number, line in lines if line and line[0] != "#")
    if not keys:
        raise UsageError(f"--identity: {path} has no identity", hint="age-keygen -o FILE creates one")
    return Identities(str(path), tuple(str(key.to_public()) for key in keys), keys)


def opens(identities: Identities | None, recipients: Collection[str]) -> bool:
    """Whether what is encrypted for these recipients, or for nobody at all, can be read with the identities."""
    return not recipients or (identities is not None and not set(recipients).isdisjoint(identities.recipients))


def opening(identities: Identities | None, recipients: Sequence[str], *, what: str) -> Identities:
    """The identities, if one of them opens what is encrypted for these recipients; `what` it is, as sentences have it.

    Raises:
        NoKey: there is none, or not the right one.
    """
    told = ", ".join(recipients)
    if identities is None:
        raise NoKey(
            f"{what} is encrypted for {told}",
            hint="pass the file with the identity of one of these: --identity FILE",
        )
    if not opens(identities, recipients):
        raise NoKey(
            f"none of the identities in {identities.source} can read {what}: it is encrypted for {told}",
            hint="`age-keygen -y FILE` prints the recipient of a file",
        )
    return identities


def _identity(line: str, where: str) -> Any:
    from pyrage import IdentityError, x25519

    if line.startswith("age1"):
        raise UsageError(
            f"--identity: {where}: is a public key; it can only encrypt",
            hint="pass the file with the line that begins with AGE-SECRET-KEY-1",
        )
    try:
        return x25519.Identity.from_str(line)
    except IdentityError:
        # Not chained, and the line is not quoted: it may be a key with one wrong letter.
        raise UsageError(
            f"--identity: {where}: is not an age identity",
            hint="it begins with AGE-SECRET-KEY-1, as printed by age-keygen; SSH keys and plugins are not supported",
        ) from None


class _Source(Protocol):
    def read(self, size: int = -1) -> bytes: ...


class _Drain(Protocol):
    def write(self, data: bytes) -> int: ...


class _Abandoned(Exception):
    """Nobody wants the rest."""


class _Exchange:
    """What the station and the working thread hand each other, in turn. The thread knows this, never the station."""

    def __init__(self) -> None:
        self._worker_may = threading.Semaphore(0)
        self._station_may = threading.Semaphore(0)
        self._block = b""
        self._offset = 0
        self._ended = self.abandoned = self.done = False
        self._made: list[bytes] = []
        self.error: BaseException | None = None

    # The station's side.

    def hand_over(self, block: bytes | None) -> bytes:
        """Everything that this block has become; None says that it was the last. Waits until it is used up."""
        self._block, self._offset, self._ended = block or b"", 0, block is None
        self._worker_may.release()
        self._station_may.acquire()
        made, self._made = self._made, []
        return b"".join(made)

    def abandon(self) -> None:
        """Wake the thread for the last time."""
        self.abandoned = True
        self._worker_may.release()

    # The thread's side.

    def run(self, work: Callable[[_Source, _Drain], None]) -> None:
        try:
            self._wait()
            work(self, self)
        except BaseException as error:  # noqa: BLE001 - nothing is swallowed: the station raises it
            self.error = None if self.abandoned else error
        finally:
            self.done = True
            self._station_may.release()

    def read(self, size: int = -1) -> bytes:
        if self._offset == len(self._block) and not self._ended:
            self._station_may.release()
            self._wait()
        begin = self._offset
        self._offset = len(self._block) if size < 0 else min(len(self._block), begin + size)
        return self._block[begin : self._offset]

    def write(self, data: bytes) -> int:
        self._made.append(data)
        return len(data)

    def _wait(self) -> None:
        self._worker_may.acquire()
        if self.abandoned:
            raise _Abandoned


class _AgeStation:
    """A station around a function of pyrage's; its thread begins with the first block.

    `close`, or the end of its `with`, ends the thread wherever it is; so does forgetting the station.
    """

    def __init__(self, work: Callable[[_Source, _Drain], None], *, name: str) -> None:
        self._exchange = _Exchange()
        self._thread = threading.Thread(target=self._exchange.run, args=(work,), name=f"backupd {name}", daemon=True)
        self._abandon = weakref.finalize(self, self._exchange.abandon)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_raised: object) -> None:
        self.close()

    def take(self, block: bytes) -> Iterator[bytes]:
        """What this block becomes."""
        if block:
            yield from self._passed(block)

    def end(self) -> Iterator[bytes]:
        """The rest; the age file ends here."""
        yield from self._passed(None)
        self.close()

    def close(self) -> None:
        """The thread has ended; nothing happens when it had. Any thread may call this, even while another takes."""
        self._abandon()
        if self._thread.ident is not None:
            self._thread.join()

    def _passed(self, block: bytes | None) -> Iterator[bytes]:
        if self._thread.ident is None:
            begin(self._thread, undo=self.__exit__)
        ended = self._exchange.done
        made = b"" if ended else self._exchange.hand_over(block)
        if self._exchange.error is not None:
            raise self._failure(self._exchange.error)
        if ended or self._exchange.abandoned:
            raise ValueError("a block after the end")
        if made:
            yield made

    def _failure(self, error: BaseException) -> BaseException:
        return error


class Decryptor(_AgeStation):
    """An age file in, plain bytes out; only bytes that age has authenticated come out.

    `recipients` are those that the object was encrypted for, where that is known (the manifest says it): with them a
    wrong key and a damaged header can be told apart. `take` and `end` raise UsageError for a wrong key,
    VerificationError for whatever is no whole age file.
    """

    def __init__(self, identities: Identities, name: str, *, recipients: Sequence[str] = ()) -> None:
        import pyrage

        keys = list(identities.keys)
        super().__init__(lambda source, drain: pyrage.decrypt_io(source, drain, keys), name="Decryptor")
        self._head = bytearray()  # what is held until the header is known to end
        self._begun = False
        self._identities = identities
        self._name = name
        self._recipients = tuple(recipients)

    def take(self, block: bytes) -> Iterator[bytes]:
        """See `_AgeStation`. Before its header has ended, nothing of it is computed with."""
        if not self._begun and not self._exchange.abandoned:
            self._head += block
            if _HEADER_END not in self._head[:LARGEST_HEADER]:
                if len(self._head) > LARGEST_HEADER:
                    raise VerificationError(
                        f"{self._name} cannot be decrypted: its header is incomplete, or has more recipients than"
                        f" backupd writes",
                        hint=_DAMAGED,
                    )
                return
            block = self._unheld()
        yield from super().take(block)

    def end(self) -> Iterator[bytes]:
        """See `_AgeStation`."""
        if not self._begun:
            yield from super().take(self._unheld())
        yield from super().end()

    def _unheld(self) -> bytes:
        self._begun, held, self._head = True, bytes(self._head), bytearray()
        return held

    def _failure(self, error: BaseException) -> BaseException:
        import pyrage

        if not isinstance(error, pyrage.DecryptError | OSError):
            return error
        failure: BackupdError
        if str(error) == _NO_MATCH and not set(self._recipients) & set(self._identities.recipients):
            failure = self._wrong_key()
        else:
            reason = str(error).partition("\n")[0].rstrip(".").lower()  # what follows is pyrage's advice, not ours
            failure = VerificationError(f"{self._name} cannot be decrypted: {reason}", hint=_DAMAGED)
        failure.__cause__ = error
        return failure

    def _wrong_key(self) -> UsageError:
        fact = f"none of the identities in {self._identities.source} can read {self._name}"
        if not self._recipients:
            return UsageError(fact, hint="use another identity; if it is the right one, this copy is damaged")
        return UsageError(
            f"{fact}: it was encrypted for {', '.join(self._recipients)}",
            hint="pass a file with the identity of one of these; `age-keygen -y FILE` prints the recipient of a file",
        )
