"""What goes together in the table of an S3 target, and the example that the S3 server of the lab prints."""

from pathlib import Path

import pytest

from backupd.config import S3Config, load
from backupd.config.effective import as_toml
from backupd.vocabulary.errors import ConfigurationError
from tests.servers.s3server import S3Service

BUCKET = '[targets.bucket]\ntype = "s3"\nbucket = "backups"\naccept_unencrypted = true\n'
REST = (
    '[hosts.db1]\nsocket = "/run/mysqld/mysqld.sock"\nuser = "backupd"\n'
    '[jobs.nightly]\nhost = "db1"\ntargets = ["bucket"]\n'
)


def test_a_lock_that_the_store_would_refuse_is_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    file.write_text(f'{BUCKET}lock_mode = "compliance"\nchecksum = "none"\n{REST}')
    with pytest.raises(ConfigurationError, match=r'targets\.bucket\.checksum: cannot be "none" with lock_mode'):
        load(file)


def test_what_is_shown_of_a_bucket_is_read_back_as_the_same(tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    for keys in ("", 'lock_mode = "governance"\nlock_for = "1h"\n'):
        file.write_text(f"{BUCKET}{keys}{REST}")
        given = load(file)
        file.write_text(as_toml(given))
        assert load(file) == given


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("DEEP_ARCHIVE", "cannot be used: objects of that class cannot be read at once"),
        ("GLACIER", "cannot be used: objects of that class cannot be read at once"),
        ("standard ia", "is not the name of a storage class"),
        ("", "an empty text"),
    ],
)
def test_a_storage_class_that_cannot_be_read_back_is_a_fault(tmp_path: Path, name: str, said: str) -> None:
    file = tmp_path / "backupd.toml"
    file.write_text(f'{BUCKET}storage_class = "{name}"\n{REST}')
    with pytest.raises(ConfigurationError, match=rf"targets\.bucket\.storage_class: .*{said}"):
        load(file)


def test_a_storage_class_of_any_store_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    file.write_text(f'{BUCKET}storage_class = "COLD-2"\n{REST}')
    target = load(file).targets["bucket"]
    assert isinstance(target, S3Config)
    assert target.storage_class == "COLD-2"


def test_a_lock_lasts_a_week_unless_told_otherwise(tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    file.write_text(f'{BUCKET}lock_mode = "governance"\n{REST}')
    target = load(file).targets["bucket"]
    assert isinstance(target, S3Config)
    assert target.lock_seconds == 7 * 86400


def test_the_labs_server_tells_a_configuration_that_can_be_loaded(tmp_path: Path) -> None:
    service = S3Service("http://127.0.0.1:7070", "KEY", "secret", tmp_path)
    service.write_credentials(tmp_path / "credentials")
    file = tmp_path / "backupd.toml"
    file.write_text(service.configuration("bucket", tmp_path / "credentials") + REST)
    target = load(file).targets["bucket"]
    assert isinstance(target, S3Config)
    assert (target.endpoint, target.credentials_file) == (service.endpoint, tmp_path / "credentials")
    assert (tmp_path / "credentials").stat().st_mode & 0o777 == 0o600
    assert "secret" not in repr(service)


@pytest.mark.parametrize("endpoint", ["http://s3.example.com", "http://10.0.0.7:9000", "http://localhost.example.com"])
def test_a_store_elsewhere_without_tls_is_refused_unless_somebody_has_written_that_it_may_be(
    tmp_path: Path, endpoint: str
) -> None:
    file = tmp_path / "backupd.toml"
    file.write_text(f'{BUCKET}endpoint = "{endpoint}"\n{REST}')
    with pytest.raises(ConfigurationError, match=r"targets\.bucket\.endpoint: .* is not HTTPS") as refused:
        load(file)
    assert "accept_http = true" in refused.value.hint
    file.write_text(f'{BUCKET}endpoint = "{endpoint}"\naccept_http = true\n{REST}')
    assert load(file).targets


@pytest.mark.parametrize(
    "endpoint", ["http://localhost:9000", "http://127.0.0.1:9000", "http://[::1]:9000", "https://s3"]
)
def test_a_store_on_this_machine_or_behind_tls_is_well(tmp_path: Path, endpoint: str) -> None:
    file = tmp_path / "backupd.toml"
    file.write_text(f'{BUCKET}endpoint = "{endpoint}"\n{REST}')
    assert load(file).targets
