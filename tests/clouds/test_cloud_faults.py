"""What comes of a cloud and a network that fail: either the object is there, whole, or it says so.

A real client speaks to a real server through a proxy that brings the faults. What the target makes of each failure is
tested by `tests/contract/test_blob_faults.py`; this shows that the packages' own errors are known for what they are.
"""

import logging
import ssl
import traceback
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event

import pytest
from azure.storage.blob import generate_container_sas

from backupd.cli.main import _set_up_logging
from backupd.config import AzureConfig, GcsConfig
from backupd.targets.blobs import BlobTarget
from backupd.vocabulary.errors import NoRoom, TargetAway, TargetError
from tests.clouds.conftest import blob_target
from tests.contract.certificates import certificate
from tests.contract.s3_faults import (
    Fault,
    Proxy,
    cut_in_the_middle,
    flip_a_byte_on_the_way,
    hand_on,
    in_between,
    keep_silent_until,
    lose_half_of_the_answer,
    lose_the_answer,
    pretend,
    refuse,
)
from tests.contract.s3_server import PART
from tests.contract.test_targets import JOB, MANIFEST, NAME, RUN, get, put, record
from tests.servers.clouds import Cloud

SMALL = b"less than a part"
LARGE = bytes(range(256)) * (2 * PART // 256) + b"the end"
LATER = Event()  # never set: the other side is silent for good


@pytest.fixture
def proxy(config: AzureConfig | GcsConfig) -> Iterator[Proxy]:
    with in_between(config.endpoint or "") as between:
        yield between


@pytest.fixture
def target(config: AzureConfig | GcsConfig, proxy: Proxy) -> BlobTarget:
    """Reached through the proxy."""
    return blob_target(replace(config, endpoint=proxy.endpoint))


PASSING = [cut_in_the_middle, lose_the_answer, refuse(503, "ServerBusy"), refuse(500, "InternalError")]


@pytest.mark.parametrize("fault", PASSING)
def test_small_objects_outlast_what_passes(
    config: AzureConfig | GcsConfig, proxy: Proxy, target: BlobTarget, fault: Fault
) -> None:
    proxy.next("PutObject", fault, fault)
    put(target, SMALL)
    proxy.next("PutObject", fault)
    target.publish(MANIFEST)
    proxy.next("PutObject", fault)
    assert target.succeed(record(1))
    assert get(target) == SMALL
    assert target.manifest(JOB, RUN) == MANIFEST
    assert target.owner() == record(1)


@pytest.mark.parametrize("fault", PASSING)
def test_parts_outlast_what_passes(
    config: AzureConfig | GcsConfig, proxy: Proxy, target: BlobTarget, fault: Fault
) -> None:
    if isinstance(config, GcsConfig) and fault is lose_the_answer:
        proxy.next("UploadPart", refuse(429, "rateLimitExceeded"))  # the fake does not know a part that comes again
    else:
        proxy.next("UploadPart", fault, fault)
    put(target, LARGE)
    assert get(target) == LARGE


def test_an_answer_to_the_last_part_that_was_lost_is_looked_up(proxy: Proxy, target: BlobTarget) -> None:
    proxy.next("UploadPart", hand_on, hand_on, lose_the_answer)
    proxy.next("CompleteMultipartUpload", lose_the_answer)
    put(target, LARGE)
    assert get(target) == LARGE


@pytest.mark.parametrize("size", [100_000, len(LARGE)])
def test_bytes_that_were_damaged_on_their_way_are_sent_again_or_found(
    config: AzureConfig | GcsConfig, proxy: Proxy, target: BlobTarget, size: int
) -> None:
    in_parts = size == len(LARGE)
    proxy.next("UploadPart" if in_parts else "PutObject", flip_a_byte_on_the_way)
    if in_parts and isinstance(config, GcsConfig):  # Google compares no part: the object's own checksum differs
        with pytest.raises(TargetError, match="does not have it as it was sent"):
            put(target, LARGE)
        assert target.objects(JOB, RUN) == {}
    else:
        put(target, LARGE[:size])
        assert get(target) == LARGE[:size]


@pytest.mark.parametrize("content", [SMALL, LARGE])
def test_what_does_not_pass_is_an_error_and_nothing_is_left(
    config: AzureConfig | GcsConfig, proxy: Proxy, target: BlobTarget, content: bytes
) -> None:
    for part in ("UploadPart", "PutObject"):
        proxy.always(part, refuse(403, "AuthorizationPermissionMismatch"))
    with pytest.raises(TargetError, match="does not let backupd") as raised:
        put(target, content)
    assert raised.value.hint
    proxy.heal()
    assert target.backups() == []


def test_a_writer_that_fails_leaves_no_part(target: BlobTarget) -> None:
    with pytest.raises(ZeroDivisionError), target.writing(JOB, RUN, NAME) as writer:
        writer.write(LARGE)
        raise ZeroDivisionError
    assert target.backups() == []


def test_a_cloud_that_keeps_silent_is_given_up_in_time(config: AzureConfig | GcsConfig, proxy: Proxy) -> None:
    proxy.always("PutObject", keep_silent_until(LATER))
    with pytest.raises(TargetAway):
        put(blob_target(replace(config, endpoint=proxy.endpoint, timeout_seconds=0.2)), SMALL)


@pytest.mark.parametrize("fault", [lose_half_of_the_answer, cut_in_the_middle, refuse(503, "ServerBusy")])
def test_reading_goes_on_where_the_connection_broke(proxy: Proxy, target: BlobTarget, fault: Fault) -> None:
    put(target, LARGE)
    proxy.next("GetObject", fault, fault)
    assert get(target) == LARGE


def test_a_store_that_ignores_conditions_is_refused_before_a_run(
    config: AzureConfig | GcsConfig, proxy: Proxy, target: BlobTarget
) -> None:
    proxy.next("PutObject", hand_on, pretend(b"{}", ETag='"x"'))
    with pytest.raises(TargetError):
        target.require_usable()


@pytest.mark.parametrize(
    ("status", "code", "kind", "sentence"),
    [
        (401, "NoAuthenticationInformation", TargetError, "does not accept the credentials"),
        (403, "AuthorizationPermissionMismatch", TargetError, "does not let backupd"),
        (404, "ContainerNotFound", TargetError, "does not exist"),
        (409, "BlobImmutableDueToPolicy", TargetError, "could not write to"),
        (429, "TooManyRequests", TargetAway, "could not write to"),
        (503, "ServerBusy", TargetAway, "could not write to"),
    ],
)
def test_each_refusal_has_its_sentence(
    proxy: Proxy, target: BlobTarget, status: int, code: str, kind: type[TargetError], sentence: str
) -> None:
    proxy.always("*", refuse(status, code))
    with pytest.raises(TargetError, match=sentence) as raised:
        target.require_usable()
    assert type(raised.value) is kind
    assert raised.value.hint


def test_a_full_account_has_no_room(azure_config: AzureConfig) -> None:
    with in_between(azure_config.endpoint or "") as proxy:
        proxy.always("*", refuse(507, "InsufficientStorage"))
        with pytest.raises(NoRoom):
            blob_target(replace(azure_config, endpoint=proxy.endpoint)).require_usable()


# --- who we are, and to whom -----------------------------------------------------------------------------------------


def test_a_container_that_is_not_there_is_said_so(azure_config: AzureConfig, gcs_config: GcsConfig) -> None:
    for target in (
        blob_target(replace(azure_config, container="no-such-one")),
        blob_target(replace(gcs_config, bucket="no-such-one")),
    ):
        for asked in (target.require_usable, target.backups):
            with pytest.raises(TargetError, match="does not exist"):
                asked()


def test_a_cloud_that_cannot_be_reached_is_said_so(config: AzureConfig | GcsConfig) -> None:
    with pytest.raises(TargetAway, match="cannot be reached"):
        blob_target(replace(config, endpoint="http://127.0.0.1:1")).require_usable()


def test_a_certificate_is_trusted_only_when_its_authority_is(config: AzureConfig | GcsConfig, tmp_path: Path) -> None:
    made = certificate(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.chain)
    with in_between(config.endpoint or "", tls=tls) as proxy:
        over_tls = replace(config, endpoint=proxy.endpoint)
        with pytest.raises(TargetError, match="is not trusted") as raised:
            blob_target(over_tls).require_usable()
        assert raised.value.hint
        trusting = blob_target(replace(over_tls, ca=made.ca))
        put(trusting, SMALL)  # the fake gives the address of an upload in parts without TLS
        assert get(trusting) == SMALL


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("", 0o600, "empty|not a service account's key"),
        ("hunter22!\n", 0o600, "neither an account key nor|not a service account's key"),
        ('{"type": "service_account", "private_key": "hunter22"}\n', 0o600, "neither an account|not a service account"),
        ("aHVudGVyMjI=\n", 0o640, "read or written by others"),
    ],
)
def test_credentials_that_are_none_are_said_so_without_a_word_of_them(
    config: AzureConfig | GcsConfig, tmp_path: Path, text: str, mode: int, sentence: str
) -> None:
    file = tmp_path / "credentials"
    file.write_text(text)
    file.chmod(mode)
    with pytest.raises(TargetError, match=sentence) as raised:
        blob_target(replace(config, credentials_file=file)).require_usable()
    error: BaseException | None = raised.value
    assert raised.value.hint
    while error is not None:
        assert "hunter22" not in f"{error} {error!r}"
        error = error.__cause__


