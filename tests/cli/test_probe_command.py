"""`backupd probe` as a person types it: what it prints, what it refuses and how, what of it can be seen later."""

import csv
import io
import json
import re
import textwrap
from pathlib import Path

import pytest

from backupd import wiring
from backupd.cli.probe_progress import disk_lines
from backupd.operations import context
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.gauges import FileLoad
from tests.cli.terminal import Terminal
from tests.fakes.lvm_host import pv_uuid
from tests.story.probe_world import ProbeWorld
from tests.story.world import World

VOLUME = ("probe", "--volume", "labvg/data")
QUICK = (*VOLUME, "--file-size", "64k", "--rewrite-size", "32k", "--seconds", "1")
ROW = {
    *("mode", "threads", "block_size", "chunk_size", "cow_pvs", "snapshots", "phase", "iops", "spread", "penalty"),
    *("cow_stripes", "repeats", "bytes_per_second", "latency_p95_ms", "reads_per_write", "writes_per_write"),
    *("cow_chunks_per_second", "pv_shares"),
}


@pytest.fixture
def probing(tmp_path: Path) -> ProbeWorld:
    return ProbeWorld(World(tmp_path))


@pytest.fixture
def terminal(probing: ProbeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    monkeypatch.setattr(wiring, "instruments", lambda: probing.instruments)
    monkeypatch.setattr(wiring, "mounted_volume", lambda name: probing.subject.find())
    return Terminal(probing.world, monkeypatch, capsys)


def test_the_document_is_the_table(terminal: Terminal) -> None:
    ended = terminal.run(*QUICK, "--json")
    assert ended.status == ExitStatus.OK
    document = ended.document
    assert document["schema"] == 1
    assert document["volume"]["name"] == "labvg/data"
    assert document["settings"]["chunk_size"] == 4096
    assert all(set(row) == ROW for row in document["rows"])
    assert [(row["mode"], row["phase"], row["penalty"]) for row in document["rows"]] == [
        ("direct", "baseline", None),
        ("direct", "first", 4.0),
        ("rewrite", "baseline", None),
        ("rewrite", "first", 4.0),
        ("rewrite", "settled", 1.0),
    ]


def test_a_person_sees_table_theory_and_curve(terminal: Terminal) -> None:
    ended = terminal.run(*QUICK)
    assert ended.status == ExitStatus.OK
    assert "4.00x" in ended.stdout
    assert "theory: 1 physical read" in ended.stdout
    assert "seconds since the snapshot" in ended.stdout
    assert "writes a file of 64.0 KiB there" in ended.stderr


def test_what_it_costs_is_told_even_quietly(terminal: Terminal) -> None:
    told = terminal.run("--quiet", *QUICK).stderr
    assert "writes a file of 64.0 KiB there" in told
    assert "takes 6 snapshots in all" in told
    assert "round 1" not in told


def test_csv_has_a_line_for_each_row(terminal: Terminal) -> None:
    lines = list(csv.DictReader(io.StringIO(terminal.run(*QUICK, "--csv").stdout)))
    assert [(line["mode"], line["phase"]) for line in lines][:2] == [("direct", "baseline"), ("direct", "first")]
    assert len(lines) == 5


def test_the_page_can_be_mailed(terminal: Terminal, tmp_path: Path) -> None:
    page = tmp_path / "probe.html"
    ended = terminal.run(*QUICK, "--html", str(page))
    assert ended.status == ExitStatus.OK
    assert "<svg" in page.read_text()
    assert f"wrote {page}" in ended.stderr


def test_a_page_that_cannot_be_written_loses_no_figure(terminal: Terminal, tmp_path: Path) -> None:
    ended = terminal.run(*QUICK, "--html", str(tmp_path / "nowhere" / "probe.html"))
    assert ended.status == ExitStatus.USAGE
    assert "could not be written" in ended.stderr
    assert "success" in terminal.run("history", "--probes").stdout


def test_earlier_probes_are_listed_shown_and_compared(terminal: Terminal) -> None:
    terminal.run(*QUICK, "--run-id", "one")
    terminal.run(*QUICK, "--chunk-sizes", "64k", "--run-id", "two")
    listed = terminal.run("history", "--probes").stdout.splitlines()
    assert [line.split()[0] for line in listed] == ["RUN", "two", "one"]
    assert "4.00x" in terminal.run("show", "one").stdout
    compared = terminal.run("probe", "--compare", "one", "two").stdout
    assert "64.0 KiB" in compared
    assert "4.0 KiB" in compared
    rows = terminal.run("probe", "--compare", "one", "two", "--json").document["rows"]
    assert rows[0]["iops_ratio"] == 1.0


def test_a_job_lends_its_settings(terminal: Terminal, probing: ProbeWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "_data_mount", lambda host: probing.subject.find())
    document = terminal.run("probe", "nightly", *QUICK[3:], "--json").document
    assert document["settings"]["chunk_size"] == 65536


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("probe",), "name a job or a volume"),
        (("probe", "nightly", "--volume", "labvg/data"), "name a job or a volume"),
        (("probe", "nobody"), "no job 'nobody'"),
        (("probe", "--volume", "data"), "is not a volume"),
        (("probe", "--volume", "labvg/"), "is not a volume"),
        ((*VOLUME, "--modes", "fast"), "no mode fast"),
        ((*VOLUME, "--modes", "read"), "no mode read"),
        ((*VOLUME, "--modes", ""), "no mode given"),
        ((*VOLUME, "--threads", "0"), "not a list of whole numbers from 1"),
        ((*VOLUME, "--threads", "1;2"), "not a list of whole numbers from 1"),
        ((*VOLUME, "--snapshots", "x"), "not a list of whole numbers from 1"),
        ((*VOLUME, "--block-size", "16q"), "is not a size"),
        ((*VOLUME, "--block-size", "100"), "not a valid block size"),
        ((*VOLUME, "--file-size", "20k"), "not a multiple of the block size"),
        ((*VOLUME, "--file-size", "64k"), "larger than the file"),
        ((*VOLUME, "--chunk-sizes", "4k,3k"), "3k is not a chunk size that LVM accepts"),
        ((*VOLUME, "--chunk-sizes", "1M"), "not a chunk size that LVM accepts"),
        ((*VOLUME, "--write-share", "0"), "not a valid share of writes"),
        ((*VOLUME, "--block-size", "9" * 5000), "is too large"),
        ((*VOLUME, "--threads", "9" * 5000), "not a list of whole numbers from 1"),
        ((*VOLUME, "--max-wait", "-1"), "--max-wait: -1 is not a number from 0 up"),
        ((*VOLUME, "--max-wait", "inf"), "--max-wait: inf is not a number from 0 up"),
        ((*VOLUME, "--max-load", "nan"), "--max-load: nan is not a number from 0 up"),
        ((*VOLUME, "--max-write-latency", "nan"), "--max-write-latency: nan is not a number from 0 up"),
        ((*VOLUME, "--threshold", "inf"), "--threshold: inf is not a number from 0 up"),
        ((*VOLUME, "--json", "--csv"), "cannot both"),
        ((*VOLUME, "--run-id", "a/b"), "is not a valid run id"),
        (("probe", "--compare", "one", "two"), "no probe one"),
        (("probe", "--compare", "one", "two", "--tune"), "--compare measures nothing"),
        ((*VOLUME, "--write"), "--write needs the recommendation of --tune"),
        ((*VOLUME, "--tune", "--write"), "no job was given"),
        ((*VOLUME, "--tune", "--repeat", "2"), "--tune needs more rounds"),
        ((*VOLUME, "--tune", "--snapshots", "1,2"), "one load on one snapshot"),
        ((*VOLUME, "--tune", "--reads"), "one load on one snapshot"),
        ((*VOLUME, "--tune", "--while-copying"), "one load on one snapshot"),
        ((*VOLUME, "--tune", "--threads", "1,4"), "one load on one snapshot"),
        ((*VOLUME, "--tune", "--modes", "direct,sync"), "one load on one snapshot"),
    ],
)
def test_what_cannot_be_asked_for_is_told_and_touches_nothing(
    terminal: Terminal, probing: ProbeWorld, arguments: tuple[str, ...], words: str
) -> None:
    ended = terminal.run(*arguments)
    assert ended.status == ExitStatus.USAGE
    assert words in ended.stderr
    assert "hint: " in ended.stderr
    assert probing.disk.calls == 0
    assert probing.world.host.calls["prepared"] == 0


