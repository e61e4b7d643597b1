"""`make bench-peers`: who takes part, what a round's logs say, and the table."""

import json
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from backupd.config import load as configured
from backupd.lab import configuration
from backupd.lab.load import Heartbeat, LoadSample
from backupd.lab.site import guest_site
from backupd.lab.sizes import MIB
from backupd.load.counters import parse_stat
from backupd.vocabulary.errors import LabError, UnexpectedOutput
from backupd.vocabulary.gauges import DiskCounters
from backupd.vocabulary.penalty import Bill
from backupd.vocabulary.records import Phase, RunDetails, RunStatus
from tests.bench.bench_peers import Boot, boot_from, faults, main
from tests.bench.peers import outside as peers_outside
from tests.bench.peers.calm import LONGEST_SECONDS, ServerSecond, await_calm, is_calm
from tests.bench.peers.contenders import (
    BACKUPD,
    COMPRESSED_OUTSIDE,
    FAST_PV,
    IF_ASKED,
    MARIADB_BACKUP,
    MYDUMPER,
    MYLVMBACKUP,
    NAMES,
    NOTHING,
    READERS,
    SETTINGS,
    SPOOL,
    SPOOL_OUTSIDE,
    TUNED,
    PeerGround,
    contenders,
    mydumper_argv,
    mylvmbackup_argv,
    snapshot_settings,
    turns,
)
from tests.bench.peers.figures import (
    BEFORE_SECONDS,
    COLUMNS,
    Cost,
    Moments,
    Reading,
    StageImpact,
    cell,
    impact,
    parts,
    parts_table,
    pause_seconds,
    quantile,
    read_milliseconds,
    stages,
    table,
)
from tests.bench.peers.processor import Owner, ProcessorUse, parse_process

BEGAN = 1000.0
RUN = Moments(BEGAN, BEGAN + 20)
GROUND = PeerGround(guest_site(), 5000 * MIB, Path("/dev/ubdg"))
STORED = Path("/backups/peers")
# Recorded: a `stat` file of Linux 6.1.
STAT = "  4120  11  93184  20600  1500  20  48000  9000  0  16000  29600  0  0  0  0  3  10\n"


def load_of(rates: dict[int, float]) -> list[LoadSample]:
    """100 a second, but for the seconds from the backup's start on that are named."""
    return [LoadSample(BEGAN + at + 1, rates.get(at, 100.0)) for at in range(-int(BEFORE_SECONDS), 25)]


def beats_of(milliseconds: dict[int, float]) -> list[Heartbeat]:
    return [Heartbeat(BEGAN + at, milliseconds.get(at, 5.0)) for at in range(-int(BEFORE_SECONDS), 25)]


def reading(number: int, wall: float, name: str = BACKUPD) -> Reading:
    cost = Cost(
        wall,
        stored=100 * MIB,
        disks=DiskCounters(read_bytes=200 * MIB, read_seconds=2.0, busy_seconds=8.0),
        memory=30.0,
        processor={**dict.fromkeys(map(str, Owner), 0.5), Owner.BACKUP: 1.5, Owner.IDLE: wall - 4},
        restore=4.0,
        lock_held=0.25,
    )
    return Reading(name, number, calm=True, impact=impact(load_of({}), beats_of({}), RUN), cost=cost)


# --- whose the processor was -----------------------------------------------------------------------------------------

# Recorded: /proc/PID/stat of Linux 6.1, of a server whose name has a blank and a bracket, and of a kernel's thread.
SERVER = "812 (mariadbd) S 1 812 812 0 -1 4194560 91 0 3 0 250 130 0 0 20 0 9 0 5100 1 2 3"
ODD = "813 (a) b) R 1 813 813 0 -1 4194560 91 0 3 0 7 2 0 0 20 0 9 0 5200 1 2 3"
THREAD = "31 (kcopyd/0) I 2 0 0 0 -1 69238880 0 0 0 0 0 40 0 0 0 -20 1 0 60 0 0"


def proc(folder: Path, processes: dict[int, str], idle: int) -> Path:
    for number, text in processes.items():
        (folder / str(number)).mkdir(parents=True)
        (folder / str(number) / "stat").write_text(text)
    (folder / "stat").write_text(f"cpu  1 0 1 {idle} 50 0 0 0 0 0\ncpu0 1 0 1 {idle} 50 0 0 0 0 0\n")
    return folder


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (SERVER, (5100, "server", 380)),
        (ODD, (5200, "load, other", 9)),
        (THREAD, (60, "kernel threads", 40)),
    ],
)
def test_the_kernels_line_of_a_process_says_whose_it_is_and_its_ticks(text: str, found: tuple[int, str, int]) -> None:
    assert parse_process(text) == found