def test_a_wrong_key_is_said_so_and_a_renewed_one_is_read(azure_config: AzureConfig, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    file.touch(mode=0o600)
    file.write_text("aHVudGVyMjI=\n")
    target = blob_target(replace(azure_config, credentials_file=file))
    with pytest.raises(TargetError, match="does not accept the credentials"):
        target.require_usable()
    assert azure_config.credentials_file is not None
    file.write_text(azure_config.credentials_file.read_text())
    target.require_usable()


def test_without_a_file_the_environment_says_who_we_are(
    config: AzureConfig | GcsConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert config.credentials_file is not None
    unnamed = replace(config, credentials_file=None)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none"))
    for variable in ("AZURE_STORAGE_KEY", "AZURE_STORAGE_SAS_TOKEN"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(TargetError, match="no credentials"):
        blob_target(unnamed).require_usable()
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(config.credentials_file))
    monkeypatch.setenv("AZURE_STORAGE_KEY", config.credentials_file.read_text().strip())
    blob_target(unnamed).require_usable()


def test_a_shared_access_signature_does_and_is_never_told(
    azure_config: AzureConfig, untrusted: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    signature = _signature(azure_config)
    file = tmp_path / "sas"
    file.touch(mode=0o600)
    file.write_text(f"?{signature}\n")
    _set_up_logging(quiet=False, verbose=2)
    with caplog.at_level(1):
        logging.getLogger("backupd").debug("this is")
        target = blob_target(replace(azure_config, credentials_file=file))
        target.require_usable()
        put(target, LARGE)
        assert get(target) == LARGE
        told = [caplog.text]
        for endpoint in ("http://127.0.0.1:1", untrusted):
            with pytest.raises(TargetError) as raised:
                blob_target(replace(azure_config, credentials_file=file, endpoint=endpoint)).require_usable()
            told += traceback.format_exception(raised.value)
    assert "this is" in caplog.text
    assert not [text for text in told if "sig=" in text]


@pytest.fixture
def untrusted(azure: Cloud, tmp_path: Path) -> Iterator[str]:
    """Azure with a certificate that nobody knows."""
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate(tmp_path).chain)
    with in_between(azure.endpoint, tls=tls) as proxy:
        yield proxy.endpoint


def _signature(config: AzureConfig) -> str:
    assert config.credentials_file is not None
    return generate_container_sas(
        config.account,
        config.container,
        account_key=config.credentials_file.read_text().strip(),
        permission="racwdl",
        expiry=datetime.now(UTC) + timedelta(hours=1),
    )
