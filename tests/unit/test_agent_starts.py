"""A run that a control host asks for: its row comes first, it is started once, and each state that is told is so."""

import json
import os
import signal
import sqlite3
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.agent_records import AgentStart
from backupd.catalogue.store import Catalogue
from backupd.config import Configuration, HostConfig, JobConfig, PathsConfig
from backupd.config.targets import DirectoryConfig, TargetKind
from backupd.host.claims import Claims
from backupd.host.live_progress import LiveRuns, Progress
from backupd.host.marked_processes import variable_of
from backupd.host.process import detached, start_time
from backupd.mysql.role import ServerRole
from backupd.operations.agent.answering import AgentSurroundings, answered
from backupd.operations.agent.host_description import describe, told_by_servers
from backupd.operations.agent.starting import DetachedRuns, arguments, cancel, start
from backupd.operations.agent.states import AGENT_VARIABLE, mark_of, result_of, state_of
from backupd.policy.agent_protocol import Ask, Request, request_text
from backupd.vocabulary.errors import CatalogueUnavailable, CommandError, Refused, ServerError
from backupd.vocabulary.fleet import Role, StartOrder
from backupd.vocabulary.records import Phase, RunStatus
from backupd.vocabulary.servers import Flavour
from backupd.vocabulary.storage import Backup

ORDER = StartOrder("nightly", "r1", 1 << 20)


@dataclass
class Launched:
    """Starts nothing; remembers what it should have."""

    broken: bool = False
    orders: list[StartOrder] = field(default_factory=list)
    then: Callable[[], object] = lambda: None

    def start(self, order: StartOrder, mark: str) -> None:
        self.orders.append(order)
        if self.broken:
            raise CommandError("program not found: systemd-run", hint="install systemd")
        self.then()


@dataclass
class Host:
    """A catalogue, a configuration, and what was launched."""

    folder: Path
    catalogue: Catalogue
    launched: Launched = field(default_factory=Launched)

    @property
    def configuration(self) -> Configuration:
        return Configuration(
            paths=PathsConfig(run=self.folder / "run", log=self.folder / "log"),
            hosts={"db1": HostConfig(name="db1", socket=self.folder / "nowhere", user="root")},
            targets={
                name: DirectoryConfig(name=name, type=TargetKind.DIRECTORY, path=self.folder / name)
                for name in ("vault", "s3")
            },
            jobs={"nightly": JobConfig(name="nightly", host="db1", targets=("vault",))},
        )

    def start(self, order: StartOrder = ORDER) -> RunStatus | None:
        return start(self.configuration, self.catalogue, order, self.launched).status

    def state(self, run_id: str = "r1") -> RunStatus | None:
        return state_of(self.configuration, self.catalogue, run_id).status

    def asked(self, request: Request) -> bytes:
        """A control host's request; what is answered."""
        catalogue = nullcontext(self.catalogue)
        given = AgentSurroundings(lambda: self.configuration, lambda _: catalogue, lambda _: self.launched)
        return answered(request_text(request, protocol=1, version="0.9"), given)

    def died(self, order: StartOrder = ORDER) -> None:
        """An agent has written the row and was gone before anything else."""
        born = start_time(os.getpid()) or 0
        row = AgentStart(order.run_id, order.job, order.max_rate, datetime.now(UTC), os.getpid(), born - 1)
        assert self.catalogue.take_start(row)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    with Catalogue.open(tmp_path / "catalogue.sqlite") as catalogue:
        yield Host(tmp_path, catalogue)


def test_the_row_is_there_before_the_run_is_started(host: Host) -> None:
    seen = []
    host.launched.then = lambda: seen.append(host.catalogue.agent_start("r1"))
    assert host.start() is RunStatus.RUNNING  # this process may still start it
    assert [(row.job, row.max_rate) for row in seen if row is not None] == [("nightly", 1 << 20)]


def test_a_second_start_starts_nothing_whatever_became_of_the_first(host: Host) -> None:
    host.start()
    assert host.start() is RunStatus.RUNNING
    assert host.launched.orders == [ORDER]


def test_an_agent_that_died_before_the_run_began_has_used_the_id_up(host: Host) -> None:
    host.died()
    state = state_of(host.configuration, host.catalogue, "r1")
    assert state.status is RunStatus.FAILED
    assert state.error is not None
    assert state.error.message == "the run ended before it was recorded"
    assert host.start() is RunStatus.FAILED
    assert host.launched.orders == []
    told = result_of(host.configuration, host.catalogue, "r1")
    assert (told.job, told.host, told.status) == ("nightly", "db1", RunStatus.FAILED)


