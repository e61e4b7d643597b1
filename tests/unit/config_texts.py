"""A configuration in which nothing could be left out, as TOML; and the error of one that is refused."""

from pathlib import Path

import pytest

from backupd.config import load
from backupd.vocabulary.errors import ConfigurationError, ExitStatus

HOST = '[hosts.db1]\nsocket = "/run/mysqld/mysqld.sock"\nuser = "backupd"\n'
TARGET = '[targets.vault]\ntype = "directory"\npath = "/srv/backups"\n'
JOB = '[jobs.nightly]\nhost = "db1"\ntargets = ["vault"]\n'
MINIMAL = HOST + TARGET + JOB


def refusal(path: Path) -> ConfigurationError:
    """The error that loading this file ends with."""
    with pytest.raises(ConfigurationError) as raised:
        load(path)
    assert raised.value.exit_status is ExitStatus.USAGE
    return raised.value
