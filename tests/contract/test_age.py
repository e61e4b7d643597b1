"""What backupd encrypts the `age` program opens, and the other way round: the format is age's, not ours."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from backupd.archive.encryption import Decryptor, Identities, read_identities
from backupd.archive.sealing import Encryptor
from backupd.vocabulary.errors import VerificationError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SIZES = (0, 1, 64 << 10, (3 << 20) + 17)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "key.txt"
    run("age-keygen", "-o", str(path))
    return path


@pytest.fixture(scope="module")
def identities(key: Path) -> Identities:
    return read_identities(key)


def run(*argv: str, given: bytes = b"", cwd: Path | None = None) -> bytes:
    return subprocess.run(argv, input=given, capture_output=True, check=True, timeout=30, cwd=cwd).stdout


def encrypted(plain: bytes, identities: Identities) -> bytes:
    station = Encryptor(identities.recipients)
    return b"".join([*station.take(plain), *station.end()])


def decrypted(stored: bytes, identities: Identities) -> bytes:
    with Decryptor(identities, "data-1.tar.zst.age") as station:
        return b"".join([*station.take(stored), *station.end()])


def test_the_key_that_age_made_belongs_to_the_recipient_that_age_says(key: Path, identities: Identities) -> None:
    assert run("age-keygen", "-y", str(key)).decode().split() == list(identities.recipients)


@pytest.mark.parametrize("size", SIZES)
def test_age_opens_what_we_encrypted(key: Path, identities: Identities, size: int) -> None:
    plain = os.urandom(size)
    assert run("age", "-d", "-i", str(key), given=encrypted(plain, identities)) == plain


@pytest.mark.parametrize("size", SIZES)
def test_we_open_what_age_encrypted(identities: Identities, size: int) -> None:
    plain = os.urandom(size)
    stored = run("age", "-r", identities.recipients[0], given=plain)
    assert decrypted(stored, identities) == plain
    with pytest.raises(VerificationError):
        decrypted(stored[:-1], identities)


def test_plain_tools_open_an_encrypted_object(key: Path, identities: Identities, tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "orders.ibd").write_bytes(content := os.urandom(100_000))
    stream = run("tar", "-c", "shop", cwd=tmp_path)
    (tmp_path / "data-1.tar.zst.age").write_bytes(encrypted(zstd.compress(stream), identities))
    (tmp_path / "out").mkdir()
    run("sh", "-c", f"age -d -i {key} data-1.tar.zst.age | zstd -d | tar -x -C out", cwd=tmp_path)
    assert (tmp_path / "out/shop/orders.ibd").read_bytes() == content