def test_a_run_that_cannot_be_started_is_failed_and_says_why(host: Host) -> None:
    host.launched.broken = True
    assert host.start() is RunStatus.FAILED
    error = state_of(host.configuration, host.catalogue, "r1").error
    assert error is not None
    assert (error.message, error.hint) == ("program not found: systemd-run", "install systemd")


def test_a_run_that_was_started_by_hand_is_not_started_again(host: Host) -> None:
    with suppress(ServerError), host.catalogue.open_run("nightly", "db1", run_id="r1"):
        raise ServerError("it is down")
    assert host.start() is RunStatus.FAILED
    assert host.launched.orders == []


def test_a_job_that_is_paused_is_not_started_and_one_that_was_started_before_is_told(host: Host) -> None:
    host.start()
    host.catalogue.pause("nightly", "")
    assert host.start() is RunStatus.RUNNING
    with pytest.raises(Refused, match="job nightly was paused"):
        host.start(replace(ORDER, run_id="r2"))
    assert host.catalogue.agent_start("r2") is None


def test_a_live_run_is_told_with_its_progress_and_a_dead_one_as_failed(host: Host) -> None:
    live = LiveRuns(host.configuration.paths.run)
    with suppress(ServerError), host.catalogue.open_run("nightly", "db1", run_id="r1"):
        live.tell("r1", Progress(Phase.COPY, 0.0, 0.0, done=10, total=40))
        state = state_of(host.configuration, host.catalogue, "r1")
        assert (state.status, state.phase, state.copied_bytes, state.expected_bytes) == (
            *(RunStatus.RUNNING, "copy"),
            *(10, 40),
        )
        raise ServerError("it is down")
    child = os.fork()
    if child == 0:
        run = host.catalogue.open_run("nightly", "db1", run_id="r2")
        run.__enter__()
        os._exit(9)
    os.waitpid(child, 0)
    state = state_of(host.configuration, host.catalogue, "r2")
    assert state.status is RunStatus.FAILED
    assert state.error is not None
    assert "`backupd recover`" in state.error.hint
    assert result_of(host.configuration, host.catalogue, "r2").status is RunStatus.FAILED


def test_a_beginning_of_an_id_is_no_id(host: Host) -> None:
    with suppress(ServerError), host.catalogue.open_run("nightly", "db1", run_id="r1-long"):
        raise ServerError("it is down")
    assert host.state("r1") is None


def test_what_was_started_is_ended_before_it_has_a_row(host: Host) -> None:
    host.died()
    mark = mark_of(host.catalogue, "r1")
    process = detached(["sleep", "60"], output=None, environment={AGENT_VARIABLE: mark})
    while variable_of(process.pid, AGENT_VARIABLE) != mark:  # /proc shows it a moment after the program was started
        os.sched_yield()
    assert host.state() is RunStatus.RUNNING
    other = detached(["sleep", "60"], output=None, environment={AGENT_VARIABLE: "elsewhere-0123abcd/r1"})
    cancel(host.configuration, host.catalogue, "r1")
    assert process.wait(30) == -15
    assert other.poll() is None
    other.kill()
    other.wait()
    assert host.state() is RunStatus.CANCELLED


def test_a_run_is_started_as_a_person_would_type_it_and_is_found_by_its_mark(host: Host, tmp_path: Path) -> None:
    assert arguments(ORDER) == ("run", "nightly", "--run-id", "r1", "--max-rate", "1048576")
    assert arguments(replace(ORDER, max_rate=None)) == ("run", "nightly", "--run-id", "r1")
    said = tmp_path / "log" / "r1.out.log"
    script = f'echo "$@" "${AGENT_VARIABLE}" "$SSH_ORIGINAL_COMMAND"'
    os.environ["SSH_ORIGINAL_COMMAND"] = "rm -rf /"
    DetachedRuns(("sh", "-c", script, "sh"), tmp_path / "log").start(ORDER, "here/r1")
    del os.environ["SSH_ORIGINAL_COMMAND"]
    while not said.read_text().endswith("\n"):
        os.sched_yield()
    assert said.read_text() == "run nightly --run-id r1 --max-rate 1048576 here/r1 \n"


# --- under systemd ---------------------------------------------------------------------------------------------------

SYSTEMD_RUN = """#!/bin/sh
cd $(dirname $0)
[ ! -e hangs ] || exec sleep 60
echo Job=7 >waiting
case " $* " in *" --no-block "*) ;; *) exec sleep 60;; esac
"""
SYSTEMCTL = """#!/bin/sh
cd $(dirname $0)
[ ! -e hangs ] || exec sleep 60
[ "$3" = backupd-run-r1.service ] || exit 1
echo ActiveState=inactive
[ ! -e waiting ] || cat waiting
"""


