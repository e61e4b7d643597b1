"""A replaced disk: a job's COW area was on it. The next backup is taken all the same, says so, and until when."""

import textwrap
from collections.abc import Callable

import pytest

from backupd import wiring
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.gauges import FileLoad
from tests.cli.terminal import Terminal
from tests.fakes.lvm_host import pv_uuid
from tests.story.probe_world import ProbeWorld
from tests.story.world import World

OLD = pv_uuid("/dev/sde")
TUNE = ("--file-size", "64k", "--rewrite-size", "32k", "--seconds", "1", "--tune", "--chunk-sizes", "512k", "--write")
GONE = f"COW area: on any PV, not as snapshot.pvs says: {OLD} is not a PV of labvg"


@pytest.fixture
def probing(world: World) -> ProbeWorld:
    """Its writes are three times as fast with the COW area on /dev/sde, whichever disk that is."""
    probing = ProbeWorld(world)
    probing.disk.speed = fast_on_sde(world)
    return probing


def fast_on_sde(world: World) -> Callable[[FileLoad], float]:
    """Writes a second: of those to a volume with a snapshot the COW area's place decides."""

    def speed(load: FileLoad) -> float:
        live = [lv for lv in world.host.lvs.values() if lv.live]
        return 1000.0 if not live else 900.0 if live[0].pvs == ("/dev/sde",) else 300.0

    return speed


@pytest.fixture
def terminal(probing: ProbeWorld, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    """`backupd` on that host; the job names the fast disk by its uuid."""
    monkeypatch.setattr(wiring, "instruments", lambda: probing.instruments)
    monkeypatch.setattr(wiring, "_data_mount", lambda host: probing.subject.find())
    terminal = Terminal(probing.world, monkeypatch, capsys)
    text = textwrap.dedent(terminal.configuration.read_text())
    added = f'\n[jobs.nightly.snapshot]\nsize = "20%"\npvs = ["{OLD}"]  # /dev/sde on 2026-11-20\n'
    terminal.configuration.write_text(text + added)
    return terminal


def placed(world: World, terminal: Terminal, run_id: str, status: ExitStatus = ExitStatus.OK) -> tuple[str, ...]:
    """Where the COW area of this run was asked for."""
    seen: list[tuple[str, ...]] = []
    world.at["host.mount"] = lambda: seen.extend(lv.pvs for lv in world.host.lvs.values() if lv.live)
    assert terminal.run("run", "nightly", "--run-id", run_id).status == status
    del world.at["host.mount"]
    return seen[0]


@pytest.mark.thorough
def test_a_replaced_disk(terminal: Terminal, world: World) -> None:
    assert placed(world, terminal, "before") == ("/dev/sde",)
    assert world.row("before").attention == ()

    world.host.free_by_pv.pop("/dev/sde")
    world.host.missing.add(OLD)  # the disk has died: LVM changes nothing in such a group
    refused = terminal.run("check", "nightly")
    assert refused.status == ExitStatus.REFUSED
    assert f"refused  volume group: LVM finds no disk for {OLD} of labvg" in refused.stdout
    assert "vgreduce --removemissing labvg" in refused.stdout
    assert terminal.run("run", "nightly", "--run-id", "died").status == ExitStatus.REFUSED

    world.host.missing.clear()  # vgreduce --removemissing, and a new disk in the same slot
    world.host.free_by_pv["/dev/sde"] = 255
    world.host.replace_disk("/dev/sde")
    checked = terminal.run("check", "nightly")
    assert checked.status == ExitStatus.ATTENTION
    assert f"warning  {GONE}\n" in checked.stdout
    assert "hint: backupd probe nightly --tune --write compares the PVs of today" in checked.stdout
    assert placed(world, terminal, "replaced", ExitStatus.ATTENTION) == ()
    assert world.row("replaced").attention == (GONE,)
    assert GONE in " ".join(terminal.run("show", "replaced").stdout.split())

    assert terminal.run("probe", "nightly", *TUNE).status == ExitStatus.OK
    text = terminal.configuration.read_text()
    assert OLD not in text
    assert f'pvs = ["{world.host.group().pv_uuids["/dev/sde"]}"]  # /dev/sde on ' in text
    assert "2026-11-20" not in text
    assert GONE not in terminal.run("check", "nightly").stdout
    assert placed(world, terminal, "after") == ("/dev/sde",)
    assert world.row("after").attention == ()


def test_a_disk_that_got_another_path_is_followed_and_nobody_is_told(terminal: Terminal, world: World) -> None:
    world.host.pv_uuids |= {"/dev/sdd": OLD, "/dev/sde": pv_uuid("/dev/sdd")}
    assert placed(world, terminal, "r1") == ("/dev/sdd",)
    assert world.row("r1").attention == ()


def test_a_tuning_that_finds_nothing_better_clears_the_name_of_the_lost_disk(
    terminal: Terminal, probing: ProbeWorld, world: World
) -> None:
    world.host.replace_disk("/dev/sde")
    probing.disk.speed = lambda load: 300.0
    assert terminal.run("probe", "nightly", *TUNE).status == ExitStatus.OK
    assert "\npvs = []\n" in terminal.configuration.read_text()
    assert GONE not in terminal.run("check", "nightly").stdout


def test_a_job_that_wants_no_other_place_is_refused(terminal: Terminal, world: World) -> None:
    world.host.replace_disk("/dev/sde")
    text = terminal.configuration.read_text()
    terminal.configuration.write_text(text + 'pvs_gone = "refuse"\n')
    ended = terminal.run("run", "nightly", "--run-id", "r1")
    assert ended.status == ExitStatus.REFUSED
    assert f"snapshot room: {OLD} is not a PV of labvg" in ended.stderr
    assert world.left() == []
