"""What the S3 target makes of its configuration, and of what S3 has and a folder has not: versions, locks, uploads."""

import datetime
import logging
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from backupd import wiring
from backupd.cli.main import _set_up_logging
from backupd.config import Configuration, LockMode
from backupd.targets import s3_removal
from backupd.targets.names import BINLOG
from backupd.targets.s3 import S3Target
from backupd.targets.s3_parts import MOST_PARTS, part_bytes
from backupd.targets.s3_upload import PartMemory, Upload
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.records import Holding, HoldingKind
from tests.contract.s3_faults import Exchange, hand_on, in_between, refuse
from tests.contract.s3_server import PART, s3_config, s3_service, s3_target
from tests.contract.test_targets import JOB, MANIFEST, NAME, RUN, get, put, record
from tests.fakes.target import MACHINE
from tests.servers.s3server import S3Service

__all__ = ["s3_service"]

DETAIL = ("target", "machine", "job", "backup", "name")
WHOSE = ("store", MACHINE, JOB, RUN, NAME)
CONTENT = bytes(range(256)) * 100


@pytest.fixture
def target(s3_service: S3Service) -> S3Target:
    return s3_target(s3_config(s3_service))


# --- who we are, and to whom -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "mode", "sentence"),
    [
        ("[default]\naws_access_key_id = {id}\naws_secret_access_key = wrongwrongwrong\n", 0o600, "does not accept"),
        ("[default]\naws_access_key_id = NOBODY\naws_secret_access_key = hunter22\n", 0o600, "does not accept"),
        ("[default]\naws_access_key_id = {id}\naws_secret_access_key = hunter22\n", 0o640, "read or written by others"),
        ("[default]\naws_access_key_id = {id}\n", 0o600, "no aws_secret_access_key"),
        ("[other]\naws_access_key_id = {id}\naws_secret_access_key = hunter22\n", 0o600, r"no section \[default\]"),
        ("hunter22\n", 0o600, "cannot be parsed"),
        ("", 0o600, r"no section \[default\]"),
    ],
)
def test_credentials_that_are_none_are_said_so_without_a_word_of_them(
    s3_service: S3Service, tmp_path: Path, text: str, mode: int, sentence: str
) -> None:
    file = tmp_path / "credentials"
    file.write_text(text.format(id=s3_service.access_key))
    file.chmod(mode)
    with pytest.raises(TargetError, match=sentence) as raised:
        s3_target(replace(s3_config(s3_service), credentials_file=file)).require_usable()
    error: BaseException | None = raised.value
    assert raised.value.hint
    while error is not None:
        assert "hunter22" not in f"{error} {error!r}"
        error = error.__cause__


