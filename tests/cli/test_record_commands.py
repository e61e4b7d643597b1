"""The record as a person asks for it: history, compare, report, audit."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from backupd.catalogue.database import direct
from backupd.config import load
from backupd.vocabulary.errors import ExitStatus
from tests.cli.terminal import Terminal
from tests.story.world import World

YESTERDAY, IN_TWO_DAYS = (f"{datetime.now(UTC) + timedelta(days=days):%Y-%m-%d}" for days in (-1, 2))


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A host with a good run, `r1`, and one that failed, `r2`."""
    world = World(tmp_path_factory.mktemp("ran"))
    world.back_up("r1")
    world.database.refuses_lock = True
    assert world.try_to_back_up("r2") is not None
    return world


@pytest.fixture
def two_runs(terminal: Terminal, world: World, ran: World) -> Terminal:
    """The same with what those two runs have left: a copy, to do with as one likes."""
    world.go_on_from(ran)
    return terminal


def listed(terminal: Terminal, *options: str) -> list[str]:
    return [run["run_id"] for run in terminal.run("history", *options, "--json").document["runs"]]


# --- what cannot be ---------------------------------------------------------------------------------------------------


IMPOSSIBLE = [
    (["history", "--since", "yesterday"], "error: --since: 'yesterday' is not a time"),
    (["history", "--since", ""], "error: --since: '' is not a time"),
    (["history", "--since", "5"], "error: --since: '5' is not a time"),
    (["history", "--since", "2026-02-30"], "error: --since: '2026-02-30' is not a time"),
    (["history", "--since", "99999999d"], "error: --since: '99999999d' is not a time"),
    (["history", "--since", "0001-01-01T00:00+14:00"], "error: --since: '0001-01-01T00:00+14:00' is not a time"),
    (["history", "--since", "2999-01-01"], "error: --since 2999-01-01 is in the future"),
    (["history", "--since", "2026-01-02", "--until", "2026-01-01"], "error: --since"),
    (["history", "--until", "x"], "error: --until: 'x' is not a time"),
    (["history", "--csv", "--json"], "error: --csv and --json cannot be combined"),
    (["history", "--csv", "--probes"], "error: --csv and --probes cannot be combined"),
    (["history", "--status", "well"], "'well' is not one of"),
    (["history", "weekly"], "error: no job 'weekly'"),
    (["report", "weekly"], "error: no job 'weekly'"),
    (["report", "--since", "2999-01-01"], "error: --since 2999-01-01 is in the future"),
    (["report", "--html", "/no/such/folder/r.html"], "error: /no/such/folder/r.html could not be written"),
    (["compare", "r1", "nope"], "error: no run nope"),
    (["compare", "r1", "r1"], "error: r1 and r1 are the same run"),
    (["audit", "list", "--since", "2999-01-01"], "error: --since 2999-01-01 is in the future"),
]


def test_what_cannot_be_is_status_2_with_a_sentence(two_runs: Terminal) -> None:
    for arguments, sentence in IMPOSSIBLE:
        ended = two_runs.run(*arguments)
        assert ended.status == ExitStatus.USAGE, arguments
        assert sentence in ended.stderr
        assert "hint: " in ended.stderr or "Usage: " in ended.stderr


