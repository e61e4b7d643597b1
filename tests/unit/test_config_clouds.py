"""What goes together in the tables of targets in clouds, and what a host without their packages is told."""

import sys
from pathlib import Path

import pytest

from backupd import wiring
from backupd.config import AzureConfig, GcsConfig, load
from backupd.config.targets import parts_beyond
from backupd.vocabulary.errors import ConfigurationError
from backupd.vocabulary.units import size_words
from tests.fakes.target import MACHINE

AZURE = '[targets.cloud]\ntype = "azure"\naccount = "examplebackups"\ncontainer = "backups"\n'
GCS = '[targets.cloud]\ntype = "gcs"\nbucket = "backups"\n'
REST = (
    '[hosts.db1]\nsocket = "/run/mysqld/mysqld.sock"\nuser = "backupd"\n'
    '[jobs.nightly]\nhost = "db1"\ntargets = ["cloud"]\n'
)
PLAIN = "accept_unencrypted = true\n"


@pytest.mark.parametrize(("table", "kind"), [(AZURE, AzureConfig), (GCS, GcsConfig)])
def test_a_cloud_needs_little_to_be_named(tmp_path: Path, table: str, kind: type[AzureConfig | GcsConfig]) -> None:
    file = tmp_path / "backupd.toml"
    file.write_text(f"{table}{PLAIN}{REST}")
    assert isinstance(load(file).targets["cloud"], kind)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (AZURE, "unencrypted"),  # somebody else's machine
        (GCS, "unencrypted"),
        (f'{AZURE}{PLAIN}endpoint = "http://blobs.example.com"\n', r"targets\.cloud\.endpoint: .* is not HTTPS"),
        (f'{GCS}{PLAIN}endpoint = "http://storage.example.com"\n', r"targets\.cloud\.endpoint: .* is not HTTPS"),
        (AZURE.replace("examplebackups", "evil.example.com/"), r"account: .* is not the name of a storage account"),
        (AZURE.replace("examplebackups", "ab"), r"account: .* is not the name of a storage account"),
        (AZURE.replace('container = "backups"\n', ""), r"targets\.cloud\.container: is missing"),
        (f'{AZURE}credentials_file = "azure.key"\n', r"targets\.cloud\.credentials_file: "),
        (f'{GCS}part_size = "1MiB"\n', r"targets\.cloud\.part_size: "),
        (f'{GCS}storage_class = "COLDLINE"\n', r"targets\.cloud\.storage_class: "),
    ],
)
def test_what_is_wrong_with_a_cloud_is_said_before_a_run(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "backupd.toml"
    accepted = "" if said == "unencrypted" or PLAIN in text else PLAIN
    file.write_text(f"{text}{accepted}{REST}")
    with pytest.raises(ConfigurationError, match=said) as refused:
        load(file)
    assert refused.value.hint


@pytest.mark.parametrize(
    ("table", "module", "package", "extra"),
    [
        (AZURE, "azure", "azure.storage.blob", "azure"),
        (GCS, "gcs", "google.cloud", "gcs"),
    ],
)
def test_a_host_without_the_package_is_told_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, table: str, module: str, package: str, extra: str
) -> None:
    file = tmp_path / "backupd.toml"
    file.write_text(f"{table}{PLAIN}{REST}")
    monkeypatch.delitem(sys.modules, f"backupd.targets.{module}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match="which is not installed") as refused:
        wiring.target(load(file), "cloud", MACHINE)
    assert f".[{extra}]" in refused.value.hint


@pytest.mark.parametrize(("table", "most"), [(AZURE, 4000), (GCS, 5120)])
def test_parts_that_the_store_would_refuse_are_told(tmp_path: Path, table: str, most: int) -> None:
    file = tmp_path / "backupd.toml"
    for size, said in ((most, ""), (most + 1, f"more than the {size_words(most << 20)} that the store takes")):
        file.write_text(f'{table}{PLAIN}part_size = "{size}MiB"\n{REST}')
        beyond = parts_beyond(load(file).targets["cloud"])
        assert (bool(beyond), beyond.endswith(said)) == (bool(said), True)
