"""What is encrypted opens with the right identity and only whole; keys are not shown; no thread is left."""

import gc
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyrage import x25519

from backupd.archive.encryption import Decryptor, Identities, read_identities
from backupd.archive.pipeline import Pipeline, Station
from backupd.archive.sealing import Encryptor
from backupd.vocabulary.errors import BackupdError, ConfigurationError, UsageError, VerificationError

ALICE, BOB, EVE = x25519.Identity.generate(), x25519.Identity.generate(), x25519.Identity.generate()
CHUNK = 64 << 10  # age's
PLAIN = os.urandom(3 * CHUNK)


@pytest.fixture(autouse=True)
def _no_thread_is_left() -> Iterator[None]:
    yield
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("backupd")] == []


def identities(*keys: x25519.Identity) -> Identities:
    return Identities("key.txt", tuple(str(key.to_public()) for key in keys), keys)


def through(station: Station, data: bytes, *, block: int = 50_000) -> bytes:
    pieces = [data[i : i + block] for i in range(0, len(data), block)]
    return b"".join([made for piece in pieces for made in station.take(piece)] + list(station.end()))


def encrypted(plain: bytes = PLAIN, *keys: x25519.Identity, block: int = 50_000) -> bytes:
    return through(Encryptor([str(key.to_public()) for key in keys or (ALICE,)]), plain, block=block)


def decrypted(stored: bytes, key: x25519.Identity = ALICE, *, recipients: tuple[str, ...] = ()) -> bytes:
    with Decryptor(identities(key), "data-1.tar.zst.age", recipients=recipients) as station:
        return through(station, stored)


STORED = encrypted()
HEADER = len(encrypted(b"")) - 16  # an empty stream is one empty chunk with its tag


def key_file(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "key.txt"
    path.write_text(text)
    path.chmod(mode)
    return path


@pytest.mark.parametrize("size", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, len(PLAIN)])
def test_what_went_in_comes_out_whatever_the_blocks(size: int) -> None:
    for block in (7_000, CHUNK, 1 << 20):
        assert decrypted(encrypted(PLAIN[:size], block=block)) == PLAIN[:size]


def test_each_recipient_can_read_it() -> None:
    stored = encrypted(PLAIN, ALICE, BOB)
    assert decrypted(stored, ALICE) == decrypted(stored, BOB) == PLAIN


def test_a_block_has_passed_when_it_is_taken_but_for_a_chunk() -> None:
    station = Encryptor([str(ALICE.to_public())])
    out = 0
    for taken in range(1, 20):
        out += sum(map(len, station.take(bytes(CHUNK))))
        assert taken * CHUNK - CHUNK <= out <= taken * (CHUNK + 16) + HEADER


def test_a_wrong_key_is_a_matter_of_usage_and_says_whom_it_was_for() -> None:
    with pytest.raises(UsageError, match=r"none of the identities in key.txt can read data-1.tar.zst.age") as caught:
        decrypted(encrypted(), EVE, recipients=(str(ALICE.to_public()),))
    assert str(ALICE.to_public()) in caught.value.message
    assert str(EVE) not in caught.value.message + caught.value.hint


