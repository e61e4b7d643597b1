"""Which failures are tried again, and when: every error that there is, and what a slot allows."""

import inspect
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import asyncssh
import pytest
from botocore import exceptions as aws

from backupd.config import SftpConfig, TargetKind
from backupd.policy.retries import Again, NotAgain, RetryRules, passes, planned, still_planned
from backupd.targets.directory import DirectoryTarget
from backupd.targets.outages import Patience
from backupd.targets.s3_errors import explained
from backupd.targets.ssh import SshLine, Unreachable
from backupd.vocabulary import errors
from backupd.vocabulary.errors import BackupdError, ExitStatus, TargetAway, TargetError
from backupd.vocabulary.schedule import Blackout
from tests.fakes.target import MACHINE

DUE = datetime(2026, 11, 22, 3, 0, tzinfo=UTC)
MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
EVERY_DAY = frozenset(range(7))
RULES = RetryRules(
    retries=2,
    retry_after_seconds=900.0,
    start_within_seconds=4 * 3600.0,
    blackouts=(Blackout(EVERY_DAY, time(5), time(6)),),
    zone="UTC",
)
NEXT = DUE + 24 * HOUR

PASSING = {
    (ExitStatus.BUSY, "busy"),
    (ExitStatus.REFUSED, "no-target-answers"),
    (ExitStatus.SERVER, "lock-not-granted"),
    (ExitStatus.SNAPSHOT, "group-busy"),
    (ExitStatus.TARGET, "target-away"),
    (ExitStatus.UNDECIDED, "host-exhausted"),
    (ExitStatus.TERMINATED, "terminated"),
}
ERRORS = [
    kind for _, kind in inspect.getmembers(errors, inspect.isclass) if issubclass(kind, BackupdError)
]  # of every exit status that an error has


def test_only_what_may_pass_by_itself_is_tried_again() -> None:
    found = {(kind.exit_status, kind("").code) for kind in ERRORS if passes(kind("it failed"))}
    assert found == PASSING
    assert {kind.exit_status for kind in ERRORS} == set(ExitStatus) - {ExitStatus.OK, ExitStatus.ATTENTION}
    assert passes(Unreachable("no route"))


@pytest.mark.parametrize("error", [RuntimeError("a bug"), KeyboardInterrupt(), OSError("no space")])
def test_a_bug_is_not_tried_again(error: BaseException) -> None:
    assert not passes(error)


def test_the_table_of_the_docstring_names_every_error() -> None:
    table = inspect.getdoc(passes) or ""
    families = {errors.BackupdError, errors.UsageError, errors.ConfigurationError, errors.NotificationError}
    families |= {errors.PerhapsNotified}
    families |= {errors.CommandError, errors.UnexpectedOutput, errors.LabError, errors.ProbeError}
    families |= {errors.CatalogueError, errors.CatalogueUnavailable}  # `1, 2, 12, 13`
    missing = [
        kind.__name__
        for kind in ERRORS
        if kind not in families
        and not issubclass(kind, errors.VerificationError)  # `and its kinds`
        and f"`{kind.__name__}`" not in table
    ]
    assert missing == []


# --- which target is away --------------------------------------------------------------------------------------------


def test_a_folder_that_is_not_there_or_not_mounted_may_come_back(tmp_path: Path) -> None:
    gone = DirectoryTarget("disk", tmp_path / "gone", machine=MACHINE)
    unmounted = DirectoryTarget("disk", tmp_path, machine=MACHINE, sentinel=".mounted")
    for target in (gone, unmounted):
        with pytest.raises(TargetAway):
            target.require_usable()


def test_something_else_in_the_folders_place_does_not_pass(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(TargetError) as raised:
        DirectoryTarget("disk", tmp_path / "file", machine=MACHINE).require_usable()
    assert not passes(raised.value)


def client_error(code: str, status: int) -> aws.ClientError:
    answer: Any = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return aws.ClientError(answer, "PutObject")


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (aws.EndpointConnectionError(endpoint_url="https://s3"), True),
        (client_error("ServiceUnavailable", 503), True),
        (aws.SSLError(endpoint_url="https://s3", error=OSError("unknown authority")), False),
        (aws.NoCredentialsError(), False),
        (client_error("NoSuchBucket", 404), False),
        (client_error("AccessDenied", 403), False),
        (client_error("QuotaExceeded", 507), False),
    ],
)
def test_a_store_that_answers_no_does_not_pass(error: Exception, away: bool) -> None:
    with pytest.raises(TargetError) as raised, explained("bucket b", "write to"):
        raise error
    assert passes(raised.value) is away


@pytest.mark.parametrize(
    ("error", "away"),
    [
        (TimeoutError(), True),
        (asyncssh.ConnectionLost("cut"), True),
        (asyncssh.SFTPConnectionLost("cut"), True),
        (ConnectionResetError(), True),
        (asyncssh.SFTPPermissionDenied("denied"), False),
        (asyncssh.SFTPFailure("failure"), False),
        (asyncssh.SFTPOpUnsupported("no fsync"), False),
    ],
)
def test_an_sftp_server_that_falls_silent_or_is_lost_may_come_back(error: Exception, away: bool) -> None:
    config = SftpConfig(
        name="nas", type=TargetKind.SFTP, address="nas", user="me", path=Path("/srv"), key_file=Path("/key")
    )
    assert passes(SshLine(config, Patience()).sentence(error, "write to")) is away


# --- when ------------------------------------------------------------------------------------------------------------


def test_the_next_try_starts_so_long_after_the_end_of_the_last() -> None:
    ended = DUE + 10 * MINUTE
    assert planned(RULES, DUE, number=1, ended_at=ended, next_due=NEXT) == Again(ended + 15 * MINUTE)


@pytest.mark.parametrize(
    ("number", "ended_at", "next_due", "reason"),
    [
        (3, DUE, NEXT, "it was the last of 3 tries"),
        (1, DUE + 3.8 * HOUR, NEXT, "a backup must start within 4h of when it is due"),
        (1, DUE + 2 * HOUR, NEXT, "the next try would fall into a blackout"),
        (1, DUE + 45 * MINUTE, DUE + HOUR, "the next backup is due before that"),
        (1, DUE + 50 * MINUTE, DUE + HOUR, "the next backup is due before that"),
    ],
)
def test_there_is_none_where_it_could_not_start_in_its_slot(
    number: int, ended_at: datetime, next_due: datetime, reason: str
) -> None:
    assert planned(RULES, DUE, number=number, ended_at=ended_at, next_due=next_due) == NotAgain(reason)


def test_the_last_instant_of_start_within_is_in_time() -> None:
    ended = DUE + 4 * HOUR - 15 * MINUTE
    assert planned(RULES, DUE, number=1, ended_at=ended, next_due=None) == Again(DUE + 4 * HOUR)


def test_a_planned_try_is_judged_anew_when_its_time_has_come() -> None:
    at = DUE + 4 * HOUR

    def verdict(now: datetime, rules: RetryRules = RULES, next_due: datetime = NEXT) -> Again | NotAgain:
        return still_planned(rules, DUE, number=1, retry_at=at, now=now, next_due=next_due)

    assert verdict(at - HOUR) == Again(at)
    assert verdict(at + MINUTE / 2) == Again(at)  # the daemon looks every half a minute
    assert isinstance(verdict(at + 2 * MINUTE), NotAgain)
    assert verdict(at, next_due=at) == NotAgain("the next backup is due before that")
    none = RetryRules(0, 900.0, 4 * 3600.0, (), "UTC")
    assert verdict(at, none) == NotAgain("the job no longer has retries")