@pytest.mark.parametrize("command", [("probe", "--volume", "labvg/data"), ("bench", "layouts", "--vg", "labvg")])
@pytest.mark.parametrize("seconds", ["0", "86401", "9" * 400])
def test_no_window_is_longer_than_a_day(
    terminal: Terminal, probing: ProbeWorld, command: tuple[str, ...], seconds: str
) -> None:
    ended = terminal.run(*command, "--seconds", seconds)
    assert ended.status == ExitStatus.USAGE
    assert "Invalid value for '--seconds'" in ended.stderr
    assert probing.disk.calls == 0


def test_a_probe_that_failed_says_so_in_its_document_and_in_the_list(terminal: Terminal, probing: ProbeWorld) -> None:
    probing.disk.fail_at_call = 3
    ended = terminal.run(*QUICK, "--json")
    assert ended.status == ExitStatus.PROBE
    assert ended.document["status"] == "failed"
    assert "fail at call 3" in ended.document["error"]["message"]
    assert "failed" in terminal.run("history", "--probes").stdout
    compared = terminal.run("probe", "--compare", "latest", "latest")
    assert compared.status == ExitStatus.USAGE
    assert "did not finish" in compared.stderr
    assert probing.world.left() == []


def test_a_host_without_a_configuration_can_be_probed(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The default places are root's; a test's are its own."""
    monkeypatch.delenv("BACKUPD_CONFIG", raising=False)
    monkeypatch.setattr(context, "DEFAULT_PATH", tmp_path / "nowhere.toml")
    monkeypatch.setattr(context, "locate", lambda explicit, environment: tmp_path / "nowhere.toml")
    configuration = context.configuration_or_defaults(None)
    assert configuration.jobs == {}
    ended = terminal.type("probe", "nightly")
    assert ended.status == ExitStatus.USAGE
    assert "no job" in ended.stderr


def test_the_document_has_no_figure_that_json_does_not_know(terminal: Terminal, probing: ProbeWorld) -> None:
    probing.disk.speed = lambda load: 0.0
    ended = terminal.run(*QUICK, "--json", "--repeat", "1", "--max-wait", "0")
    assert ended.status == ExitStatus.OK
    json.loads(ended.stdout, parse_constant=pytest.fail)


def test_each_disks_share_of_the_work_is_shown_while_it_goes_on() -> None:
    assert disk_lines({"/dev/sda": 30.0, "/dev/nvme0n1": 10.0}, 4.25) == [
        "  /dev/sda      ###############        75%      30 requests/s",
        "  /dev/nvme0n1  #####                  25%      10 requests/s",
        "  a write to the volume takes 4.2 ms",
    ]
    assert disk_lines({"/dev/sda": 0.0}, 0.0)[0].split() == ["/dev/sda", "0%", "0", "requests/s"]


def test_a_terminal_gets_a_live_display_and_keeps_the_bill(
    terminal: Terminal, probing: ProbeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    monkeypatch.setattr("rich.live.Live.update", lambda self, text: shown.append(str(text)))
    ended = terminal.run(*QUICK, "--repeat", "1")
    assert ended.status == ExitStatus.OK
    assert any("round 1: direct, 1 thread with a snapshot of 4 KiB chunks" in text for text in shown)
    assert "takes 2 snapshots in all" in ended.stderr


# --- --tune ----------------------------------------------------------------------------------------------------------

TUNE = ("--file-size", "64k", "--rewrite-size", "32k", "--seconds", "1", "--tune", "--chunk-sizes", "512k")


@pytest.fixture
def tuned(terminal: Terminal, probing: ProbeWorld, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Writes are three times as fast with the COW area on /dev/sde; the job's table has a comment."""

    def speed(load: FileLoad) -> float:
        live = [lv for lv in probing.world.host.lvs.values() if lv.live]
        return 1000.0 if not live else 900.0 if live[0].pvs == ("/dev/sde",) else 300.0

    probing.disk.speed = speed
    monkeypatch.setattr(wiring, "_data_mount", lambda host: probing.subject.find())
    text = textwrap.dedent(terminal.configuration.read_text())
    terminal.configuration.write_text(f'{text}\n# the COW area\n[jobs.nightly.snapshot]\nsize = "20%"  # enough\n')
    return terminal


def test_a_tuning_says_what_is_best_by_how_much_and_at_what_risk(tuned: Terminal) -> None:
    before = tuned.configuration.read_text()
    ended = tuned.run("probe", "nightly", *TUNE)
    assert ended.status == ExitStatus.OK
    assert "COW area on /dev/sde, 200% faster than the default (chunks of 64.0 KiB, COW area on any PV)" in ended.stdout
    assert "risk: if that PV is lost, the origin cannot be activated until the snapshot is removed" in ended.stdout
    assert tuned.configuration.read_text() == before
    document = tuned.run("probe", "nightly", *TUNE, "--json").document["tuning"]
    assert document["recommended"]["cow_pvs"] == ["/dev/sde"]
    assert document["recommended"]["gain"] == pytest.approx(2.0)
    assert document["in_the_same_place"]["is_default"] is True
    assert [(len(cell["cow_pvs"]), cell["stripes"]) for cell in document["cells"][::2]] == [
        (0, 1),
        (3, 1),
        (1, 1),
        (3, 3),
    ]


def test_what_is_recommended_is_entered_and_told_with_its_risk(tuned: Terminal) -> None:
    before = tuned.configuration.read_text()
    ended = tuned.run("probe", "nightly", *TUNE, "--write")
    assert ended.status == ExitStatus.OK
    assert f"wrote into {tuned.configuration}, [jobs.nightly.snapshot]: chunk_size = " in ended.stderr
    assert "the COW area is now on /dev/sde: if that PV is lost" in ended.stderr
    after = tuned.configuration.read_text()
    assert re.search(rf'^pvs = \["{pv_uuid("/dev/sde")}"\]  # /dev/sde on 20[0-9-]+$', after, re.MULTILINE)
    assert [line for line in after.splitlines() if line in before.splitlines()] == before.splitlines()
    assert "COW area: on /dev/sde: if that PV is lost" in tuned.run("check", "nightly").stdout


def test_stripes_that_are_recommended_are_entered_and_then_those_of_the_job(
    tuned: Terminal, probing: ProbeWorld
) -> None:
    def speed(load: FileLoad) -> float:
        live = [lv for lv in probing.world.host.lvs.values() if lv.live]
        return 1000.0 if not live else 900.0 if live[0].striped else 300.0

    probing.disk.speed = speed
    ended = tuned.run("probe", "nightly", *TUNE, "--write")
    assert ended.status == ExitStatus.OK
    assert "COW area striped over /dev/sdb, /dev/sdc, /dev/sdd, 200% faster than the default" in ended.stdout
    uuids = '", "'.join(pv_uuid(f"/dev/sd{letter}") for letter in "bcd")
    assert f'pvs = ["{uuids}"]; stripes = 3' in ended.stderr
    assert "is now" not in ended.stderr  # the volume's own PVs are no further risk
    assert "stripes = 3\n" in tuned.configuration.read_text()
    assert "COW area: striped over /dev/sdb, /dev/sdc, /dev/sdd\n" in tuned.run("check", "nightly").stdout
    probing.disk.speed = lambda load: (
        900.0 if any(lv.pvs == ("/dev/sde",) for lv in probing.world.host.lvs.values()) else 300.0
    )
    ended = tuned.run("probe", "nightly", *TUNE, "--write")
    assert f'pvs = ["{pv_uuid("/dev/sde")}"]; stripes = 1' in ended.stderr
    assert "stripes = 1\n" in tuned.configuration.read_text()


def test_nothing_is_entered_where_nothing_is_better(tuned: Terminal, probing: ProbeWorld) -> None:
    probing.disk.speed = lambda load: 300.0
    before = tuned.configuration.read_text()
    ended = tuned.run("probe", "nightly", *TUNE, "--write")
    assert ended.status == ExitStatus.OK
    assert "recommended: the default" in ended.stdout
    assert "was not changed" in ended.stderr
    assert tuned.configuration.read_text() == before


def test_a_file_that_could_not_be_written_is_told_before_anything_is_measured(
    tuned: Terminal, probing: ProbeWorld
) -> None:
    tuned.configuration.chmod(0o400)
    ended = tuned.run("probe", "nightly", *TUNE, "--write")
    assert ended.status == ExitStatus.USAGE
    assert "is read-only" in ended.stderr
    assert "hint: chmod u+w it" in ended.stderr
    assert probing.disk.calls == 0


def test_a_file_that_becomes_unwritable_meanwhile_loses_no_figure(tuned: Terminal, probing: ProbeWorld) -> None:
    probing.during = lambda: tuned.configuration.chmod(0o400)
    before = tuned.configuration.read_text()
    ended = tuned.run("probe", "nightly", *TUNE, "--write")
    assert ended.status == ExitStatus.USAGE
    assert "recommended: " in ended.stdout
    assert "is read-only" in ended.stderr
    assert tuned.configuration.read_text() == before
    assert "success" in tuned.run("history", "--probes").stdout
