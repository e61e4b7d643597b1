"""Who can read the backups: recipients are right to the letter, and nothing leaves the machine unencrypted unasked."""

from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey

from backupd.archive.sealing import Encryptor
from backupd.config import TargetKind, load
from backupd.config.rules import broken
from backupd.vocabulary.errors import ConfigurationError
from tests.unit.config_texts import refusal

# Made by age-keygen for this test and used nowhere else.
RECIPIENT = "age1l4cl0cvfd0ngf7yh470rcxew24jydhpzu5hkzthy9cm2hktumags70q2ut"
SECRET = "AGE-SECRET-KEY-1UWG9XCR870HZFDK38NLNMM9GSUVAFVWUY7WG9UANHKE3E3PG6U9SLENMDJ"

HOST = '[hosts.db1]\nsocket = "/run/mysqld/mysqld.sock"\nuser = "backupd"\n'
VAULT = '[targets.vault]\ntype = "directory"\npath = "/srv/backups"\n'
OFFSITE = '[targets.offsite]\ntype = "sftp"\naddress = "b"\nuser = "u"\npath = "/srv"\nkey_file = "/etc/key"\n{}\n'
BUCKET = '[targets.bucket]\ntype = "s3"\nbucket = "backups"\n{}\n'
ACCEPTED = "accept_unencrypted = true"


def configured(
    folder: Path, *, targets: str, recipients: str | None = None, offsite: str = "", bucket: str = ""
) -> Path:
    job = f'[jobs.nightly]\nhost = "db1"\ntargets = {targets}\n'
    if recipients is not None:
        job += f"[jobs.nightly.encryption]\nrecipients = {recipients}\n"
    path = folder / "backupd.toml"
    path.write_text(HOST + VAULT + OFFSITE.format(offsite) + BUCKET.format(bucket) + job)
    return path


@pytest.mark.parametrize("recipients", [None, "[]"])
def test_remote_targets_without_recipients_are_refused_each_by_name(tmp_path: Path, recipients: str | None) -> None:
    path = configured(tmp_path, targets='["vault", "offsite", "bucket"]', recipients=recipients)
    error = refusal(path)
    assert error.message == (
        f"{path}: jobs.nightly.encryption.recipients: there is none, but offsite, bucket are not on this machine: "
        "its backups would be sent there unencrypted"
    )
    assert "accept_unencrypted = true in [targets.offsite], [targets.bucket]" in error.hint
    assert "age-keygen" in error.hint


def test_only_the_target_that_did_not_accept_is_named(tmp_path: Path) -> None:
    error = refusal(configured(tmp_path, targets='["offsite", "bucket"]', bucket=ACCEPTED))
    assert "but offsite is not on this machine" in error.message


def test_a_target_accepts_in_words_and_in_no_other_way(tmp_path: Path) -> None:
    error = refusal(configured(tmp_path, targets='["offsite"]', offsite="accept_unencrypted = false"))
    assert "but offsite is not on this machine" in error.message
    assert load(configured(tmp_path, targets='["offsite", "bucket"]', offsite=ACCEPTED, bucket=ACCEPTED)).jobs


def test_with_a_recipient_every_target_is_well(tmp_path: Path) -> None:
    path = configured(tmp_path, targets='["vault", "offsite", "bucket"]', recipients=f'["{RECIPIENT}"]')
    assert load(path).jobs["nightly"].encryption.recipients == (RECIPIENT,)


def test_a_job_that_stays_on_this_machine_needs_no_recipient(tmp_path: Path) -> None:
    assert load(configured(tmp_path, targets='["vault"]')).jobs


@pytest.mark.parametrize("at", range(4, len(RECIPIENT), 9))
def test_a_recipient_with_one_wrong_letter_is_refused(tmp_path: Path, at: int) -> None:
    wrong = RECIPIENT[:at] + ("q" if RECIPIENT[at] != "q" else "p") + RECIPIENT[at + 1 :]
    path = configured(tmp_path, targets='["vault"]', recipients=f'["{wrong}"]')
    assert f'"{wrong[:20]}' in refusal(path).message
    assert "is not an age recipient" in refusal(path).message


@pytest.mark.parametrize("secret", [SECRET, SECRET.lower(), f" {SECRET}"])
def test_a_secret_key_in_place_of_a_recipient_is_refused_and_not_shown(tmp_path: Path, secret: str) -> None:
    error = refusal(configured(tmp_path, targets='["vault"]', recipients=f'["{secret}"]'))
    assert "is a secret key" in error.message
    assert SECRET[20:40].lower() not in f"{error.message} {error.hint}".lower()


@pytest.mark.parametrize("kind", TargetKind)
def test_a_kind_of_target_that_is_not_said_to_be_on_this_machine_wants_encryption(kind: TargetKind) -> None:
    """Where a kind is defined, and nowhere else, stands whether it is remote; one that does not say so is."""
    document = {"targets": {"store": {"type": str(kind)}}, "jobs": {"nightly": {"targets": ["store"]}}}
    unencrypted = [fault for fault in broken(document) if fault.path.endswith("encryption.recipients")]
    assert bool(unencrypted) is not (kind is TargetKind.DIRECTORY)
    assert kind.on_this_machine is (kind is TargetKind.DIRECTORY)


LOW_ORDER = [  # of Curve25519: https://cr.yp.to/ecdh.html#validate, and what has the same value modulo 2^255 - 19
    0,
    1,
    325606250916557431795983626356110631294008115727848805560023387167927233504,
    39382357235489614581723060781553021112529911719440698176882885853963445705823,
    2**255 - 20,
    2**255 - 19,
    2**255 - 18,
    2**255,  # the last bit is ignored
]


def bech32(key: bytes) -> str:
    """As BIP 173 has it; age has a package for it, pyrage shows none."""
    letters, generator = (
        "qpzry9x8gf2tvdw0s3jn54khce6mua7l",
        (0x3B6A57B2, 0x26508E6D, 0x1EA119FA, 0x3D4233DD, 0x2A1462B3),
    )
    number = int.from_bytes(key, "big") << 4  # 256 bits are 52 letters, the last with 4 bits to spare
    values = [number >> 5 * at & 31 for at in reversed(range(52))]
    code = 1
    for value in [
        *(ord(letter) >> 5 for letter in "age"),
        0,
        *(ord(letter) & 31 for letter in "age"),
        *values,
        *[0] * 6,
    ]:
        top, code = code >> 25, (code & 0x1FFFFFF) << 5 ^ value
        for bit, each in enumerate(generator):
            code ^= each if top >> bit & 1 else 0
    values += [(code ^ 1) >> 5 * at & 31 for at in range(5, -1, -1)]
    return "age1" + "".join(letters[value] for value in values)


@pytest.mark.parametrize("point", LOW_ORDER)
def test_a_recipient_that_everybody_has_the_key_to_is_refused(tmp_path: Path, point: int) -> None:
    recipient = bech32(point.to_bytes(32, "little"))
    error = refusal(configured(tmp_path, targets='["vault"]', recipients=f'["{recipient}"]'))
    assert "is a low-order key: anybody could read what is encrypted for it" in error.message
    with pytest.raises(ConfigurationError, match="not an age recipient"):
        Encryptor([recipient])
    with pytest.raises(ValueError, match="shared key"):  # OpenSSL's own mind
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(point.to_bytes(32, "little")))