def test_a_processors_time_is_told_by_owner_and_a_number_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    earlier = ProcessorUse.now(proc(tmp_path / "earlier", {812: SERVER, 31: THREAD, 813: ODD}, idle=1000))
    later = {
        812: SERVER.replace(" 250 130 ", " 450 230 "),
        31: THREAD.replace(" 0 40 0 ", " 0 90 0 "),
        813: ODD.replace("5200", "6200"),
    }
    used = ProcessorUse.now(proc(tmp_path / "later", later, idle=1350)).since(earlier)
    assert used == pytest.approx(
        {"backup": 0, "server": 3, "disks": 0, "kernel threads": 0.5, "load, other": 0.09, "idle": 3.5}
    )


# --- a round's logs --------------------------------------------------------------------------------------------------


def test_what_is_lost_is_what_the_rate_just_before_would_have_done() -> None:
    found = impact(load_of({**dict.fromkeys(range(5, 10), 40.0), -100: 0.0, 22: 0.0}), beats_of({7: 400.0}), RUN)
    assert [found.tps_before, found.tps] == pytest.approx([100, 85])
    assert found.lost == pytest.approx(300)
    assert [found.stall_ms, found.p99_ms, found.p50_ms] == pytest.approx([400, 400, 5])
    assert (found.p99_before_ms, found.p50_before_ms) == (5, 5)


def test_a_stall_that_began_before_is_counted_and_what_the_server_did_before_is_not() -> None:
    found = impact(load_of({}), beats_of({-10: 900.0, -1: 2000.0}), RUN)
    assert found.stall_ms == pytest.approx(2000)
    assert found.p99_ms == 5
    assert found.p99_before_ms == 2000


@pytest.mark.parametrize("samples", [[], load_of({})[:-10], load_of({})[int(BEFORE_SECONDS) + 2 :]])
def test_a_log_that_does_not_cover_the_backup_is_no_result(samples: list[LoadSample]) -> None:
    with pytest.raises(LabError, match="does not cover"):
        impact(samples, beats_of({}), RUN)


def recorded(**changes: Any) -> RunDetails:
    """The run's record: begun 3 s after its command, verified in 1 s, 12 s from its lock to the snapshot's end."""
    phases = {Phase.PREFLIGHT: 1.0, Phase.COPY: 9.0, Phase.RELEASE: 2.0, Phase.VERIFY: 1.0}
    started, ended = (datetime.fromtimestamp(BEGAN + at, UTC) for at in (3, 18))
    run = RunDetails("r1", "nightly", "lab", "lab-1", RunStatus.SUCCESS, started, ended, phases=phases, bill=Bill(12.0))
    return replace(run, **changes)


def test_a_run_of_ours_tells_which_stage_of_it_cost_what() -> None:
    slow = {**dict.fromkeys(range(3), 60.0), **dict.fromkeys(range(5, 17), 40.0)}
    found = parts(load_of(slow), BEGAN, stages(recorded(), RUN), undisturbed=100.0)
    assert [one.name for one in found] == ["starting", "before the lock", "lock and snapshot", "afterwards"]
    assert [one.seconds for one in found] == pytest.approx([3, 2, 12, 3])
    assert [one.lost for one in found] == pytest.approx([120, 0, 720, 0])
    assert sum(one.lost for one in found) == pytest.approx(impact(load_of(slow), beats_of({}), RUN).lost)


def test_a_run_without_a_bill_or_a_log_that_ends_before_it_tells_no_stages() -> None:
    with pytest.raises(LabError, match="has no bill"):
        stages(recorded(bill=None), RUN)
    with pytest.raises(LabError, match="stage 'afterwards'"):
        parts(load_of({})[:-10], BEGAN, stages(recorded(), RUN), undisturbed=100.0)


