"""`backupd run --max-rate`: a ceiling that one run is given, and that its record keeps."""

from dataclasses import replace

import pytest

from backupd.config import CopyConfig, JobConfig
from backupd.operations.backup.attempt import with_ceiling
from backupd.vocabulary.errors import ExitStatus
from tests.cli.terminal import Terminal

JOB = JobConfig(name="nightly", host="db1", targets=("vault",))


def test_the_record_of_a_run_has_the_ceiling_that_it_was_given(terminal: Terminal) -> None:
    ended = terminal.run("run", "nightly", "--run-id", "r1", "--max-rate", "50M", "--json")
    assert ended.status in (ExitStatus.OK, ExitStatus.ATTENTION)
    assert ended.document["max_rate"] == 50 << 20
    assert "reads at most 50.0 MiB/s, as it was started" in terminal.run("show", "r1").stdout
    assert terminal.run("run", "nightly", "--json").document["max_rate"] is None


@pytest.mark.parametrize(("jobs", "given", "counts"), [(None, 9, 9), (10, 9, 9), (9, 10, 9), (9, None, 9)])
def test_the_lower_of_the_jobs_limit_and_the_ceiling_counts(jobs: int | None, given: int | None, counts: int) -> None:
    limited = None if jobs is None else jobs << 20
    job = replace(JOB, copy=CopyConfig(max_rate=limited))
    assert with_ceiling(job, None if given is None else given << 20).copy.max_rate == counts << 20


@pytest.mark.parametrize("rate", ["0", "fast", "-1", "100", "9999999999G", "9" * 40 + "G", "9" * 5000])
def test_what_is_no_rate_to_copy_at_is_refused(terminal: Terminal, rate: str) -> None:
    ended = terminal.run("run", "nightly", "--max-rate", rate)
    assert ended.status == ExitStatus.USAGE
    assert "--max-rate" in ended.stderr
