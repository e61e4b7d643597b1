"""A signing key is made once, in a file that nobody else reads, and what it signs can be told from all else."""

import base64
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backupd.policy.signing import is_signed, new_signer_at, require_public, signer_at
from backupd.vocabulary.errors import Refused, UsageError
from backupd.vocabulary.storage import Signature


def test_a_key_is_made_at_first_need_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    made = signer_at(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert signer_at(path).public == made.public
    assert is_signed(made.sign(b"what 1\0 this"), b"what 1\0 this")
    assert is_signed(signer_at(path).sign(b"x"), b"x")
    assert os.listdir(tmp_path) == ["signing.key"]  # noqa: PTH208 - nothing else, hidden or not


def test_of_many_who_make_the_key_at_once_one_succeeds(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as threads:
        made = set(threads.map(lambda _: signer_at(tmp_path / "signing.key").public, range(64)))
    assert len(made) == 1
    assert os.listdir(tmp_path) == ["signing.key"]  # noqa: PTH208


def test_no_second_name_of_the_key_stays_of_a_process_that_was_killed_as_it_made_it(tmp_path: Path) -> None:
    """Between its link and its unlink."""
    path = tmp_path / "signing.key"
    made = signer_at(path)
    os.link(path, tmp_path / ".signing.key.0123456789abcdef")
    assert signer_at(path).public == made.public
    assert os.listdir(tmp_path) == ["signing.key"]  # noqa: PTH208


def test_a_new_key_takes_the_old_ones_place(tmp_path: Path) -> None:
    path = tmp_path / "signing.key"
    before = signer_at(path)
    after = new_signer_at(path)
    assert after.public != before.public
    assert signer_at(path).public == after.public
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_signature_is_of_these_bytes_by_this_key_and_of_nothing_else(tmp_path: Path) -> None:
    one, other = signer_at(tmp_path / "one"), signer_at(tmp_path / "other")
    signature = one.sign(b"manifest 1\0 r1")
    assert not is_signed(signature, b"manifest 1\0 r2")
    assert not is_signed(Signature(other.public, signature.value), b"manifest 1\0 r1")
    assert not is_signed(Signature(one.public, signature.value + "\n"), b"manifest 1\0 r1")
    assert not is_signed(Signature(one.public + "\n", signature.value), b"manifest 1\0 r1")


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o622])
def test_a_key_that_others_can_read_or_write_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "signing.key"
    signer_at(path)
    path.chmod(mode)
    with pytest.raises(Refused, match=r"can be read or written by others \(mode 0"):
        signer_at(path)


def test_a_planted_key_is_not_followed_nor_waited_for(tmp_path: Path) -> None:
    signer_at(tmp_path / "elsewhere")
    (tmp_path / "signing.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused, match="cannot be used: too many levels of symbolic links"):
        signer_at(tmp_path / "signing.key")
    os.mkfifo(tmp_path / "fifo", 0o600)
    with pytest.raises(Refused, match="is not a regular file"):
        signer_at(tmp_path / "fifo")
    (tmp_path / "dangling").symlink_to(tmp_path / "made-elsewhere")
    with pytest.raises(Refused):
        signer_at(tmp_path / "dangling")
    assert not (tmp_path / "made-elsewhere").exists()


def test_anothers_file_is_no_key_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "signing.key"
    signer_at(path)
    ours = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: ours + 1)
    with pytest.raises(Refused, match=f"belongs to user {ours}, not to backupd"):
        signer_at(path)


@pytest.mark.parametrize(
    "content", [b"", b"secret words", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_a_file_that_is_no_key_is_refused_without_a_word_of_it(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "signing.key"
    path.touch(0o600)
    path.write_bytes(content)
    with pytest.raises(Refused, match="is not a backupd signing key") as refused:
        signer_at(path)
    assert refused.value.__cause__ is None
    assert "secret" not in str(refused.value)
    assert path.read_bytes() == content


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="cannot be used: no such file or directory"):
        signer_at(tmp_path / "nowhere" / "signing.key")


def test_nothing_of_the_key_is_shown(tmp_path: Path) -> None:
    made = signer_at(tmp_path / "signing.key")
    assert repr(made) == f"Signer(public={made.public!r})"


def test_a_public_key_is_told_from_other_words(tmp_path: Path) -> None:
    public = signer_at(tmp_path / "signing.key").public
    assert require_public(f" {public}\n") == public
    for text in ("", "backupd-ed25519:", public[:-4], public + "AAAA", "age1qqqq", public.replace("backupd", "ssh")):
        with pytest.raises(UsageError, match="is not a public key of a machine"):
            require_public(text)


@pytest.mark.parametrize(
    "point",
    [
        *("00" * 32, "01" + "00" * 31, "ec" + "ff" * 30 + "7f", "ed" + "ff" * 30 + "7f", "ee" + "ff" * 30 + "ff"),
        "26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
        "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
    ],
)
def test_a_key_that_anybody_can_sign_for_is_none(point: str) -> None:
    public = "backupd-ed25519:" + base64.b64encode(bytes.fromhex(point)).decode()
    with pytest.raises(UsageError):
        require_public(public)
    for value in (bytes(64), bytes([1, *bytes(63)])):
        assert not is_signed(Signature(public, base64.b64encode(value).decode()), b"anything")