def test_damage_that_looks_like_a_wrong_key_is_told_from_one_where_the_recipients_are_known() -> None:
    stored = bytearray(encrypted())
    stored[100] = ord("B" if stored[100] == ord("A") else "A")  # in the wrapped file key, which stays proper Base64
    with pytest.raises(VerificationError, match=r"data-1.tar.zst.age cannot be decrypted"):
        decrypted(bytes(stored), ALICE, recipients=(str(ALICE.to_public()),))
    with pytest.raises(UsageError) as caught:
        decrypted(bytes(stored), ALICE)
    assert "damaged" in caught.value.hint


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(lambda b: b"", id="nothing is left"),
        pytest.param(lambda b: b[:40], id="cut in the header"),
        pytest.param(lambda b: b[:HEADER], id="cut after the header"),
        pytest.param(lambda b: b[: HEADER + CHUNK + 16], id="cut between chunks"),
        pytest.param(lambda b: b[:-1], id="cut at the end"),
        pytest.param(lambda b: b + b"\0", id="a byte appended"),
        pytest.param(lambda b: b + b, id="itself appended"),
        pytest.param(lambda b: b"\x28\xb5\x2f\xfd" + b, id="something before it"),
        pytest.param(lambda b: b[: HEADER + 70_000] + b"\xff\0\xff" + b[HEADER + 70_003 :], id="overwritten"),
        pytest.param(
            lambda b: (
                b[:HEADER] + b[HEADER + CHUNK + 16 : HEADER + 2 * (CHUNK + 16)] * 2 + b[HEADER + 2 * CHUNK + 32 :]
            ),
            id="a chunk in place of another",
        ),
        pytest.param(lambda b: PLAIN, id="never encrypted"),
        pytest.param(lambda b: b.replace(b"org/v1", b"org/v9"), id="of a later age"),
    ],
)
def test_what_is_no_whole_age_file_is_refused_in_words(harm: Callable[[bytes], bytes]) -> None:
    with pytest.raises(VerificationError, match=r"data-1.tar.zst.age cannot be decrypted") as caught:
        decrypted(harm(encrypted()))
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_every_flipped_byte_of_a_small_object_is_noticed() -> None:
    stored = encrypted(b"some rows")
    for at in range(len(stored)):
        damaged = bytearray(stored)
        damaged[at] ^= 0x20
        with pytest.raises(BackupdError):
            decrypted(bytes(damaged))


def test_the_thread_ends_when_the_station_is_closed_half_way() -> None:
    station = Decryptor(identities(ALICE), "o")
    list(station.take(encrypted()[:100_000]))
    station.close()
    station.close()
    with pytest.raises(ValueError, match="after the end"):
        list(station.take(b"more"))


def test_nothing_is_taken_after_the_station_was_closed() -> None:
    station = Decryptor(identities(ALICE), "o")
    station.close()
    with pytest.raises(ValueError, match="after the end"):
        list(station.take(b"rows"))