@dataclass
class Systemd:
    """A unit that it is asked for waits for others, and nothing answers while it hangs."""

    host: Host
    folder: Path
    patches: pytest.MonkeyPatch

    def start(self) -> RunStatus | None:
        """As an agent does that has ended then."""
        launcher = DetachedRuns(("backupd",), self.folder / "log")
        return start(self.host.configuration, self.host.catalogue, ORDER, launcher).status

    def hang(self) -> None:
        (self.folder / "hangs").touch()
        for module in ("backupd.host.launching", "backupd.operations.agent.starting"):
            self.patches.setattr(f"{module}.UNIT_SECONDS", 0.2)

    def forget(self) -> None:
        """The unit has gone, and never had a process."""
        (self.folder / "waiting").unlink()


@pytest.fixture
def systemd(host: Host, monkeypatch: pytest.MonkeyPatch) -> Systemd:
    folder = host.folder / "systemd"
    folder.mkdir()
    for name, script in (("systemd-run", SYSTEMD_RUN), ("systemctl", SYSTEMCTL)):
        (folder / name).write_text(script)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    monkeypatch.setattr("backupd.host.launching._BOOTED", folder)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("backupd.operations.agent.states.is_alive", lambda _process: False)  # this one is no agent
    return Systemd(host, folder, monkeypatch)


def test_a_run_whose_unit_waits_for_others_is_starting_until_the_unit_is_gone(host: Host, systemd: Systemd) -> None:
    assert systemd.start() is RunStatus.RUNNING
    assert state_of(host.configuration, host.catalogue, "r1").phase == "starting"
    systemd.forget()
    assert host.state() is RunStatus.FAILED


def test_a_run_is_not_called_failed_while_systemd_does_not_tell_of_its_unit(host: Host, systemd: Systemd) -> None:
    systemd.start()
    systemd.hang()
    assert host.state() is RunStatus.RUNNING
    cancel(host.configuration, host.catalogue, "r1")
    assert host.state() is RunStatus.CANCELLED


def test_a_run_that_waits_is_cancelled_at_once(host: Host, systemd: Systemd) -> None:
    systemd.start()
    assert cancel(host.configuration, host.catalogue, "r1").status is RunStatus.CANCELLED


def test_a_run_that_systemd_starts_although_it_hung_for_too_long_is_ended(host: Host, systemd: Systemd) -> None:
    systemd.hang()
    mark = mark_of(host.catalogue, "r1")
    process = detached(["sleep", "60"], output=None, environment={AGENT_VARIABLE: mark})
    while variable_of(process.pid, AGENT_VARIABLE) != mark:
        os.sched_yield()
    assert systemd.start() is RunStatus.FAILED
    assert process.wait(30) == -15


# --- what a host tells of itself -------------------------------------------------------------------------------------


def test_a_host_is_told_with_the_medians_of_its_last_good_runs(host: Host) -> None:
    for number, stored in enumerate((400, 100, 900)):
        with host.catalogue.open_run("nightly", "db1", run_id=f"r{number}") as run:
            run.complete((Backup("vault", "/vault", 1000, stored, 1, "ab" * 32),))
    host.catalogue.pause("nightly", "")
    (job,) = describe(host.configuration, host.catalogue).jobs
    assert (job.expected_bytes, job.paused, job.role) == (400, True, Role.UNKNOWN)
    assert job.expected_seconds is not None
    assert "cannot connect to the server" in job.problem
    assert job.last_good_at is not None


def test_a_run_of_which_every_copy_is_known_to_be_broken_is_not_the_last_good_one(host: Host) -> None:
    for number in (1, 2):
        with host.catalogue.open_run("nightly", "db1", run_id=f"r{number}") as run:
            run.complete(tuple(Backup(name, "/v", 1000, 7, 1, "ab" * 32) for name in ("vault", "s3")))
    first, second = (host.catalogue.run(run_id).started_at for run_id in ("r1", "r2"))

    def told() -> datetime | None:
        (job,) = describe(host.configuration, host.catalogue).jobs
        return job.last_good_at

    host.catalogue.found_broken("r2", "vault", "frame 7 differs")
    assert told() == second
    host.catalogue.found_broken("r2", "s3", "it is not there")
    assert told() == first
    for target in ("vault", "s3"):
        host.catalogue.found_broken("r1", target, "it is not there")
    assert told() is None


def test_a_run_that_is_on_no_target_any_more_is_not_the_last_good_one(host: Host) -> None:
    for run_id, target in (("r1", "vault"), ("r2", "vault"), ("r3", "burnt")):
        with host.catalogue.open_run("nightly", "db1", run_id=run_id) as run:
            run.complete((Backup(target, "/v", 1000, 7, 1, "ab" * 32),))
    host.catalogue.removed("r2", "vault", because="no longer on the target")
    (job,) = describe(host.configuration, host.catalogue).jobs
    assert job.last_good_at == host.catalogue.run("r1").started_at