def test_the_disks_counters_are_added_up_and_told_for_each_mib_that_was_read() -> None:
    one = parse_stat(STAT)
    assert (one.read_bytes, one.read_seconds, one.busy_seconds) == (93184 * 512, 20.6, 16.0)
    assert one.plus(one).since(one) == one
    assert read_milliseconds(one.plus(one)) == read_milliseconds(one) == pytest.approx(20600 / 45.5)
    assert read_milliseconds(DiskCounters()) is None
    with pytest.raises(UnexpectedOutput):
        parse_stat("1 2 3")


def test_a_quantile_leaves_the_share_above_it_out() -> None:
    assert quantile([*[5.0] * 99, 900.0], 0.5) == 5.0
    assert quantile([1.0, 2.0, 3.0], 0.99) == 3.0
    assert quantile([], 0.5) == 0.0


def test_nothing_takes_as_long_as_the_others_did() -> None:
    assert pause_seconds([]) == 30.0
    assert pause_seconds([10.0, 50.0, 20.0]) == 20.0


# --- rest before a round ---------------------------------------------------------------------------------------------


def looks(rates: list[float], dirty: float = 1000.0) -> list[ServerSecond]:
    commits = [sum(rates[:number]) for number in range(len(rates) + 1)]
    return [ServerSecond(dirty, 50 << 20, one) for one in commits]


def test_a_server_that_does_the_same_for_ten_seconds_is_calm() -> None:
    assert is_calm(looks([100.0] * 10))
    assert is_calm(looks([10.0] * 5 + [100.0, 110.0] * 5)), "what was before does not count"
    assert not is_calm(looks([100.0] * 9))


def test_a_server_that_gets_faster_or_flushes_what_is_left_over_is_not() -> None:
    assert not is_calm(looks([70.0] * 5 + [100.0] * 5))
    still = looks([100.0] * 10)
    assert not is_calm([replace(one, dirty_pages=4000 - 300 * number) for number, one in enumerate(still)])
    assert not is_calm([replace(one, checkpoint_age=number * (8 << 20)) for number, one in enumerate(still)])


def test_the_wait_for_calm_ends_with_it_or_at_its_deadline() -> None:
    slept: list[float] = []
    calm = iter(looks([100.0] * 30))
    assert await_calm(lambda: next(calm), sleep=slept.append)
    assert sum(slept) == 10
    ever_faster = iter(looks([1.06**second for second in range(200)]))
    slept.clear()
    assert not await_calm(lambda: next(ever_faster), sleep=slept.append)
    assert sum(slept) == pytest.approx(LONGEST_SECONDS, abs=1)


# --- who takes part --------------------------------------------------------------------------------------------------


def test_everyone_has_a_turn_in_each_round_and_everyone_begins_one() -> None:
    names = list(NAMES)
    assert list(contenders(GROUND, STORED)) == [*names, *IF_ASKED, *READERS]
    assert names[0] == NOTHING
    rounds = [turns(names, number) for number in range(7)]
    assert [one[0] for one in rounds] == names
    assert all(sorted(one) == sorted(names) for one in rounds)


