"""The JSON is what `/openapi.json` says, whatever is asked: schemathesis asks, over a real socket."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from hypothesis import settings

from tests.share import seeded

QUESTIONS = seeded(60, usual=12)  # for each path, beside those that follow from its description
# What counts as refused: as schemathesis has it, and an address that is too long, which may be a fault of its own.
REFUSED = """\
[checks.negative_data_rejection]
expected-statuses = [400, 401, 403, 404, 405, 406, 409, 414, 415, 422, 428, 429, "5XX"]
"""


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_nothing_that_can_be_asked_is_a_bug(address: str, tmp_path: Path) -> None:
    """As described and otherwise, with methods and headers that nobody described; answers are held to their schema."""
    program = Path(sys.executable).with_name("schemathesis")
    (tmp_path / "schemathesis.toml").write_text(REFUSED)
    options = ["--no-color", f"--max-examples={QUESTIONS}", "--generation-database=none"]
    options += ["--seed=1"] if settings().derandomize else []  # as every property: in CI the same questions every time
    asked = subprocess.run(
        [program, "run", f"{address}/openapi.json", *options], cwd=tmp_path, capture_output=True, text=True, check=False
    )

    assert asked.returncode == 0, asked.stdout
    assert "No issues found" in asked.stdout
    paths = httpx.get(f"{address}/openapi.json").json()["paths"]
    assert f"Tested: {len(paths)}" in asked.stdout


def test_the_document_names_every_question_and_asks_for_nothing_but_looking(browser: httpx.Client) -> None:
    paths = browser.get("/openapi.json").json()["paths"]

    assert {
        "/api/jobs",
        "/api/targets",
        "/api/runs",
        "/api/runs/{run_id}",
        "/api/impact",
        "/api/schedule",
    } <= paths.keys()
    assert {method for path in paths.values() for method in path} == {"get"}


def test_the_document_tells_how_any_question_can_be_refused(browser: httpx.Client) -> None:
    paths = browser.get("/openapi.json").json()["paths"]

    for path in paths.values():
        assert {"401", "414", "421", "422", "503"} <= path["get"]["responses"].keys()
    refused = browser.get("/api/impact", params={"points": "1" * 5000})
    assert (refused.status_code, refused.json().keys()) == (414, {"message", "hint"})


def test_runs_are_read_page_by_page(browser: httpx.Client) -> None:
    seen, before = [], None
    while True:
        asked = {"limit": "1", **({"before": before} if before else {})}
        page = browser.get("/api/runs", params=asked).json()
        seen += [run["run_id"] for run in page["runs"]]
        before = page["before"]
        if before is None:
            break

    assert seen == ["going", "bad", "good"]


def test_a_job_says_what_runs_and_how_long_it_still_takes(browser: httpx.Client) -> None:
    jobs = {job["job"]: job for job in browser.get("/api/jobs").json()["jobs"]}

    (going,) = jobs["nightly"]["running"]
    assert (going["run_id"], going["alive"], going["progress"]["done"]) == ("going", True, 25 << 20)
    assert going["remaining_seconds"] == pytest.approx(145)  # 75 MiB at 512 KiB/s, seen 5 s before
    assert jobs["nightly"]["next_due"].keys() == {"backup", "drill"}
    assert [alarm["kind"] for alarm in jobs["shop"]["alarms"]] == ["failed", "overdue", "missed"]
    assert (jobs["new"]["paused"], jobs["new"]["last_good_at"]) == (True, None)


def test_a_run_is_told_whole(browser: httpx.Client) -> None:
    run = browser.get("/api/runs/good").json()

    assert (run["status"], run["lock"]["hold_seconds"], run["backups"][0]["target"]) == ("success", 0.031, "disk")
    assert len(run["samples"]) == 5


@pytest.mark.parametrize("run_id", ["goo", "latest", "latest:nightly", "nothing", "GOOD"])
def test_a_run_is_named_in_full(browser: httpx.Client, run_id: str) -> None:
    answer = browser.get(f"/api/runs/{run_id}")

    assert (answer.status_code, answer.json()["message"]) == (404, f"there is no run {run_id}")


def test_impact_is_told_oldest_first_and_of_good_backups_only(browser: httpx.Client) -> None:
    runs = browser.get("/api/impact").json()["runs"]

    assert [(run["run_id"], run["penalty_first"], run["penalty_settled"]) for run in runs] == [("good", 4.0, 1.25)]
