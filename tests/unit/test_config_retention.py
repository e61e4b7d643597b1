"""`[jobs.NAME.retention]` and what is different on one target."""

from pathlib import Path

import pytest

from backupd.config import Configuration
from backupd.config.effective import as_toml
from backupd.config.reading import understood
from backupd.policy.retention import RetentionRule
from backupd.vocabulary.errors import ConfigurationError

BASE = """
[hosts.db1]
socket = "/run/mysqld.sock"
user = "backupd"
[targets.vault]
type = "directory"
path = "/backups"
[targets.archive]
type = "directory"
path = "/archive"
[targets.targets]
type = "directory"
path = "/more"
[jobs.nightly]
host = "db1"
targets = ["vault"]
"""


def read(text: str) -> Configuration:
    return understood(BASE + text, Path("backupd.toml"))


def test_a_target_has_its_own_figures_and_otherwise_the_jobs() -> None:
    retention = (
        read("[jobs.nightly.retention]\ndaily = 30\n[jobs.nightly.retention.archive]\nkeep_last = 2\nmonthly = 12\n")
        .jobs["nightly"]
        .retention
    )
    assert retention.on("archive") == RetentionRule(keep_last=2, daily=30, weekly=0, monthly=12, yearly=0)
    assert retention.on("vault") == RetentionRule(keep_last=7, daily=30, weekly=0, monthly=0, yearly=0)


def test_nothing_of_the_jobs_own_need_be_said() -> None:
    retention = read("[jobs.nightly.retention.archive]\ndaily = 0\nyearly = 3\n").jobs["nightly"].retention
    assert retention.on("archive") == RetentionRule(keep_last=7, daily=0, weekly=0, monthly=0, yearly=3)


@pytest.mark.parametrize(
    "text",
    [
        "[jobs.nightly.retention]\nweekly = 4\n",
        "[jobs.nightly.retention.archive]\nkeep_last = 2\n[jobs.nightly.retention.targets]\ndaily = 3\n",
    ],
)
def test_what_is_shown_is_read_back_as_the_same(text: str) -> None:
    configuration = read(text)
    assert understood(as_toml(configuration), Path("backupd.toml")) == configuration


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[jobs.nightly.retention.archive]\nkeep_last = 0\n", "retention.archive.keep_last: 0 is not at least 1"),
        ("[jobs.nightly.retention.archive]\nhourly = 1\n", "retention.archive.hourly: unknown key"),
        ("[jobs.nightly.retention.archve]\ndaily = 1\n", 'retention.archve: there is no target "archve"'),
        ("[jobs.nightly.retention.archive.more]\ndaily = 1\n", "retention.archive.more: unknown key"),
        ("[jobs.nightly.retention]\narchive = 3\n", "retention.archive: unknown key"),
    ],
)
def test_a_fault_is_told_where_it_is_written(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        read(text)
    assert f"jobs.nightly.{said}" in error.value.message
    assert error.value.message.count("jobs.nightly.") == 1
