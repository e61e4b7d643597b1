"""A tuning from its first round to a backup that follows it, over fakes; and what makes it say less, or nothing."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import pytest

from backupd.config import SnapshotConfig, SnapshotSize
from backupd.operations.backup.preflight import examine
from backupd.operations.measure.probe_steps import ProbeTelling
from backupd.policy.cow_area import recommended
from backupd.vocabulary.errors import GaveUp, ProbeError, Refused, SnapshotVoid, UsageError
from backupd.vocabulary.gauges import FileLoad, Mode, Tuning
from backupd.vocabulary.probes import Measurement
from backupd.vocabulary.records import Level, RunStatus
from backupd.vocabulary.volumes import AUTO, ThinPool
from tests.story.probe_world import SMALL, ProbeWorld
from tests.story.test_measure import Writing
from tests.story.world import World

KIB = 1 << 10
TUNE = replace(SMALL, modes=(Mode.REWRITE,), chunk_sizes=(512 * KIB,), tune=True)
FAST = ("/dev/sde",)
SIZE = SnapshotSize(percent_of_origin=20.0)


class Tuned(ProbeWorld):
    """Writes are faster with larger chunks, and faster still with the COW area on /dev/sde: there 64 KiB are best.

    `also` may change a speed: it is given the chunk size and the PVs. `in_stripes` is how much faster stripes are.
    """

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.also: Callable[[int, tuple[str, ...]], float] = lambda chunk, pvs: 1.0
        self.in_stripes = 1.0

    def speed(self, load: FileLoad) -> float:
        live = [lv for lv in self.world.host.lvs.values() if lv.live]
        if not live:
            return 1000.0
        chunk, pvs = live[0].snapshot.chunk_size, live[0].pvs
        stripes = self.in_stripes if live[0].striped else 1.0
        home = {4: 100.0, 16: 200.0, 64: 300.0, 256: 400.0, 512: 500.0}[chunk // KIB]
        fast = {4: 500.0, 16: 800.0, 64: 900.0, 256: 700.0, 512: 600.0}[chunk // KIB]
        return (fast if pvs == FAST else home) * self.also(chunk, pvs) * stripes


@pytest.fixture
def probe(world: World) -> Tuned:
    return Tuned(world)


def tuning_of(measured: Measurement) -> Tuning:
    assert measured.tuning is not None
    return measured.tuning


def test_every_chunk_size_is_tried_in_every_place_and_the_best_is_kept(probe: Tuned) -> None:
    tuning = tuning_of(probe.take(replace(TUNE, chunk_sizes=())))
    own = ("/dev/sdb", "/dev/sdc", "/dev/sdd")
    assert list(dict.fromkeys(cell.place for cell in tuning.cells)) == [((), 1), (own, 1), (FAST, 1), (own, 3)]
    assert [cell.chunk_size // KIB for cell in tuning.cells if cell.cow_pvs == FAST] == [4, 64, 16, 256, 512]
    assert all(len(cell.speeds) == 3 for cell in tuning.cells)
    best = recommended(tuning)
    assert (best.cell.chunk_size, best.cell.cow_pvs) == (64 * KIB, FAST)
    assert best.gain == pytest.approx(8.0)
    with probe.world.catalogue() as catalogue:
        assert catalogue.tunings() == {probe.world.host.volume.uuid: tuning}
    assert probe.record().measurement is not None
    assert probe.world.left() == []


def test_the_next_backup_follows_it_where_the_job_leaves_it_open(probe: Tuned) -> None:
    probe.take(TUNE)
    job = probe.world.job(snapshot=SnapshotConfig(pvs=AUTO, size=SIZE))
    facts = probe.world.back_up(job=job).snapshot
    assert facts is not None
    assert facts.chunk_size == 64 * KIB
    assert "the best with the COW area on /dev/sde by the probe of 20" in facts.chunk_reason
    same_place = probe.world.back_up("r2", job=probe.world.job(snapshot=SnapshotConfig(size=SIZE))).snapshot
    assert same_place is not None
    assert same_place.chunk_size == 512 * KIB
    assert "/dev/sde" not in same_place.chunk_reason


OWN = ("/dev/sdb", "/dev/sdc", "/dev/sdd")


def test_stripes_that_are_best_are_recommended_kept_and_followed(probe: Tuned) -> None:
    probe.in_stripes = 3.0
    tuning = tuning_of(probe.take(TUNE))
    best = recommended(tuning)
    assert (best.cell.chunk_size, best.cell.place) == (512 * KIB, (OWN, 3))
    with probe.world.catalogue() as catalogue:
        assert catalogue.tunings() == {probe.world.host.volume.uuid: tuning}
        job = probe.world.job(snapshot=SnapshotConfig(pvs=AUTO, size=SIZE))
        found = examine(job, probe.world.tools, last_stored_bytes=None, tunings=catalogue.tunings())
    told = {finding.name: (finding.level, finding.detail) for finding in found.findings}
    assert told["COW area"] == (Level.OK, "striped over /dev/sdb, /dev/sdc, /dev/sdd")
    assert told["snapshot room"][1].startswith("30 extents for the COW area, 600 free")
    facts = probe.world.back_up(job=job).snapshot
    assert facts is not None
    assert "the best with the COW area striped over /dev/sdb, /dev/sdc, /dev/sdd by the probe of" in facts.chunk_reason
    probe.world.host.free_by_pv["/dev/sdc"] = 4
    left = probe.world.back_up("r2", job=job).snapshot
    assert left is not None
    assert left.chunk_reason.endswith("its recommendation is ignored: there is not enough space for the COW area")


def test_other_pvs_are_striped_over_too_but_for_those_without_room(probe: Tuned) -> None:
    host, more = probe.world.host, ("/dev/sdf", "/dev/sdg", "/dev/sdh")
    host.free_by_pv |= dict(zip(more, (40, 255, 255), strict=True))
    host.failed.add("/dev/sdh")
    probe.disk.pvs = {**probe.disk.pvs, **dict.fromkeys(more, 0.0)}
    tuning = tuning_of(probe.take(TUNE))
    striped = {cell.place for cell in tuning.cells if cell.stripes > 1}
    assert striped == {(OWN, 3), (("/dev/sde", "/dev/sdf", "/dev/sdg"), 3)}
    host.free_by_pv |= {"/dev/sdf": 2, "/dev/sdb": 0, "/dev/sdc": 3}
    measured = probe.take(TUNE, run_id="p2")
    assert {cell.place for cell in tuning_of(measured).cells if cell.stripes > 1} == {(("/dev/sde", "/dev/sdg"), 2)}
    assert "striped over /dev/sdc, /dev/sdd: not measured: 24 MiB are free, a COW area needs 120 MiB" in measured.notes


def test_where_no_other_pv_has_room_nothing_is_striped_over_others(probe: Tuned) -> None:
    del probe.world.host.free_by_pv["/dev/sde"]
    tuning = tuning_of(probe.take(TUNE))
    assert {cell.place for cell in tuning.cells} == {((), 1), (OWN, 3)}
    probe.world.host.free_by_pv = {"/dev/sdb": 0, "/dev/sdc": 0, "/dev/sdd": 0, "/dev/sde": 255, "/dev/sdf": 255}
    probe.disk.pvs = {**probe.disk.pvs, "/dev/sdf": 0.0}
    tuning = tuning_of(probe.take(TUNE, run_id="p2"))
    assert {cell.place for cell in tuning.cells if cell.stripes > 1} == {(("/dev/sde", "/dev/sdf"), 2)}


def test_a_stripe_that_fails_takes_none_of_the_linear_places_with_it(probe: Tuned) -> None:
    host = probe.world.host

    def fail() -> None:
        for name, lv in host.lvs.items():
            if lv.striped:
                host.invalidate(name)

    probe.during = fail
    measured = probe.take(TUNE)
    assert {cell.place for cell in tuning_of(measured).cells} == {((), 1), (OWN, 1), (FAST, 1)}
    assert [
        note for note in measured.notes if note.startswith("the COW area striped over /dev/sdb, /dev/sdc, /dev/sdd")
    ]
    assert probe.world.left() == []


def test_a_job_that_says_stripes_has_them_in_its_default(probe: Tuned) -> None:
    probe.snapshot = SnapshotConfig(size=SIZE, stripes=2)
    tuning = tuning_of(probe.take(TUNE))
    assert tuning.cells[0].place == ((), 2)
    assert all(cell.stripes == 2 for cell in tuning.cells if not cell.cow_pvs)


def test_check_says_what_it_follows_and_what_that_risks(probe: Tuned) -> None:
    probe.take(TUNE)

    def told(**snapshot: object) -> dict[str, tuple[Level, str]]:
        job = probe.world.job(snapshot=SnapshotConfig(size=SIZE, **snapshot))  # type: ignore[arg-type]
        with probe.world.catalogue() as catalogue:
            found = examine(job, probe.world.tools, last_stored_bytes=None, tunings=catalogue.tunings())
        return {finding.name: (finding.level, finding.detail) for finding in found.findings}

    by_probe = told(pvs=AUTO)
    assert by_probe["snapshot"][0] is Level.OK
    assert "by the probe of 20" in by_probe["snapshot"][1]
    risk = (Level.OK, "on /dev/sde: if that PV is lost, the origin cannot be activated until the snapshot is removed")
    assert by_probe["COW area"] == risk
    assert told(pvs=FAST)["COW area"] == risk
    assert "COW area" not in told()
    probe.world.host.pv_uuids["/dev/sde"] = "another disk"
    stale = told(pvs=AUTO)
    assert stale["snapshot"][0] is Level.WARNING
    assert "its recommendation is ignored: /dev/sde is missing or was replaced" in stale["snapshot"][1]
    assert "COW area" not in stale
    assert probe.world.try_to_back_up(job=probe.world.job(snapshot=SnapshotConfig(pvs=AUTO, size=SIZE))) is None


def test_a_later_tuning_takes_the_place_of_an_earlier_one(probe: Tuned) -> None:
    probe.take(TUNE)
    probe.also = lambda chunk, pvs: 0.1 if pvs == FAST else 1.0
    later = tuning_of(probe.take(TUNE, run_id="p2"))
    with probe.world.catalogue() as catalogue:
        assert catalogue.tunings() == {probe.world.host.volume.uuid: later}
    assert recommended(later).cell.cow_pvs == ()


def test_the_servers_own_writes_can_be_what_is_measured(probe: Tuned) -> None:
    """By how long a write takes, whoever writes however much."""
    server = FileLoad(Mode.DIRECT, 1, 16 << 10, 8 << 20)

    def write() -> None:
        live = any(lv.live for lv in probe.world.host.lvs.values())
        probe.disk.serve(server, 0.01, speed=probe.speed(server) if live else 1000.0)

    probe.counters = Writing(probe.counters, write)
    tuning = tuning_of(probe.take(replace(TUNE, passive=True, seconds=0.01)))
    best = recommended(tuning)
    assert (best.cell.chunk_size, best.cell.cow_pvs) == (64 * KIB, FAST)
    assert probe.disk.prepared == set()
    assert probe.world.left() == []


def test_counters_that_stand_still_are_told_and_nothing_is_recommended(probe: Tuned) -> None:
    with pytest.raises(ProbeError, match="too little was written to the volume for a comparison") as caught:
        probe.take(replace(TUNE, passive=True, seconds=0.01))
    assert "omit --passive" in caught.value.hint
    probe.assert_failed_and_clean()
    with probe.world.catalogue() as catalogue:
        assert catalogue.tunings() == {}


def test_a_full_pv_a_closed_one_a_failed_one_and_a_slower_one_are_told_and_not_chosen(probe: Tuned) -> None:
    host = probe.world.host
    host.free_by_pv |= {"/dev/sde": 2, "/dev/sdf": 255, "/dev/sdg": 255}
    host.free_by_pv["/dev/sdh"] = 255
    host.closed.add("/dev/sdg")
    host.failed.add("/dev/sdh")
    probe.disk.pvs = {**probe.disk.pvs, "/dev/sdf": 0.0, "/dev/sdg": 0.0, "/dev/sdh": 0.0}
    probe.also = lambda chunk, pvs: 0.1 if pvs == ("/dev/sdf",) else 1.0
    measured = probe.take(TUNE)
    tuning = tuning_of(measured)
    assert ("/dev/sdf",) in {cell.cow_pvs for cell in tuning.cells}
    assert not {FAST, ("/dev/sdg",), ("/dev/sdh",)} & {cell.cow_pvs for cell in tuning.cells}
    assert recommended(tuning).cell.cow_pvs == ()
    assert "/dev/sde: not measured: 8 MiB are free, a COW area needs 120 MiB" in measured.notes
    assert "/dev/sdh: the kernel has disabled the disk, so it was not measured" in measured.notes
    assert "/dev/sdg is missing or not allocatable, so no COW area was measured there" in measured.notes


def test_a_pv_that_fails_is_given_up_and_the_others_are_measured(probe: Tuned) -> None:
    host = probe.world.host

    def fail() -> None:
        for name, lv in host.lvs.items():
            if lv.pvs == FAST:
                host.invalidate(name)

    probe.during = fail
    measured = probe.take(TUNE)
    assert FAST not in {cell.cow_pvs for cell in tuning_of(measured).cells}
    assert [note for note in measured.notes if note.startswith("the COW area on /dev/sde failed and was skipped")]
    assert recommended(tuning_of(measured)).cell.chunk_size == 512 * KIB
    assert probe.world.left() == []


def test_a_pv_that_fails_and_keeps_its_snapshot_ends_the_probe(probe: Tuned) -> None:
    """What would be measured beside it would be of two snapshots."""
    host = probe.world.host

    def fail() -> None:
        for name, lv in host.lvs.items():
            if lv.pvs == FAST:
                host.invalidate(name)
                host.fail("remove", at_call=host.calls["remove"] + 1)

    probe.during = fail
    with pytest.raises(SnapshotVoid) as caught:
        probe.take(TUNE)
    assert "clean-up incomplete" in caught.value.__notes__[0]
    assert probe.record().measurement is None
    assert len(host.lvs) == 1


def test_where_the_default_itself_fails_the_probe_ends(probe: Tuned) -> None:
    host = probe.world.host
    probe.during = lambda: [*map(host.invalidate, host.lvs)]
    with pytest.raises(SnapshotVoid):
        probe.take(TUNE)
    probe.assert_failed_and_clean()


def test_it_tries_the_pvs_that_are_named_and_no_others(probe: Tuned) -> None:
    tuning = tuning_of(probe.take(replace(TUNE, cow_on=FAST, chunk_sizes=(4 * KIB, 256 * KIB))))
    assert [(cell.chunk_size // KIB, cell.cow_pvs) for cell in tuning.cells] == [
        *((4, ()), (64, ()), (256, ())),
        *((4, FAST), (64, FAST), (256, FAST)),
    ]
    with pytest.raises(Refused, match=r"^/dev/nosuch is not a PV of labvg$"):
        probe.take(replace(TUNE, cow_on=("/dev/nosuch",)), run_id="p2")


def test_the_default_stays_where_the_noise_is_as_large_as_the_gain(probe: Tuned) -> None:
    luck = itertools.cycle((0.1, 0.25, 0.55))
    probe.also = lambda chunk, pvs: next(luck) if pvs == FAST else {4: 1.0, 64: 1 / 3}[chunk // KIB]
    best = recommended(tuning_of(probe.take(replace(TUNE, cow_on=FAST, chunk_sizes=(4 * KIB,)))))
    assert best.stays
    assert best.noise > 1


def test_what_it_costs_is_told_and_holds(probe: Tuned) -> None:
    told: list[tuple[int, float]] = []
    probe.take(TUNE, telling=ProbeTelling(bill=lambda bill, _: told.append((bill.snapshots, bill.seconds))))
    assert told == [(3 * 12, 3 * (1 + 12) * 1.0)]
    assert probe.world.host.calls["create"] == 3 * 12


def test_a_thin_volume_has_nothing_to_tune(probe: Tuned) -> None:
    volume = probe.world.host.volume
    pool = ThinPool("pool", "u", 64 << 10, volume.size, 4 << 20, volume.segments)
    probe.world.host.volume = replace(volume, pool=pool)
    with pytest.raises(UsageError) as caught:
        probe.take(TUNE)
    assert caught.value.message == (
        "labvg/data is thin: its snapshots are in thin pool labvg/pool, in that pool's chunks, there is nothing to tune"
    )
    assert probe.disk.calls == 0


def test_a_server_that_suffers_ends_it(probe: Tuned) -> None:
    """The guard's limit is for the server, whichever disk makes it suffer."""

    def suffer() -> None:
        if any(lv.pvs == FAST for lv in probe.world.host.lvs.values()):
            raise GaveUp("a write took too long")

    probe.during = suffer
    with pytest.raises(GaveUp):
        probe.take(TUNE)
    assert probe.record().status is RunStatus.FAILED
    assert probe.world.left() == []
