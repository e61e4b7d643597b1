"""Benches in the record: listed, shown, followed, cancelled and recovered like other runs, and never a backup."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator

import pytest

from backupd.config import load
from backupd.host.signals import cancellable
from backupd.vocabulary.errors import Cancelled, ExitStatus, ProbeError
from backupd.vocabulary.records import RunKind, RunStatus
from tests.cli.terminal import Terminal
from tests.fakes.benched import a_bench
from tests.fakes.measured import measurement
from tests.story.world import World


@pytest.fixture
def benched(terminal: Terminal, world: World) -> Terminal:
    """The same after a backup, `r1`; a bench, `b1`, with its probe `b1-1`; and one that failed, `b2`."""
    world.back_up("r1")
    with world.catalogue() as catalogue:
        with catalogue.open_run("", "", run_id="b1", kind=RunKind.BENCH) as run:
            with catalogue.open_run("", "", run_id="b1-1", kind=RunKind.PROBE) as probe:
                probe.measured(measurement())
            run.benched(a_bench())
        with contextlib.suppress(ProbeError), catalogue.open_run("", "", run_id="b2", kind=RunKind.BENCH):
            raise ProbeError("sysbench failed", hint="see the kernel's log")
    return terminal


@pytest.mark.parametrize("wanted", ["b1", "b1-1", "b1-"])
def test_a_bench_s_log_is_its_probes_too(benched: Terminal, world: World, wanted: str) -> None:
    (world.base / "log").mkdir(exist_ok=True)
    (world.base / "log" / "b1.log").write_text("what the bench said\n")
    ended = benched.run("log", wanted)
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "what the bench said\n")
    assert ("b1-1 is a probe of bench b1" in ended.stderr) == (wanted != "b1")


def test_a_probe_of_no_bench_has_no_other_s_log(benched: Terminal, world: World) -> None:
    with world.catalogue() as catalogue:
        for run_id in ("r1-1", "nothing-1"):
            with catalogue.open_run("", "", run_id=run_id, kind=RunKind.PROBE) as probe:
                probe.measured(measurement())
            ended = benched.run("log", run_id)
            assert ended.status == ExitStatus.USAGE
            assert f"the log of run {run_id} cannot be read" in ended.stderr


@contextlib.contextmanager
def bench_at_work(world: World, then: Callable[[], None]) -> Iterator[int]:
    """A process is at a bench, `b3`, while it does that; it ends as a bench does, or at once where it is told to."""
    alive, tell = os.pipe()
    child = os.fork()
    if child == 0:
        with (
            contextlib.suppress(Cancelled), cancellable(), world.catalogue() as catalogue,
            world.tools.claims.run("b3"), catalogue.open_run("", "", run_id="b3", kind=RunKind.BENCH),
        ):  # fmt: skip
            os.write(tell, b"!")
            then()
        os._exit(0)
    os.close(tell)
    assert os.read(alive, 1) == b"!"
    os.close(alive)
    try:
        yield child
    finally:
        os.waitpid(child, 0)


def wait_for_the_signal() -> None:
    time.sleep(30)


def die() -> None:
    os._exit(1)


# --- what cannot be ---------------------------------------------------------------------------------------------------


IMPOSSIBLE = [
    (["history", "--benches", "--probes"], "error: --probes and --benches cannot be combined"),
    (["history", "--benches", "--csv"], "error: --csv and --benches cannot be combined"),
    (["history", "nightly", "--benches"], "error: job nightly has no benches"),
    (["history", "--benches", "--since", "yesterday"], "error: --since: 'yesterday' is not a time"),
    (["compare", "b1", "r1"], "error: run b1 is a bench, not a backup\nhint: name two backups"),
    (["compare", "r1", "b1"], "error: run b1 is a bench, not a backup\nhint: name two backups"),
    (["compare", "b1", "b2"], "error: run b1 is a bench, not a backup\nhint: backupd bench compare b1 b2"),
    (["compare", "b1", "b1-1"], "error: run b1 is a bench, not a backup\nhint: name two backups"),
    (["compare", "b1-1", "b1-1"], "error: run b1-1 is a probe, not a backup\nhint: backupd probe --compare b1-1 b1-1"),
    (["show", "b"], "error: more than one run begins with b: b1, b1-1, b2"),
    (["cancel", "b1"], "error: run b1 has ended (status success)"),
    (["pin", "b1", "--note", "x"], "error: run b1 has no backup to pin"),
    (["verify", "b1"], "error: run b1 has no backup"),
    (["drill", "b1"], "error: run b1 has no backup"),
    (["restore", "b1", "--to", "/nowhere"], "error: run b1 has no backup"),
]


def test_what_cannot_be_done_with_a_bench_is_status_2_with_a_sentence(benched: Terminal) -> None:
    for arguments, sentence in IMPOSSIBLE:
        ended = benched.run(*arguments)
        assert ended.status == ExitStatus.USAGE, arguments
        assert sentence in ended.stderr, arguments
        assert "hint: " in ended.stderr


# --- history and show -------------------------------------------------------------------------------------------------


def test_history_lists_benches_only_when_asked_and_then_nothing_else(benched: Terminal) -> None:
    assert [run["run_id"] for run in benched.run("history", "--json").document["runs"]] == ["r1"]
    assert [one["run_id"] for one in benched.run("history", "--probes", "--json").document["probes"]] == ["b1-1"]
    documents = benched.run("history", "--benches", "--json").document["benches"]
    assert [(one["run_id"], one["status"], "samples" in one) for one in documents] == [
        ("b2", "failed", False),
        ("b1", "success", False),
    ]
    head, failed, good = benched.run("history", "--benches").stdout.splitlines()
    assert head.startswith("RUN ")
    assert failed.startswith("b2 ")
    assert good.startswith("b1 ")
    assert "linear, 2 stripes, 3 stripes" in good
    assert good.endswith("3 stripes: 3.0x sequential writes")


def test_history_of_benches_is_what_was_asked_for(benched: Terminal) -> None:
    for options, expected in (
        (["--status", "failed"], ["b2"]),
        (["--limit", "1"], ["b2"]),
        (["--since", "1h"], ["b2", "b1"]),
        (["--until", "1h"], []),
    ):
        found = benched.run("history", "--benches", *options, "--json").document["benches"]
        assert [one["run_id"] for one in found] == expected, options


def test_a_history_without_a_bench_says_so(terminal: Terminal) -> None:
    assert terminal.run("history", "--benches").stdout == "no bench yet\n"
    assert terminal.run("history", "--benches", "--since", "7d").stdout == "no matching bench\n"
    assert terminal.run("history", "--benches", "--json").document["benches"] == []


def test_show_of_a_bench_is_all_that_it_found(benched: Terminal) -> None:
    document = benched.run("show", "b1", "--json").document
    assert (document["run_id"], document["status"]) == ("b1", "success")
    assert len(document["cells"]) == len(a_bench().cells)
    assert len(document["samples"]) == len(a_bench().samples)
    shown = benched.run("show", "b1").stdout
    for said in ("b1", "linear", "striped-3x64k", "labvg"):
        assert said in shown


def test_show_of_a_bench_that_failed_is_its_error(benched: Terminal) -> None:
    assert "sysbench failed" in benched.run("show", "b2").stdout
    assert benched.run("show", "b2", "--json").document["error"]["message"] == "sysbench failed"


def test_the_report_and_the_metrics_know_of_backups_only(benched: Terminal) -> None:
    (job,) = benched.run("report", "--json").document["jobs"]
    assert (job["job"], job["runs"]) == ("nightly", 1)
    metrics = benched.run("metrics").stdout
    assert 'backupd_runs_total{backup_job="nightly",result="good"} 1.0' in metrics
    assert 'backup_job=""' not in metrics


# --- like any other run -----------------------------------------------------------------------------------------------


def test_cancel_ends_a_live_bench_and_waits_for_its_end(terminal: Terminal, world: World) -> None:
    with bench_at_work(world, wait_for_the_signal):
        ended = terminal.run("cancel", "b3")
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "run b3 was cancelled\n")
    assert world.row("b3").status is RunStatus.CANCELLED


def test_recover_ends_a_bench_that_died(terminal: Terminal, world: World) -> None:
    with bench_at_work(world, die):
        pass
    assert world.row("b3").status is RunStatus.RUNNING
    ended = terminal.run("recover")
    assert ended.status == ExitStatus.OK
    assert ended.stdout.startswith("run b3: dead, cleaned up\n")
    error = world.row("b3").error
    assert error is not None
    assert error.code == "died"
    assert terminal.run("recover").stdout == "nothing to recover\n"


def test_the_log_of_a_bench_is_there(benched: Terminal) -> None:
    logs = load(benched.configuration).paths.log
    logs.mkdir(parents=True, exist_ok=True)
    (logs / "b1.log").write_text("04:00:00 INFO building linear\n")
    assert benched.run("log", "b1").stdout == "04:00:00 INFO building linear\n"


def test_the_audit_chain_tells_of_benches_and_is_sound(benched: Terminal) -> None:
    rows = benched.run("audit", "list").stdout.splitlines()[1:]
    assert [row.split()[3:5] for row in rows][3:] == [
        ["run-started", "b1"], ["run-started", "b1-1"], ["run-ended", "b1-1"], ["run-ended", "b1"],
        ["run-started", "b2"], ["run-ended", "b2"],
    ]  # fmt: skip
    assert "kind: bench" in rows[3]
    assert "nothing is missing or changed" in benched.run("audit", "verify").stdout
