"""The example that is shipped, and the configuration shown: each is a file that loads."""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_origin

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.config import (
    AppriseConfig,
    AzureConfig,
    Configuration,
    DirectoryConfig,
    DrillCheckConfig,
    GcsConfig,
    HookConfig,
    HostConfig,
    JobConfig,
    MailConfig,
    PingConfig,
    ProofCheckConfig,
    S3Config,
    SftpConfig,
    TargetRetentionConfig,
    WebhookConfig,
    load,
)
from backupd.config.effective import as_toml, as_values
from backupd.config.wording import keys_of, table_in
from tests.shipped_example import EXAMPLE, everything, spelt_out


def tables(table: Any, path: str) -> Iterator[tuple[str, list[str]]]:
    """Every table of the schema as the example calls it, with its keys."""
    fields = keys_of(table)
    inner = {key: table for key, field in fields.items() if (table := table_in(field.annotation))}
    keys = [key for key in fields if key not in inner and get_origin(fields[key].annotation) is not Mapping]
    if keys:
        yield path, keys
    for key, inside in inner.items():
        yield from tables(inside, f"{path}.{key}" if path else key)


ALL_TABLES = [
    *(entry for entry in tables(Configuration, "") if entry[0]),
    *tables(HostConfig, "hosts.db1"),
    *tables(DirectoryConfig, "targets.vault"),
    *tables(SftpConfig, "targets.offsite"),
    *tables(S3Config, "targets.bucket"),
    *tables(AzureConfig, "targets.azure"),
    *tables(GcsConfig, "targets.google"),
    *tables(MailConfig, "notifications.dba"),
    *tables(WebhookConfig, "notifications.chat"),
    *tables(PingConfig, "notifications.watcher"),
    *tables(AppriseConfig, "notifications.elsewhere"),
    *tables(JobConfig, "jobs.nightly"),
    *tables(TargetRetentionConfig, "jobs.nightly.retention.offsite"),
    *tables(DrillCheckConfig, "jobs.nightly.drill.checks.orders"),
    *tables(ProofCheckConfig, "prove.checks.orders"),
    *tables(HookConfig, "jobs.nightly.hooks.cache"),
]


def section(name: str) -> str:
    """The example's text from this table's header to the next."""
    text = everything()
    match = re.search(rf"^\[{re.escape(name)}\]\n(.*?)(?=^\[|\Z)", text, re.MULTILINE | re.DOTALL)
    assert match, f"the example has no [{name}]"
    return match[1]


def test_the_example_loads() -> None:
    configuration = load(EXAMPLE)
    assert (set(configuration.hosts), set(configuration.targets)) == ({"db1"}, {"vault", "offsite", "bucket"})
    assert set(configuration.jobs) == {"nightly"}
    assert not configuration.notifications  # nobody is told before somebody has said whom


def test_the_example_loads_with_every_table_in_force(tmp_path: Path) -> None:
    path = tmp_path / "backupd.toml"
    path.write_text(everything())
    assert set(load(path).notifications) == {"dba", "chat", "watcher", "elsewhere"}


@pytest.mark.parametrize(("name", "keys"), ALL_TABLES, ids=[name for name, _ in ALL_TABLES])
def test_the_example_documents_every_key(name: str, keys: list[str]) -> None:
    missing = [key for key in keys if not re.search(rf"^(# ?)?{key} = ", section(name), re.MULTILINE)]
    assert missing == []


def test_every_default_that_the_example_documents_is_the_real_one(tmp_path: Path) -> None:
    written_out = tmp_path / "backupd.toml"
    whole = tmp_path / "whole.toml"
    whole.write_text(everything())
    written_out.write_text(spelt_out())
    assert len(tomllib.loads(written_out.read_text())["jobs"]["nightly"]["settle"]) == len(
        keys_of(table_in(keys_of(JobConfig)["settle"].annotation))
    )
    assert load(written_out) == load(whole)


