"""`backupd bench` as a person types it: what it refuses, what it says before it begins, and what can be seen later."""

import csv
import io
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from backupd import wiring
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import RunKind
from tests.cli.terminal import Terminal
from tests.fakes.benched import a_bench
from tests.story.bench_world import BenchWorld
from tests.story.world import World

PVS = "/dev/sdb,/dev/sdc,/dev/sdd"
LAYOUTS = ("bench", "layouts", "--vg", "labvg", "--pvs", PVS, "--size", "16M")
QUICK = (*LAYOUTS, "--widths", "3", "--table", "e3", "--repeat", "2", "--yes")


@pytest.fixture(autouse=True)
def _a_probe_of_a_bench_has_a_small_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.policy.bench_cost.PROBE_FILE_SIZE", 1 << 20)  # it is written, and copied by snapshots


@pytest.fixture
def benching(tmp_path: Path) -> BenchWorld:
    return BenchWorld(World(tmp_path))


@pytest.fixture
def terminal(benching: BenchWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return at(benching, monkeypatch, capsys)


def at(benching: BenchWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """A terminal of the host that is benched."""
    made = Terminal(benching.world, monkeypatch, capsys)
    monkeypatch.setattr(wiring, "host_tools", lambda configuration, machine: benching.tools)
    monkeypatch.setattr(wiring, "bench_tools", lambda machine: benching.bench_tools)
    return made


@contextmanager
def somebody_who_types(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Stdin is a pseudo-terminal at which this has been typed."""
    theirs, ours = os.openpty()
    os.write(theirs, answer)
    with os.fdopen(ours, encoding="utf-8") as stdin, monkeypatch.context() as patched:
        patched.setattr("sys.stdin", stdin)
        yield
    os.close(theirs)


def assert_untouched(benching: BenchWorld) -> None:
    """Nothing was made, and no row was written."""
    assert benching.world.left() == []
    assert benching.host.calls["create_scratch"] == 0
    with benching.world.catalogue() as catalogue:
        assert catalogue.benches() == []


# --- what cannot be --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("bench", "layouts"), "give a volume group or disks"),
        ((*LAYOUTS, "--md", "/dev/sdx,/dev/sdy"), "give a volume group or disks"),
        (("bench", "layouts", "--md", "/dev/sdx"), "one disk only"),
        (("bench", "layouts", "--md", "/dev/sdx,/dev/sdy", "--pvs", "/dev/sdb"), "omit --pvs"),
        ((*LAYOUTS, "--pvs", "/dev/sdb"), "/dev/sdb twice"),
        ((*LAYOUTS, "--widths", "two"), "not a list of whole numbers from 1"),
        ((*LAYOUTS, "--widths", "1"), "--widths are 2 or more"),
        ((*LAYOUTS, "--widths", "9"), "no 9 stripes"),
        ((*LAYOUTS, "--max-load", "nan"), "--max-load: nan is not a number from 0 up"),
        ((*LAYOUTS, "--stripe-sizes", "64q"), "is not a size"),
        ((*LAYOUTS, "--stripe-sizes", ","), "not a list of sizes"),
        ((*LAYOUTS, "--stripe-sizes", "48k"), "not a stripe size that LVM accepts"),
        ((*LAYOUTS, "--filesystem", "btrfs"), "btrfs"),
        ((*LAYOUTS, "--size", "0"), "is not a size"),
        ((*LAYOUTS, "--size", "1000000"), "not a multiple of"),
        ((*LAYOUTS, "--table", "e6"), "no table e6"),
        ((*LAYOUTS, "--table", ""), "no table given"),
        ((*LAYOUTS, "--table", "e5", "--records", "1k,300"), "not a valid block size"),
        ((*LAYOUTS, "--threads", "0"), "not a list of whole numbers from 1"),
        ((*LAYOUTS, "--run-id", "a/b"), "is not a valid run id"),
        (("bench", "show", "nothing"), "no bench nothing"),
        (("bench", "show", "nothing", "--table", "e9"), "no table e9"),
        (("bench", "compare", "one", "two"), "no bench one"),
    ],
)
def test_what_cannot_be_asked_for_is_told_and_touches_nothing(
    terminal: Terminal, benching: BenchWorld, arguments: tuple[str, ...], words: str
) -> None:
    ended = terminal.run(*arguments)
    assert ended.status == ExitStatus.USAGE
    assert words in ended.stderr
    assert "hint: " in ended.stderr
    assert ended.stdout == ""
    assert_untouched(benching)


@pytest.mark.parametrize("command", [LAYOUTS, ("bench", "show", "latest")], ids=["layouts", "show"])
def test_one_stdout_takes_one_kind_of_output(
    terminal: Terminal, benching: BenchWorld, command: tuple[str, ...]
) -> None:
    ended = terminal.run(*command, "--json", "--csv")
    assert ended.status == ExitStatus.USAGE
    assert "cannot both go to stdout" in ended.stderr
    assert ended.document["error"]["code"] == "usage-error"
    assert_untouched(benching)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("bench", "layouts", "--vg", "labvg", "--pvs", "/dev/sdb,/dev/sdq", "--yes"), "/dev/sdq: not a usable PV"),
        (("bench", "layouts", "--vg", "labvg", "--pvs", "/dev/sdb", "--yes"), "one PV only"),
        ((*LAYOUTS[:-1], "900G", "--yes"), "free extents"),
    ],
)
def test_what_this_host_has_not_is_refused_and_touches_nothing(
    terminal: Terminal, benching: BenchWorld, arguments: tuple[str, ...], words: str
) -> None:
    ended = terminal.run(*arguments)
    assert ended.status == ExitStatus.REFUSED
    assert words in ended.stderr
    assert "hint: " in ended.stderr
    assert_untouched(benching)


def test_a_program_that_is_missing_is_told_before_anything_is_asked(terminal: Terminal, benching: BenchWorld) -> None:
    benching.missing = "fio"
    ended = terminal.run(*QUICK, "--raw")
    assert ended.status == ExitStatus.REFUSED
    assert "fio is not installed" in ended.stderr
    assert "scratch volumes" not in ended.stderr
    assert_untouched(benching)


# --- whether it may --------------------------------------------------------------------------------------------------


def test_without_a_terminal_the_plan_is_shown_and_nothing_is_done(terminal: Terminal, benching: BenchWorld) -> None:
    ended = terminal.run(*LAYOUTS)
    assert ended.status == ExitStatus.USAGE
    assert "makes 3 scratch volumes in free extents of labvg; no existing volume is touched" in ended.stderr
    assert "striped-3x64k" in ended.stderr
    assert "confirmation is needed, and stdin is not a terminal" in ended.stderr
    assert "--yes" in ended.stderr
    assert_untouched(benching)


@pytest.mark.parametrize("answer", [b"n\n", b"\n", b"\x04", b"yesterday\n"], ids=["no", "return", "ctrl-d", "other"])
def test_every_answer_but_yes_is_no_and_leaves_no_trace(
    terminal: Terminal, benching: BenchWorld, monkeypatch: pytest.MonkeyPatch, answer: bytes
) -> None:
    with somebody_who_types(answer, monkeypatch):
        ended = terminal.run(*QUICK[:-1], "--json")
    assert ended.status == ExitStatus.CANCELLED
    assert "Continue? [y/N]" in ended.stderr
    assert "nothing was touched" in ended.stderr
    assert ended.document["error"]["code"] == "cancelled"
    assert_untouched(benching)


@pytest.mark.parametrize("answer", [b"y\n", b"Yes\n"])
def test_yes_goes_on(terminal: Terminal, benching: BenchWorld, monkeypatch: pytest.MonkeyPatch, answer: bytes) -> None:
    with somebody_who_types(answer, monkeypatch):
        ended = terminal.run(*QUICK[:-1], "--run-id", "b1")
    assert ended.status == ExitStatus.OK
    assert benching.record("b1").bench is not None


def test_ctrl_c_at_the_question_is_cancelled(
    terminal: Terminal, benching: BenchWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interrupted:
        def isatty(self) -> bool:
            return True

        def readline(self) -> str:
            raise KeyboardInterrupt

    monkeypatch.setattr("sys.stdin", Interrupted())
    assert terminal.run(*QUICK[:-1]).status == ExitStatus.CANCELLED
    assert_untouched(benching)


def test_the_plan_is_told_even_quietly_and_the_steps_are_not(terminal: Terminal) -> None:
    told = terminal.run("--quiet", *QUICK).stderr
    assert "makes 2 scratch volumes in free extents of labvg" in told
    assert "measures 4 loads (table e3)" in told
    assert "round 1 of 2" not in told


# --- what comes of it ------------------------------------------------------------------------------------------------


def test_a_person_sees_steps_verdict_and_tables(terminal: Terminal, benching: BenchWorld) -> None:
    ended = terminal.run(*QUICK)
    assert ended.status == ExitStatus.OK
    assert "striped-3x64k: write of 1 MiB, 1 thread, round 2 of 2" in ended.stderr
    assert "STRIPES" in ended.stdout
    assert "3 stripes" in ended.stdout
    assert benching.world.left() == []


def test_the_document_has_every_figure(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("backupd.load.disk_watch._SHORTEST_SECONDS", 1e-9)
    ended = terminal.run(*QUICK, "--json")
    assert ended.status == ExitStatus.OK
    json.loads(ended.stdout, parse_constant=pytest.fail)
    document = ended.document
    assert document["schema"] == 1
    assert [layout["name"] for layout in document["layouts"]] == ["linear", "striped-3x64k"]
    assert {(cell["layout"], cell["operation"]) for cell in document["cells"]} == {
        (layout, operation) for layout in ("linear", "striped-3x64k") for operation in ("write", "read")
    }
    assert document["samples"]


def test_csv_has_a_line_for_each_load(terminal: Terminal) -> None:
    lines = list(csv.DictReader(io.StringIO(terminal.run(*QUICK, "--csv").stdout)))
    assert {line["layout"] for line in lines} == {"linear", "striped-3x64k"}
    assert len(lines) == 4


def test_the_page_can_be_mailed(terminal: Terminal, tmp_path: Path) -> None:
    page = tmp_path / "bench.html"
    ended = terminal.run(*QUICK, "--html", str(page))
    assert ended.status == ExitStatus.OK
    assert "<svg" in page.read_text()
    assert f"wrote {page}" in ended.stderr


def test_a_page_that_cannot_be_written_loses_no_figure(terminal: Terminal, tmp_path: Path) -> None:
    ended = terminal.run(*QUICK, "--run-id", "b1", "--html", str(tmp_path / "nowhere" / "bench.html"))
    assert ended.status == ExitStatus.USAGE
    assert "could not be written" in ended.stderr
    assert "STRIPES" in terminal.run("bench", "show", "b1").stdout


def test_lists_with_commas_and_repeated_options_say_the_same(terminal: Terminal) -> None:
    together = terminal.run(*QUICK, "--table", "e4", "--json").document
    apart = terminal.run(
        *("bench", "layouts", "--vg", "labvg", *(word for pv in PVS.split(",") for word in ("--pvs", pv))),
        *("--size", "16M", "--widths", "3", "--table", "e3,E4", "--repeat", "2", "--yes", "--json"),
    ).document
    assert together["settings"] == apart["settings"]
    assert [cell["threads"] for cell in together["cells"]] == [cell["threads"] for cell in apart["cells"]]


def test_named_disks_are_benched_by_stripes_and_by_an_array(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benching = BenchWorld.with_disks(World(tmp_path))
    disks = ("bench", "layouts", "--md", "/dev/sdx,/dev/sdy", "--size", "16M", "--records", "8k,1M", "--repeat", "1")
    ended = at(benching, monkeypatch, capsys).run(*disks, "--run-id", "b1", "--yes", "--json")
    assert ended.status == ExitStatus.OK
    assert "on the whole of /dev/sdx, /dev/sdy, which are empty before and afterwards" in ended.stderr
    assert [layout["name"] for layout in ended.document["layouts"]] == ["striped-2x64k", "raid0-2x64k"]
    assert benching.world.left() == []


def test_a_bench_that_failed_says_so_in_its_document_and_is_compared_with_none(
    terminal: Terminal, benching: BenchWorld
) -> None:
    benching.host.fail("format")
    ended = terminal.run(*QUICK, "--run-id", "b1", "--json")
    assert ended.status == ExitStatus.SNAPSHOT
    assert ended.document["status"] == "failed"
    assert ended.document["error"]["message"] in ended.stderr
    assert benching.world.left() == []
    for arguments in (("bench", "compare", "b1", "b1"), ("bench", "show", "b1", "--csv")):
        later = terminal.run(*arguments)
        assert later.status == ExitStatus.USAGE
        assert "did not finish" in later.stderr


# --- later -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def two_benches(terminal: Terminal, benching: BenchWorld) -> Terminal:
    """Two are kept: the second was twice as fast."""
    with benching.world.catalogue() as catalogue:
        for run_id, faster in (("one", 1.0), ("two", 2.0)):
            with catalogue.open_run("", "", run_id=run_id, kind=RunKind.BENCH) as run:
                run.benched(a_bench(faster=faster))
    return terminal


def test_earlier_benches_are_shown_whole_or_by_table(two_benches: Terminal, tmp_path: Path) -> None:
    whole = two_benches.run("bench", "show", "one").stdout
    assert "THREADS" in whole
    only = two_benches.run("bench", "show", "one", "--table", "e3").stdout
    assert "STRIPES" in only
    assert "THREADS" not in only
    page = tmp_path / "e3.html"
    assert two_benches.run("bench", "show", "one", "--table", "e3", "--html", str(page)).status == ExitStatus.OK
    assert "E3: " in page.read_text()
    assert "E4: " not in page.read_text()
    assert two_benches.run("bench", "show", "latest", "--json").document["run_id"] == "two"


def test_two_benches_stand_side_by_side(two_benches: Terminal) -> None:
    compared = two_benches.run("bench", "compare", "one", "two")
    assert compared.status == ExitStatus.OK
    assert "2.00x" in compared.stdout
    assert two_benches.run("bench", "compare", "one", "two", "--json").document
