"""An archive's process is at work whether its server answers or not: there is always something that can be stored."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from backupd.config import load
from backupd.operations.binlog.archive import ArchiveTools
from backupd.operations.binlog.tools import archive_tools
from backupd.operations.tools import HostTools
from backupd.vocabulary.errors import ConfigurationError, ServerError
from tests.unit.config_texts import JOB, TARGET
from tests.unit.test_segment_storing import Site


def tools(site: Site, base: Path, password: str) -> ArchiveTools:
    file, ownership = base / "backupd.toml", site.store.ownership
    host = f'[hosts.db1]\nsocket = "{base}/no.sock"\nuser = "backupd"\n{password}\n'
    file.write_text(f"{host}{TARGET}{JOB}[jobs.nightly.binlog]\n")
    configuration = load(file)
    given = SimpleNamespace(machine=ownership.machine, claims=ownership.claims, renewal_seconds=60.0)
    return archive_tools(
        configuration, configuration.jobs["nightly"], cast(HostTools, given), site.targets, site.catalogue
    )


def test_a_server_that_does_not_answer_and_a_password_file_that_is_away_are_tried_again(tmp_path: Path) -> None:
    """The file is replaced, or on a file system that is mounted late."""
    site, file = Site(tmp_path), tmp_path / "password"
    with site.catalogue:
        at_work = tools(site, tmp_path, f'password_file = "{file}"')
        with pytest.raises(ServerError, match=r"password_file: .*no such file"):
            at_work.source()
        file.touch(0o600)
        file.write_text("correct horse")
        with pytest.raises(ServerError, match=r"no\.sock"):
            at_work.source()


def test_a_variable_that_is_missing_ends_the_process_and_no_earlier_than_it_connects(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with site.catalogue:
        at_work = tools(site, tmp_path, 'password_env = "NOBODY_SETS_THIS"')
        with pytest.raises(ConfigurationError, match="NOBODY_SETS_THIS"):
            at_work.source()