def test_every_example_of_a_key_without_default_is_accepted(tmp_path: Path) -> None:
    text = everything()
    before = tmp_path / "before.toml"
    before.write_text(text)
    for line in re.findall(r"^# ([a-z_]+ = .*)$", text, re.MULTILINE):
        changed = text.replace(f"# {line}", line)
        if line.startswith("address"):
            changed = changed.replace("socket =", "# socket =")
        if line.startswith("spool_size"):
            changed = changed.replace("# spool = ", "spool = ")
        if line.startswith(("equals", "newer_than")):
            changed = changed.replace("at_least = ", "# at_least = ")
        if line.startswith("url"):  # either of the two
            changed = re.sub(
                rf"^url{'' if line.startswith('url_') else '_file'} = ", "# \\g<0>", changed, flags=re.MULTILINE
            )
        path = tmp_path / "backupd.toml"
        path.write_text(changed)
        assert load(path) != load(before), line


RICH = """
[hosts.db1]
socket = "/run/\\u00e9 \\u007f \\"s\\".sock"
user = "back\\\\upd"
password_file = "/etc/backupd/db1.password"
[hosts.db2]
defaults_file = "/root/.my.cnf"
[hosts.db3]
address = "db3"
user = "u"
password_env = "DB3"
[targets.vault]
type = "directory"
path = "/srv/backups"
[jobs.nightly]
host = "db1"
targets = ["vault"]
every = "90m"
[jobs.nightly.lock]
pause = "1ms"
[jobs.nightly.snapshot]
size = "12.5%"
pvs = ["/dev/sdd", "/dev/sde"]
[jobs.nightly.copy]
max_rate = 1234567
must_finish_by = "06:00"
[jobs.weekly]
host = "db2"
targets = ["vault"]
snapshot.size = "5GiB"
limits.max_replica_lag = "90s"
"""


@pytest.fixture
def rich(tmp_path: Path) -> Configuration:
    path = tmp_path / "rich.toml"
    path.write_text(RICH)
    return load(path)


def test_what_is_shown_is_read_back_as_the_same_configuration(rich: Configuration, tmp_path: Path) -> None:
    shown = tmp_path / "shown.toml"
    shown.write_text(as_toml(rich))
    assert load(shown) == rich


def test_what_is_shown_has_the_defaults_filled_in_as_a_person_writes_them(rich: Configuration) -> None:
    shown = tomllib.loads(as_toml(rich))
    assert shown["jobs"]["nightly"]["lock"]["wait_timeout"] == "2s"
    assert shown["jobs"]["nightly"]["settle"]["file_size"] == "8MiB"
    assert shown["jobs"]["nightly"]["snapshot"]["size"] == "12.5%"
    assert shown["jobs"]["nightly"]["copy"]["must_finish_by"] == "06:00"
    assert shown["catalogue"]["path"] == "/var/lib/backupd/catalogue.sqlite"


def test_the_source_of_each_password_is_shown_as_a_comment(rich: Configuration) -> None:
    shown = as_toml(rich)
    assert '# password = "(from file /etc/backupd/db1.password)"' in shown
    assert '# password = "(from option file /root/.my.cnf)"' in shown
    assert '# password = "(from environment variable DB3)"' in shown


def test_the_json_document_has_bytes_and_seconds(rich: Configuration) -> None:
    document: Mapping[str, Any] = json.loads(json.dumps(as_values(rich, Path("/etc/x.toml"))))
    assert (document["schema"], document["path"]) == (1, "/etc/x.toml")
    nightly = document["jobs"]["nightly"]
    assert (nightly["every_seconds"], nightly["lock"]["pause_seconds"]) == (5400, 0.001)
    assert (nightly["copy"]["max_rate"], nightly["settle"]["file_size"]) == (1234567, 8 << 20)
    assert document["jobs"]["weekly"]["snapshot"]["size"] == {"percent_of_origin": None, "bytes": 5 << 30}


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_any_text_survives_being_shown(user: str) -> None:
    host = HostConfig(name="db1", socket=Path("/s"), user=user)
    shown = tomllib.loads(as_toml(Configuration(hosts={"db1": host})))
    assert shown["hosts"]["db1"]["user"] == user