def test_no_credential_is_logged_however_much_is(
    s3_service: S3Service, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "credentials"
    s3_service.write_credentials(file)
    with file.open("a") as more:
        more.write("aws_session_token = hunter22\n")
    _set_up_logging(quiet=False, verbose=2)
    with caplog.at_level(1):
        logging.getLogger("backupd").debug("this is")
        with pytest.raises(TargetError, match="does not accept"):  # it knows no tokens
            s3_target(replace(s3_config(s3_service), credentials_file=file)).backups()
    assert "this is" in caplog.text
    assert not [told for told in (s3_service.access_key, "hunter22", "AWS4-HMAC") if told in caplog.text]


def test_a_profile_is_a_section_of_the_credentials_file(s3_service: S3Service, tmp_path: Path) -> None:
    file = tmp_path / "credentials"
    s3_service.write_credentials(file)
    file.write_text(file.read_text().replace("[default]", "[vault]"))
    s3_target(replace(s3_config(s3_service), credentials_file=file, profile="vault")).require_usable()


def test_without_a_file_the_environment_says_who_we_are(
    s3_service: S3Service, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("AWS_SHARED_CREDENTIALS_FILE", "AWS_CONFIG_FILE"):
        monkeypatch.setenv(name, str(tmp_path / "none"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    config = replace(s3_config(s3_service), credentials_file=None)
    with pytest.raises(TargetError, match="no credentials"):
        s3_target(config).require_usable()
    with pytest.raises(TargetError, match=r"no credentials .*profile \(vault\)"):
        s3_target(replace(config, profile="vault")).require_usable()
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_service.access_key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_service.secret_key)
    s3_target(config).require_usable()


def test_a_bucket_that_is_not_there_is_said_so(s3_service: S3Service) -> None:
    missing = s3_target(s3_config(s3_service, bucket="no-such-bucket"))
    with pytest.raises(TargetError, match="no such bucket"):
        missing.require_usable()
    with pytest.raises(TargetError, match="no such bucket"):
        missing.backups()
    with pytest.raises(TargetError, match="no such bucket"):
        put(missing, CONTENT)


def test_the_region_that_the_store_names_is_followed(s3_service: S3Service) -> None:
    target = s3_target(replace(s3_config(s3_service), region="eu-central-1"))
    target.require_usable()
    put(target, CONTENT)
    assert get(target) == CONTENT


def test_a_store_that_cannot_be_reached_is_said_so(s3_service: S3Service) -> None:
    with pytest.raises(TargetError, match="cannot be reached"):
        s3_target(s3_config(s3_service, endpoint="http://127.0.0.1:1")).require_usable()


@contextmanager
def behind_tls(service: S3Service, folder: Path) -> Iterator[tuple[str, Path]]:
    """The server's address over TLS, and the only certificate by which it is trusted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    public, private = folder / "certificate.pem", folder / "key.pem"
    public.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(public, private)
    with in_between(service.endpoint, tls=tls) as proxy:
        yield proxy.endpoint, public


def test_a_certificate_is_trusted_only_when_its_authority_is(s3_service: S3Service, tmp_path: Path) -> None:
    with behind_tls(s3_service, tmp_path) as (endpoint, authority):
        config = s3_config(s3_service, endpoint=endpoint)
        with pytest.raises(TargetError, match="is not trusted") as raised:
            s3_target(config).require_usable()
        assert "ca =" in raised.value.hint
        trusting = s3_target(replace(config, ca=authority))
        trusting.require_usable()
        put(trusting, CONTENT, CONTENT * (PART // len(CONTENT)))
        assert get(trusting) == CONTENT * (PART // len(CONTENT) + 1)


def test_looking_whether_it_is_usable_leaves_nothing(s3_service: S3Service) -> None:
    config = s3_config(s3_service)
    s3_target(config).require_usable()
    assert not (s3_service.folder / config.bucket / config.prefix).exists()


def test_what_recovery_does_with_an_upload_is_to_give_it_back(s3_service: S3Service, target: S3Target) -> None:
    class Dies:
        """A run that is killed when it has written down its upload."""

        def hold(self, holding: Holding) -> None:
            left.append(holding)

        def released(self, holding: Holding) -> None:
            raise AssertionError(holding)

    left: list[Holding] = []
    upload = Upload(
        target._place(JOB, RUN, NAME),
        PART,
        room=PartMemory(1),
        ledger=Dies(),
        detail=dict(zip(DETAIL, WHOSE, strict=True)),
    )
    upload.write(bytes(PART))
    upload._pool.shutdown()
    assert [found.finished for found in target.backups()] == [False]
    releases = wiring.host_tools(Configuration(targets={"store": target._config}), MACHINE).releases
    for _ in range(2):
        releases[HoldingKind.UPLOAD](left[0])
    assert target.backups() == []


def senders() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("backupd s3")]


def test_no_thread_outlives_an_object(target: S3Target) -> None:
    with target.writing(JOB, RUN, NAME) as writer:
        writer.write(bytes(PART + 1))
        assert senders()
    assert not senders()
    with pytest.raises(KeyboardInterrupt), target.writing(JOB, RUN, "other") as writer:
        writer.write(bytes(2 * PART + 1))
        raise KeyboardInterrupt
    for thread in senders():
        thread.join(60)
    assert not senders()
    assert target._listing.uploads(target._config.prefix) == []
    with pytest.raises(TargetError):
        get(target, name="other")


def test_a_listing_has_as_many_pages_as_it_takes(s3_service: S3Service, target: S3Target) -> None:
    folder = s3_service.folder / target._config.bucket / target._config.prefix / MACHINE / JOB
    for number in range(1005):  # a page has a thousand
        (folder / f"run-{number}").mkdir(parents=True)
        (folder / f"run-{number}" / NAME).touch()
    assert {found.backup_id for found in target.backups(JOB)} == {f"run-{number}" for number in range(1005)}


# --- parts, versions, locks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("at_most", [None, 0, 1, 16 << 20, 1 << 40, (5 << 40) - 1])
def test_parts_are_as_large_as_an_object_of_that_size_needs(at_most: int | None) -> None:
    size = part_bytes(16 << 20, at_most)
    assert size >= 16 << 20
    assert size * MOST_PARTS > (at_most or 0) * 1.1
    assert at_most is None or at_most > 100 << 30 or size == 16 << 20


def test_an_object_that_s3_has_no_room_for_is_refused_before_its_first_byte(target: S3Target) -> None:
    writing = target.writing(JOB, RUN, NAME, at_most=10_000 * (5 << 30))
    with pytest.raises(TargetError, match="does not fit into S3"), writing:
        raise AssertionError("it was begun")
    assert target.backups() == []


FIVE_TEBIBYTES = 5 << 40  # would need parts of 582 MiB


def test_the_memory_of_parts_is_bounded_however_much_is_to_come(s3_service: S3Service) -> None:
    """Four objects at once, of any size each as far as the target knows, under a budget of six parts."""
    target = s3_target(s3_config(s3_service))
    target._room = room = CountingRoom(parts=32, budget=6 * PART)
    together = threading.Barrier(4, timeout=20)

    def write(number: int) -> None:
        with target.writing(JOB, RUN, f"data-{number}.tar.zst", at_most=FIVE_TEBIBYTES) as writer:
            for _ in range(5):
                together.wait()
                writer.write(bytes([number]) * PART)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert room.most <= (6 + 3) * PART  # what was not begun when the room was full
    assert room._held == 0
    assert target.objects(JOB, RUN) == {f"data-{number}.tar.zst": 5 * PART for number in range(4)}


class CountingRoom(PartMemory):
    most = 0

    def memory(self, size: int, *, is_next: bool) -> bytearray:
        part = super().memory(size, is_next=is_next)
        self.most = max(self.most, self._held)
        return part


def test_one_part_is_sent_at_a_time_however_little_room_there_is() -> None:
    room = PartMemory(parts=4, budget=1)
    first = room.memory(10, is_next=False)
    room.enter(10)
    second = room.memory(10, is_next=True)
    with pytest.raises(TargetError, match="aborted"):
        room.enter(10, unwanted=lambda: True)
    room.leave(first, 10)
    room.enter(10)
    room.leave(second, 10)
    room.free(bytearray(), 10)  # of the next part, that never comes
    assert room._held == 0


@pytest.mark.parametrize("offset", [0, 1, PART - 1, PART, PART + 100])
def test_an_object_of_several_parts_is_read_from_anywhere(target: S3Target, offset: int) -> None:
    content = CONTENT * (PART // len(CONTENT) + 3)
    put(target, content[:17], content[17:])
    with target.reading(JOB, RUN, NAME, offset=offset, size=1000) as pieces:
        assert b"".join(pieces) == content[offset : offset + 1000]
    with target.reading(JOB, RUN, NAME, offset=offset) as pieces:
        assert b"".join(pieces) == content[offset:]


def test_a_bucket_that_keeps_versions_keeps_none_of_a_removed_backup(s3_service: S3Service) -> None:
    config = s3_config(s3_service, bucket="versions")
    target = s3_target(config)
    client = target._service.client
    client.create_bucket(Bucket=config.bucket)
    client.put_bucket_versioning(Bucket=config.bucket, VersioningConfiguration={"Status": "Enabled"})
    for content in (b"first", b"second"):
        put(target, content)
    target.publish(MANIFEST)
    assert get(target) == b"second"
    target.remove(JOB, RUN)
    assert target._listing.versions(config.prefix) == []
    target.remove(JOB, RUN)


def test_what_is_locked_stays_and_says_so(s3_service: S3Service) -> None:
    config = replace(s3_config(s3_service, bucket="locked"), lock_mode=LockMode.GOVERNANCE, lock_seconds=3600.0)
    target = s3_target(config)
    client = target._service.client
    client.create_bucket(Bucket=config.bucket, ObjectLockEnabledForBucket=True)
    large = CONTENT * (PART // len(CONTENT) + 1)
    put(replaced_lock(target, 60.0), b"small")  # as long ago as a large backup takes
    put(replaced_lock(target, 60.0), large, name="large")
    published = replace(MANIFEST, objects=tuple(replace(MANIFEST.objects[0], name=name) for name in (NAME, "large")))
    target.publish(published)
    ends = set()
    for name in (NAME, "large", "manifest.json"):
        stored = client.head_object(Bucket=config.bucket, Key=f"{config.prefix}/{MACHINE}/{JOB}/{RUN}/{name}")
        left = stored["ObjectLockRetainUntilDate"] - datetime.datetime.now(datetime.UTC)
        assert stored["ObjectLockMode"] == "GOVERNANCE"
        assert 3500 < left.total_seconds() <= 3600
        ends.add(stored["ObjectLockRetainUntilDate"])
    assert len(ends) == 1
    with pytest.raises(TargetError) as raised:
        target.remove(JOB, RUN)
    assert "Object Lock" in raised.value.hint
    assert target.manifest(JOB, RUN) == published
    assert get(target, name="large") == large


def test_segments_that_are_locked_stay_and_are_listed(s3_service: S3Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bucket that keeps versions first marks them as deleted: no mark outlives a version that may not go.

    Of a thousand segments the marks and versions are told in two pages; here in one for each segment.
    """
    config = replace(s3_config(s3_service, bucket="locked-log"), lock_mode=LockMode.GOVERNANCE, lock_seconds=3600.0)
    target = s3_target(config)
    client = target._service.client
    client.create_bucket(Bucket=config.bucket, ObjectLockEnabledForBucket=True)
    names = [segment_name(number) for number in range(1, 4)]
    for name in names:
        with target.writing(JOB, BINLOG, name) as writer:
            writer.write(b"a segment")
    listed = client.list_object_versions
    with monkeypatch.context() as paged, pytest.raises(TargetError):
        paged.setattr(client, "list_object_versions", lambda **how: listed(**how, MaxKeys=2))
        paged.setattr(s3_removal, "_AT_ONCE", 3)
        target.remove_segments(JOB, names)
    assert sorted(target.segments(JOB)) == names
    left = [each.key.rpartition("/")[2] for each in target._listing.versions(config.prefix)]
    assert sorted(left) == names, "and no mark"


def test_what_is_locked_is_not_hidden_where_nobody_may_list_versions(s3_service: S3Service) -> None:
    """A key without s3:ListBucketVersions: a deletion by name is a mark, and goes well whatever is locked."""
    with in_between(s3_service.endpoint) as proxy:
        plain = s3_config(s3_service, endpoint=proxy.endpoint, bucket="locked-untold")
        target = s3_target(replace(plain, lock_mode=LockMode.GOVERNANCE, lock_seconds=3600.0))
        target._service.client.create_bucket(Bucket=plain.bucket, ObjectLockEnabledForBucket=True)
        put(target, b"small")
        target.publish(MANIFEST)
        with target.writing(JOB, BINLOG, segment_name(1)) as writer:
            writer.write(b"a segment")
        proxy.always("ListObjectVersions", refuse(403, "AccessDenied"))
        with pytest.raises(TargetError, match="would be hidden, not removed") as raised:
            target.remove(JOB, RUN)
        assert "s3:ListBucketVersions" in raised.value.hint
        with pytest.raises(TargetError, match="would be hidden, not removed"):
            target.remove_segments(JOB, [segment_name(1)])
        assert [found.finished for found in target.backups()] == [True]
        assert list(target.segments(JOB)) == [segment_name(1)]


def test_versions_that_stay_because_nobody_may_list_them_are_told(
    s3_service: S3Service, caplog: pytest.LogCaptureFixture
) -> None:
    """They are paid for as long as the bucket exists."""
    with in_between(s3_service.endpoint) as proxy:
        config = s3_config(s3_service, endpoint=proxy.endpoint, bucket="versions-untold")
        target = s3_target(config)
        client = target._service.client
        client.create_bucket(Bucket=config.bucket)
        client.put_bucket_versioning(Bucket=config.bucket, VersioningConfiguration={"Status": "Enabled"})
        put(target, b"small")
        with target.writing(JOB, BINLOG, segment_name(1)) as writer:
            writer.write(b"a segment")
        proxy.always("ListObjectVersions", refuse(403, "AccessDenied"))
        target.remove(JOB, RUN)
        target.remove_segments(JOB, [segment_name(1)])
    assert [line.levelname for line in caplog.records if "still takes room" in line.message] == ["WARNING"] * 2


def segment_name(number: int) -> str:
    return f"20261120T030000Z-0123abcd-{number:010}.binlog"


def test_objects_are_of_the_class_that_the_target_says_and_what_is_small_is_not(s3_service: S3Service) -> None:
    said: dict[str, set[str | None]] = {}

    def note(exchange: Exchange) -> None:
        name = exchange.path.partition("?")[0].rpartition("/")[2]
        said.setdefault(name, set()).add(exchange.handler.headers["x-amz-storage-class"])
        hand_on(exchange)

    large = CONTENT * (PART // len(CONTENT) + 1)
    with in_between(s3_service.endpoint) as proxy:
        for operation in ("PutObject", "CreateMultipartUpload"):
            proxy.always(operation, note)
        config = replace(s3_config(s3_service, endpoint=proxy.endpoint), storage_class="STANDARD_IA")
        target = s3_target(config)
        target.succeed(record(1))
        target.require_usable()
        put(target, b"small")
        put(target, large, name="large")
        target.publish(MANIFEST)
        assert get(target, name="large") == large
    usable = {name for name in said if name.startswith(".backupd-writable")}
    assert {name: said[name] for name in (NAME, "large", *usable)} == {
        name: {"STANDARD_IA"} for name in (NAME, "large", *usable)
    }
    assert len(usable) == 1
    assert {value for name, values in said.items() if name.endswith(".json") for value in values} == {None}


def test_a_class_that_the_bucket_does_not_know_is_found_before_a_run(s3_service: S3Service) -> None:
    with in_between(s3_service.endpoint) as proxy:
        proxy.always("PutObject", refuse(400, "InvalidStorageClass"))
        target = s3_target(replace(s3_config(s3_service, endpoint=proxy.endpoint), storage_class="COLD"))
        with pytest.raises(TargetError, match="does not know the storage class") as refused:
            target.require_usable()
    assert "storage_class" in refused.value.hint


def replaced_lock(target: S3Target, seconds: float) -> S3Target:
    return s3_target(replace(target._config, lock_seconds=seconds))


def test_a_bucket_without_locks_is_refused_for_objects_that_are_to_be_locked(s3_service: S3Service) -> None:
    target = s3_target(replace(s3_config(s3_service), lock_mode=LockMode.COMPLIANCE, lock_seconds=60.0))
    with pytest.raises(TargetError) as raised:
        put(target, CONTENT)
    assert "Object Lock" in raised.value.hint
    assert target.backups() == []


def test_owner_records_are_never_locked_and_no_version_of_an_older_one_stays(s3_service: S3Service) -> None:
    config = replace(s3_config(s3_service, bucket="owned"), lock_mode=LockMode.COMPLIANCE, lock_seconds=3600.0)
    target = s3_target(config)
    target._service.client.create_bucket(Bucket=config.bucket, ObjectLockEnabledForBucket=True)
    for number in range(1, 5):
        assert target.succeed(record(number))
    assert not target.succeed(record(1, "b"))
    left = {stored.key.rpartition("/")[2] for stored in target._listing.versions(config.prefix)}
    assert left == {"0000000003.json", "0000000004.json"}