def test_a_name_that_nobody_has_is_refused_before_a_machine_starts(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--only", "mariadb-backup"])
    assert ended.value.code == 2
    assert "'mariadb-backup, zstd -1'" in capsys.readouterr().err


def test_every_rival_compresses_into_the_same_folder_and_is_unpacked_from_there() -> None:
    everyone = contenders(GROUND, STORED)
    for name in (MYLVMBACKUP, MARIADB_BACKUP, MYDUMPER):
        assert str(STORED) in everyone[name].backup
        assert str(STORED) in everyone[name].restore
    assert "xbstream" in everyone[MARIADB_BACKUP].backup
    assert "--prepare" in everyone[MARIADB_BACKUP].restore


def test_everyones_programs_are_read_before_and_only_ours_does_anything_for_it() -> None:
    everyone = contenders(GROUND, STORED)
    assert everyone[NOTHING].warm_up == ":"
    assert "mylvmbackup --version" not in everyone[MYLVMBACKUP].warm_up  # it ends with status 1
    for name, program in ((MYLVMBACKUP, "mylvmbackup"), (MARIADB_BACKUP, "mariadb-backup"), (MYDUMPER, "mydumper")):
        assert program in everyone[name].warm_up
    [ours] = {everyone[name].warm_up for name in SETTINGS}
    assert {"check nightly", "run no-such-job"} <= set(re.findall(r"backupd --quiet (\w+ [\w-]+)", ours))


def test_all_of_ours_do_the_same_but_for_who_compresses() -> None:
    everyone = contenders(GROUND, STORED)
    outside = {name for name in SETTINGS if everyone[name].backup.startswith(f"python -m {peers_outside.__name__} ")}
    assert outside == set(COMPRESSED_OUTSIDE)
    assert {everyone[name].backup.partition(" --")[2] for name in SETTINGS} == {"quiet run nightly"}


def test_mylvmbackup_finds_the_labs_volume_with_a_snapshot_as_large_as_ours_and_zstd() -> None:
    argv = mylvmbackup_argv(GROUND, STORED)
    assert {"--vgname=labvg", "--lvname=data", "--relpath=data", "--xfs", "--compress=zstd"} <= set(argv)
    assert "--lvsize=1000m" in argv
    assert f"--backupdir={STORED}" in argv


def test_mydumper_leaves_the_servers_own_schemas_out() -> None:
    argv = mydumper_argv(guest_site(), STORED)
    assert "--compress" in argv
    assert any(word.startswith("--regex=^(?!(mysql|") for word in argv)


@pytest.mark.parametrize("name", SETTINGS)
def test_the_settings_of_ours_are_a_configuration(name: str, tmp_path: Path) -> None:
    file = tmp_path / "backupd.toml"
    settings = snapshot_settings(name, GROUND.fast_pv, spool=Path("/spool"))
    file.write_text(configuration.text(guest_site(), snapshot=settings))
    job = configured(file).jobs["nightly"]
    assert job.snapshot.pvs == (("/dev/ubdg",) if name in (FAST_PV, TUNED) else ())
    assert job.copy.spool == (Path("/spool") if name in (TUNED, SPOOL, SPOOL_OUTSIDE) else None)


# --- what is told ----------------------------------------------------------------------------------------------------


def test_a_cell_is_the_median_and_what_it_lies_between() -> None:
    assert cell([10.0, 30.0, 20.0]) == "20 (10-30)"
    assert cell([1.25, 1.5]) == "1.4 (1.2-1.5)"
    assert cell([100.0]) == "100"
    assert cell([None, None]) == "-"


def test_the_table_has_a_row_for_each_contender_and_tells_which_rounds_are_missing() -> None:
    failed = Reading(BACKUPD, 2, failed="no room")
    head, _, nothing, ours = table([reading(0, 10, NOTHING), reading(0, 20), reading(1, 30), failed]).splitlines()
    assert head == f"| | {' | '.join(COLUMNS)} |"
    assert nothing.startswith("| nothing | 10 | 100 |")
    assert ours.startswith("| backupd (2 of 3 rounds) | 25 (20-30) | 100 (100-100) |")
    assert faults([failed]) == "backupd, round 3: no room"
    assert faults([replace(reading(0, 20), calm=False)]).startswith("backupd, round 1: the server had not come to rest")
    assert faults([reading(0, 20)]) == ""


def test_the_stages_have_a_table_of_those_who_tell_them() -> None:
    told = [
        replace(reading(at, 20), parts=(StageImpact("starting", 3.0, 100.0 + at), StageImpact("rest", 17.0, 9)))
        for at in (0, 2)
    ]
    assert parts_table([reading(0, 10, NOTHING), *told]).splitlines() == [
        "| | starting s | lost | rest s | lost |",
        "|---|---|---|---|---|",
        "| backupd | 3.0 (3.0-3.0) | 101 (100-102) | 17 (17-17) | 9.0 (9.0-9.0) |",
    ]
    assert parts_table([reading(0, 10, NOTHING)]) == ""


def test_what_a_machine_prints_is_read_back_and_kept_whole() -> None:
    whole = replace(reading(0, 20), parts=(StageImpact("starting", 3.0, 100.0),))
    readings = (whole, Reading(BACKUPD, 1, failed="no room"))
    lines = [json.dumps({"load": "85", "saturated": 141.5}), *(json.dumps(one.to_values()) for one in readings)]
    boot = boot_from("hdd", "rate", lines)
    assert boot == Boot("hdd", "rate", "85", 141.5, readings)
    assert boot.title == "hdd, 85 transactions a second, 60 % of what it can do (142 a second undisturbed)"
    assert [Reading.from_values(one) for one in boot.to_values()["readings"]] == list(readings)
    with pytest.raises(LabError, match="printed nothing"):
        boot_from("hdd", "rate", [])
