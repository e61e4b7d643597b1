"""A drill of a moment: what was restored is at the moment exactly, and has the canary rows of it, or it is found out.

All of it is real: the server, its client program that receives, the commands as a person types them.
"""

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime

import pytest

from backupd import wiring
from backupd.catalogue.store import Catalogue
from backupd.cli.moment_drill import moment_to_prove
from backupd.config import Configuration, DrillCheckConfig
from backupd.host.filesystem import share_that_stays_free
from backupd.mysql.canary import MysqlCanary
from backupd.operations import context
from backupd.operations.restore.moment import moment_drill
from backupd.operations.restore.moment.moment_copy import RollForward
from backupd.operations.restore.moment.to_moment import RestoredMoment, restore_to_moment
from backupd.policy.moments import ToGtid
from backupd.vocabulary.errors import ServerError, UsageError
from backupd.vocabulary.records import Drill
from tests.archive_site import Site
from tests.contract.mariadb import mariadb, wait_until
from tests.held_archives import plan
from tests.hostile.backups import RUN

pytestmark = pytest.mark.thorough


@dataclass(frozen=True)
class History:
    """Minutes that a receiver would have written, and other work between them."""

    site: Site
    minutes: list[str]  # the GTID of each
    work: list[str]  # and of what was done after it
    until: datetime

    def opened(self) -> tuple[Configuration, Catalogue]:
        configuration = context.configuration(self.site.configuration)
        return configuration, context.own_catalogue(configuration)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Iterator[History]:
    """A backup with a minute of before it, and four behind it, logged as statements and as rows."""
    with mariadb("--gtid-strict-mode=1") as server:
        site = Site(tmp_path_factory.mktemp("site"), server)
        site.configuration.write_text(f"{site.configuration.read_text()}\n[jobs.nightly.drill]\nmoment = 'random'\n")
        canary = MysqlCanary(server.connect())
        canary.minute()
        site.back_up()
        minutes: list[str] = []
        work: list[str] = []
        with site.archiving():
            for number in range(4):
                with server.session() as root:
                    root.execute(f"SET GLOBAL binlog_format = {'ROW' if number > 1 else 'MIXED'}")
                    canary.minute()
                    began = root.value("SELECT NOW()")
                    minutes.append(root.value("SELECT @@global.gtid_binlog_pos") or "")
                    wait_until(lambda began=began: root.value("SELECT NOW()") != began)  # type: ignore[misc]
                    root.execute(f"INSERT INTO t.innodb (v) VALUES ('minute {number}')")
                    work.append(root.value("SELECT @@global.gtid_binlog_pos") or "")
                wait_until(lambda: site.stored(work[-1]))
        yield History(site, minutes, work, datetime.now(UTC))


def drilled(
    history: History,
    monkeypatch: pytest.MonkeyPatch,
    gtid: str,
    *,
    restored: str | None = None,
    checks: tuple[DrillCheckConfig, ...] = (),
) -> Drill:
    """A drill of the moment; what is restored is that of another transaction, where one is named."""
    configuration, opening = history.opened()
    with opening as catalogue:
        _, wanted = moment_to_prove(
            configuration, catalogue, ToGtid(gtid), run_id=None, job="nightly", target=None, identities=None
        )
        if restored is not None:
            other = plan([wanted.plan.backup], list(catalogue.segments("nightly")), ToGtid(restored), now=history.until)

            def spoilt(forward: RollForward, *given: object, **how: object) -> RestoredMoment:
                return restore_to_moment(replace(forward, plan=other), *given, **how)  # type: ignore[arg-type]

            monkeypatch.setattr(moment_drill, "restore_to_moment", spoilt)
        tools = wiring.host_tools(configuration, catalogue.identity().name)
        found = moment_drill.drill_to_moment(wanted, tools, checks=checks)
        assert list(tools.places.staging.iterdir()) == []
    return found


def test_a_moment_that_is_drawn_is_proven_and_on_record_with_its_name(history: History) -> None:
    """As the schedule starts it: the job's `drill.moment` says so."""
    site = history.site
    done = site.run("drill", "--job", "nightly")
    (drawn,) = [line for line in done.stderr.splitlines() if "drawn with seed " in line]
    moment = drawn.partition("drawn with seed ")[2].partition(": ")[2]
    assert f"drill to {moment}: proven in" in done.stdout
    shown = json.loads(site.run("show", RUN, "--json").stdout)["drills"][-1]
    assert (shown["moment"]["name"], shown["status"]) == (moment, "proven")
    names = ["restore", "gtid", "canary minutes", "tables", "clean shutdown"]
    assert [check["name"] for check in shown["checks"]] == names
    assert f"to {moment}: restored and started: 5 of 5 checks" in site.run("show", RUN).stdout
    assert f"yes, to {moment}" in site.run("history").stdout
    assert f"proven to {moment}, " in site.run("status", "nightly").stdout
    assert f"to {moment}" in site.run("report", "--evidence", "--since", "1d", "--json").stdout


def test_the_rows_of_a_moment_are_those_of_its_log(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = "SELECT MAX(at) FROM backupd_canary.minutes"
    fresh = DrillCheckConfig(name="fresh", sql=newest, newer_than_seconds=600.0)
    drill = drilled(history, monkeypatch, history.minutes[3], checks=(fresh,))
    assert drill.ok, drill.checks
    assert drill.to_moment == f"to GTID {history.minutes[3]}"
    found = {check.name: check.found for check in drill.checks}
    assert found["canary minutes"].startswith("4 rows since the backup, the last of ")
    assert found["gtid"] == history.minutes[3]


@pytest.mark.parametrize(
    ("restored", "said"),
    [(2, "with the row of"), (0, "without the row of")],
    ids=["one transaction too many", "what a segment has is left out"],
)
def test_what_was_restored_wrongly_is_found_by_the_canary_rows(
    history: History, monkeypatch: pytest.MonkeyPatch, restored: int, said: str
) -> None:
    drill = drilled(history, monkeypatch, history.work[1], restored=history.minutes[restored])
    wrong = {check.name: check.found for check in drill.checks if not check.ok}
    assert wrong.keys() == {"gtid", "canary minutes"}
    assert wrong["canary minutes"].startswith(said)
    assert wrong["gtid"] == history.minutes[restored]


def test_without_room_for_the_log_and_for_others_a_moment_is_not_drilled(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _path: usage._replace(free=share_that_stays_free(usage.total)))
    with pytest.raises(UsageError, match="must stay free"):
        drilled(history, monkeypatch, history.work[1])


def test_a_host_without_a_server_of_the_series_says_nothing_of_the_moment(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.mysql.server_programs._programs", lambda _flavour, _folders: iter(()))
    with pytest.raises(ServerError, match="server is installed here; found: none"):
        drilled(history, monkeypatch, history.minutes[3])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--to-time", "random", "--to-latest"), "a moment is either drawn or named"),
        (("--seed", "7"), "--seed belongs to --to-time random"),
        (("--to-time", "2020-01-01"), "the oldest good backup is of"),
        ((RUN, "--job", "nightly"), "both a run and a job were given"),
    ],
)
def test_a_moment_that_cannot_be_drilled_is_refused(history: History, words: tuple[str, ...], sentence: str) -> None:
    refused = history.site.run("drill", *words, expect=2)
    assert sentence in refused.stderr
    assert "hint: " in refused.stderr