def test_an_empty_catalogue_is_no_reason_to_fail(terminal: Terminal, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    for arguments, said in (
        (["history", "--since", "7d"], "no matching run\n"),
        (["report", "--html", str(page)], "no run since 90d\n"),
        (["audit", "list"], "no event yet\n"),
        (["audit", "verify"], "audit chain: 0 rows\n"),
    ):
        ended = terminal.run(*arguments)
        assert ended.status == ExitStatus.OK
        assert ended.stdout.startswith(said)
    assert "No runs." in page.read_text()
    assert terminal.run("report", "--json").document == {"schema": 1, "jobs": []}
    assert len(terminal.run("history", "--csv").stdout.splitlines()) == 1


# --- history ----------------------------------------------------------------------------------------------------------


ASKED: list[tuple[list[str], list[str]]] = [
    ([], ["r2", "r1"]),
    (["--since", "1h"], ["r2", "r1"]),
    (["--since", YESTERDAY, "--until", IN_TWO_DAYS], ["r2", "r1"]),
    (["--until", "1h"], []),
    (["--until", "2026-01-01T00:00+05:00"], []),
    (["--status", "failed"], ["r2"]),
    (["--status", "success", "--status", "failed"], ["r2", "r1"]),
    (["--status", "busy"], []),
    (["nightly", "--status", "success", "--since", "1h"], ["r1"]),
]


def test_history_is_what_was_asked_for(two_runs: Terminal) -> None:
    for options, expected in ASKED:
        assert listed(two_runs, *options) == expected, options


def test_history_as_csv_has_a_header_and_what_each_run_cost(two_runs: Terminal) -> None:
    failed, good = csv.DictReader(io.StringIO(two_runs.run("history", "--csv").stdout))
    assert (failed["run_id"], failed["status"], failed["error"]) == ("r2", "failed", "lock-not-granted")
    assert failed["stored_bytes"] == ""
    assert (good["run_id"], good["status"], good["copies"]) == ("r1", "success", "1")
    shown = two_runs.run("show", "r1", "--json").document
    assert float(good["lock_hold_seconds"]) == shown["lock"]["hold_seconds"]
    assert float(good["penalty_initial_ratio"]) == shown["penalty"]["initial_ratio"]
    assert float(good["penalty_settled_ratio"]) == shown["penalty"]["settled_ratio"]
    assert int(good["stored_bytes"]) == shown["backup"]["bytes_stored"]


# --- show -------------------------------------------------------------------------------------------------------------


def test_show_draws_the_phases_and_names_the_log_where_there_is_one(two_runs: Terminal) -> None:
    logs = load(two_runs.configuration).paths.log
    logs.mkdir(parents=True, exist_ok=True)
    without = two_runs.run("show", "r1").stdout
    assert "the server was locked" in without
    assert "log: " not in without
    (logs / "r1.log").write_text("04:00:00 INFO begun\n")
    assert f"\nlog: {logs / 'r1.log'}\n" in two_runs.run("show", "r1").stdout
    assert "log: " not in two_runs.run("show", "r2").stdout


# --- compare and report -----------------------------------------------------------------------------------------------


def test_compare_shows_both_runs_and_in_what_they_differ(two_runs: Terminal) -> None:
    said = two_runs.run("compare", "r1", "r2").stdout
    assert "a:  r1  nightly" in said
    assert "status  success" in said
    document = two_runs.run("compare", "r1", "r2", "--json").document
    assert {"name": "status", "a": "success", "b": "failed"} in document["differs"]


def test_report_tells_what_became_of_runs_and_what_they_cost(two_runs: Terminal, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    ended = two_runs.run("report", "nightly", "--html", str(page))
    assert ended.status == ExitStatus.OK
    assert "nightly: 2 runs from" in ended.stdout
    assert "1 good, 1 failed" in ended.stdout
    assert "lock held" in ended.stdout
    assert f"wrote {page}" in ended.stderr
    assert "<h2>nightly</h2>" in page.read_text()
    (job,) = two_runs.run("report", "--json").document["jobs"]
    assert (job["job"], job["runs"], job["outcomes"]) == ("nightly", 2, {"success": 1, "failed": 1})


# --- audit ------------------------------------------------------------------------------------------------------------


def test_audit_list_tells_what_happened_in_its_order(two_runs: Terminal, world: World) -> None:
    head, *rows = two_runs.run("audit", "list").stdout.splitlines()
    assert head.split()[0] == "ROW"
    assert [row.split()[3:5] for row in rows] == [
        ["key-known", world.name],
        ["run-started", "r1"], ["run-ended", "r1"], ["run-started", "r2"], ["run-ended", "r2"],
    ]  # fmt: skip
    entries = two_runs.run("audit", "list", "--limit", "1", "--json").document["entries"]
    assert [(entry["row"], entry["subject"], entry["detail"]["status"]) for entry in entries] == [(5, "r2", "failed")]
    assert two_runs.run("audit", "list", "--since", "1h", "--json").document["entries"][0]["row"] == 1


def test_audit_verify_is_content_with_what_nobody_touched(two_runs: Terminal) -> None:
    ended = two_runs.run("audit", "verify")
    assert (ended.status, ended.stderr) == (ExitStatus.OK, "")
    assert ended.stdout == ("audit chain: 5 rows\ntarget vault: 1 manifest compared\nnothing is missing or changed\n")
    document = two_runs.run("audit", "verify", "--json").document
    assert (document["sound"], document["flaws"]) == (True, [])


def test_audit_verify_is_status_9_where_rows_were_cut_off(two_runs: Terminal, world: World) -> None:
    with direct(world.places.catalogue, busy_timeout_seconds=1) as connection:
        connection.execute("DROP TRIGGER audit_no_delete")
        connection.execute("DELETE FROM audit")
    ended = two_runs.run("audit", "verify")
    assert ended.status == ExitStatus.VERIFICATION
    assert "NOT RIGHT: the manifest of run r1 on target vault was written when the audit chain ended" in ended.stdout
    assert "error: the audit trail is broken: " in ended.stderr
    ended = two_runs.run("audit", "verify", "--json")
    assert ended.status == ExitStatus.VERIFICATION
    assert json.loads(ended.stdout)["sound"] is False


def test_audit_verify_is_status_8_where_a_target_is_away(two_runs: Terminal, world: World) -> None:
    world.vault.rename(world.vault.with_name("elsewhere"))
    ended = two_runs.run("audit", "verify")
    assert ended.status == ExitStatus.TARGET
    assert "target vault: 0 manifests compared\n  could not be read: " in ended.stdout
    assert ended.stdout.endswith("\nin what could be read, nothing is missing or changed\n")
    document = json.loads(two_runs.run("audit", "verify", "--json").stdout)
    assert (document["sound"], document["flaws"]) == (False, [])


def test_audit_verify_of_a_row_that_was_changed_names_it(two_runs: Terminal, world: World) -> None:
    with direct(world.places.catalogue, busy_timeout_seconds=1) as connection:
        connection.execute("DROP TRIGGER audit_no_update")
        connection.execute("UPDATE audit SET subject = 'r7' WHERE number = 3")
    ended = two_runs.run("audit", "verify", "--target", "vault")
    assert ended.status == ExitStatus.VERIFICATION
    assert "row 3 of the audit chain is missing or was changed" in ended.stderr