def test_a_station_that_is_closed_by_another_thread_waits_for_nobody() -> None:
    decryptor = Decryptor(identities(ALICE), "o")
    with Pipeline([decryptor]) as pipeline:
        for start in range(0, len(STORED), CHUNK // 2):
            pipeline.put(STORED[start : start + CHUNK // 2])
        decryptor.close()


def test_the_thread_ends_when_the_station_is_forgotten() -> None:
    station = Decryptor(identities(ALICE), "o")
    list(station.take(STORED))
    thread = station._thread
    del station
    gc.collect()
    thread.join(60)
    assert not thread.is_alive()


def test_the_thread_ends_when_the_pipeline_fails_in_another_station() -> None:
    class Full:
        def take(self, block: bytes) -> Iterator[bytes]:
            raise OSError("no room")
            yield block

        def end(self) -> Iterator[bytes]:
            yield from ()

    decryptor = Decryptor(identities(ALICE), "o")
    with pytest.raises(OSError, match="no room"), decryptor, Pipeline([decryptor, Full()]) as pipeline:
        pipeline.put(STORED)
        pipeline.finish()


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, MemoryError])
def test_the_thread_ends_when_the_work_is_interrupted(interruption: type[BaseException]) -> None:
    decryptor = Decryptor(identities(ALICE), "o")
    with pytest.raises(interruption), decryptor, Pipeline([decryptor]) as pipeline:
        pipeline.put(STORED)
        raise interruption


def test_a_wrong_key_reaches_the_main_thread_through_a_pipeline() -> None:
    decryptor = Decryptor(identities(EVE), "o")
    with pytest.raises(UsageError), decryptor, Pipeline([decryptor]) as pipeline:
        pipeline.put(encrypted())
        pipeline.finish()


def test_identities_are_read_as_age_keygen_writes_them(tmp_path: Path) -> None:
    text = f"# created: 2026-01-01\n# public key: {ALICE.to_public()}\n{ALICE}\n\n  {BOB}\r\n"
    found = read_identities(key_file(tmp_path, text))
    assert found.recipients == (str(ALICE.to_public()), str(BOB.to_public()))
    assert found.source == str(tmp_path / "key.txt")
    for key in found.keys:
        assert str(key) not in repr(found)


@pytest.mark.parametrize(
    ("text", "sentence", "hint"),
    [
        ("", "has no identity", "age-keygen -o FILE"),
        ("# nothing yet\n", "has no identity", "age-keygen -o FILE"),
        (f"{ALICE.to_public()}\n", "line 1: is a public key", "AGE-SECRET-KEY-1"),
        (f"{ALICE}\n{str(BOB)[:-1]}\n", "line 2: is not an age identity", "AGE-SECRET-KEY-1"),
        ("AGE-PLUGIN-YUBIKEY-1QQQ\n", "line 1: is not an age identity", "plugins"),
        ("age-encryption.org/v1\n-> scrypt x 18\n", "is itself encrypted", "age -d"),
        ("-----BEGIN AGE ENCRYPTED FILE-----\nYWdl\n", "is itself encrypted", "age -d"),
    ],
    ids=["empty", "comment", "public", "cut", "plugin", "binary", "armoured"],  # keys are new in every process
)
def test_a_file_that_is_no_list_of_identities_is_refused(tmp_path: Path, text: str, sentence: str, hint: str) -> None:
    with pytest.raises(UsageError, match=sentence) as caught:
        read_identities(key_file(tmp_path, text))
    assert hint in caught.value.hint
    assert str(BOB)[:-1] not in f"{caught.value.message} {caught.value.hint} {caught.value.__cause__}"


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_identities_that_others_can_read_are_refused(tmp_path: Path, mode: int) -> None:
    path = key_file(tmp_path, f"{ALICE}\n", mode)
    with pytest.raises(UsageError, match="by others") as caught:
        read_identities(path)
    assert caught.value.hint == f"chmod 600 {path}"


def test_a_missing_identity_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no such file"):
        read_identities(tmp_path / "none")
    with pytest.raises(UsageError, match=r"not a regular file|is a directory"):
        read_identities(tmp_path)


@pytest.mark.parametrize(
    "recipient",
    ["", "age1", str(ALICE.to_public())[:-1], str(ALICE), "ssh-ed25519 AAAA"],
    ids=["nothing", "beginning", "cut", "secret", "ssh"],
)
def test_nothing_is_encrypted_for_what_is_no_recipient(recipient: str) -> None:
    with pytest.raises(ConfigurationError, match="is not an age recipient"):
        Encryptor([str(BOB.to_public()), recipient])


@pytest.mark.parametrize("header", [STORED[:22] + b"-> X25519 AAAA\nAAAA\n" * 8000, b"x" * (129 << 10)])
def test_a_header_that_nobody_of_ours_writes_is_refused_before_a_key_is_tried_on_it(header: bytes) -> None:
    with (
        Decryptor(identities(ALICE), "o") as station,
        pytest.raises(VerificationError, match="its header is incomplete, or has more recipients than backupd writes"),
    ):
        through(station, header + STORED)
    assert not station._thread.ident


def test_as_many_recipients_as_can_be_read_back_are_taken_and_no_more() -> None:
    key = str(ALICE.to_public())
    many = through(Encryptor([key] * 1300), b"plain")
    assert decrypted(many) == b"plain"
    with pytest.raises(ConfigurationError, match="1400 recipients are more than"):
        Encryptor([key] * 1400)


def test_no_two_files_have_a_key_in_common() -> None:
    once, again = encrypted(), encrypted()
    assert once[HEADER:] != again[HEADER:]
    assert once.splitlines()[1] != again.splitlines()[1]