def test_one_server_that_never_answers_keeps_no_other_from_being_told() -> None:
    released, works = threading.Event(), ServerRole(Role.SOURCE, Flavour.MARIADB, "1")

    def hang() -> ServerRole:
        released.wait()
        return works

    told = told_by_servers({"hangs": hang, "works": lambda: works}, within_seconds=0.5)
    released.set()
    assert told == {"hangs": "the server did not answer within 0.5 s", "works": works}


# --- the control host's last contact ---------------------------------------------------------------------------------


def test_a_contact_is_written_once_a_minute_and_one_of_a_clock_that_was_ahead_counts_no_more(host: Host) -> None:
    noon, catalogue = datetime(2026, 11, 26, 12, tzinfo=UTC), host.catalogue
    assert catalogue.control_host_asked_at("nightly") is None
    for seconds, known in ((0, 0), (59, 0), (60, 60), (86400, 86400), (120, 120), (119, 119)):
        catalogue.control_host_asked(["nightly"], at=noon + timedelta(seconds=seconds), backupd="0.9")
        assert catalogue.control_host_asked_at("nightly") == noon + timedelta(seconds=known)
    assert catalogue.control_host_asked_at("weekly") is None


def test_a_control_host_is_there_for_the_jobs_that_it_sees_to_and_for_no_other(host: Host) -> None:
    def asked(request: Request) -> None:
        given = AgentSurroundings(
            lambda: host.configuration, lambda _: nullcontext(host.catalogue), lambda _: Launched()
        )
        answered(request_text(request, protocol=1, version="0.9"), given)

    at = host.catalogue.control_host_asked_at
    asked(Request(Ask.DESCRIBE))  # `fleet check`
    asked(Request(Ask.STATUS, run_id="r1"))
    asked(Request(Ask.DESCRIBE, sees_to=("no such job here",)))
    asked(Request(Ask.DESCRIBE, sees_to=("weekly",)))
    assert (at("nightly"), at("weekly")) == (None, None)
    asked(Request(Ask.DESCRIBE, sees_to=("nightly", "weekly")))
    assert at("nightly") is not None
    assert at("weekly") is None  # this host has no such job


def test_who_starts_a_backup_sees_to_its_job(host: Host) -> None:
    host.asked(Request(Ask.START, "nightly", "r1"))
    assert host.catalogue.control_host_asked_at("nightly") is not None


# --- a catalogue that cannot be written ------------------------------------------------------------------------------


@pytest.fixture
def full(host: Host) -> Iterator[Host]:
    """The same host once its catalogue cannot be written any more: another process keeps the lock, as a full disk would
    keep the room.
    """
    host.start()
    path = host.folder / "catalogue.sqlite"
    with (
        Catalogue.open(path, busy_timeout_seconds=0.05) as impatient,
        closing(sqlite3.connect(path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(CatalogueUnavailable):
            impatient.control_host_asked(["nightly"], at=datetime.now(UTC), backupd="0.9")
        yield replace(host, catalogue=impatient)


def test_how_a_run_stands_is_told_where_the_contact_cannot_be_written(full: Host) -> None:
    for request in (Request(Ask.DESCRIBE, sees_to=("nightly",)), Request(Ask.STATUS, run_id="r1")):
        assert "error" not in json.loads(full.asked(request))


def test_a_run_is_ended_where_its_cancel_cannot_be_written(full: Host) -> None:
    run = subprocess.Popen(["sleep", "1000"], env={AGENT_VARIABLE: mark_of(full.catalogue, "r1")})
    try:
        assert "error" not in json.loads(full.asked(Request(Ask.CANCEL, run_id="r1")))
        assert run.wait(timeout=30) == -signal.SIGTERM
    finally:
        run.kill()
        run.wait()


def test_a_run_is_not_started_where_it_cannot_be_written(full: Host) -> None:
    refused = json.loads(full.asked(Request(Ask.START, "nightly", "r2")))
    assert refused["error"]["code"] == "catalogue-unavailable"
    assert [order.run_id for order in full.launched.orders] == ["r1"]


def test_a_run_that_the_catalogue_has_lost_keeps_its_host_busy_as_long_as_it_goes_on(host: Host) -> None:
    claims = Claims(host.configuration.paths.run)
    with claims.job("nightly", "20261126-shop-nightly"):
        assert [job.running for job in describe(host.configuration, host.catalogue).jobs] == ["20261126-shop-nightly"]
    with claims.pruning("nightly"):
        assert [job.running for job in describe(host.configuration, host.catalogue).jobs] == [""]
    assert [job.running for job in describe(host.configuration, host.catalogue).jobs] == [""]
