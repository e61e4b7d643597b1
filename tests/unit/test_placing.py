"""Where a COW area goes and in which chunks: as the job says, as the last tuning found, or as without one."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from backupd.config import SnapshotConfig, SnapshotSize
from backupd.policy.cow_area import layout_of
from backupd.policy.snapshot_plan import plan_snapshot
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.gauges import TunedCell, Tuning
from backupd.vocabulary.volumes import AUTO, DiskQueue, PvsGone
from tests.fakes.lvm_host import LvmHost, pv_uuid, thin_volume

KIB = 1 << 10
BESIDE = ("/dev/sde",)
BOTH = SnapshotConfig(pvs=AUTO)
SPEEDS = {  # the disks' table says 64 KiB
    (64 * KIB, ()): 100.0,
    (512 * KIB, ()): 150.0,
    (64 * KIB, BESIDE): 300.0,
    (512 * KIB, BESIDE): 200.0,
}


def tuning(host: LvmHost, speeds: dict[tuple[int, tuple[str, ...]], float] = SPEEDS) -> Tuning:
    made = tuple(TunedCell(*where, (speed, speed * 1.01, speed * 0.99)) for where, speed in speeds.items())
    return Tuning(datetime(2026, 11, 20, 3, 0, tzinfo=UTC), layout_of(host.volume, host.group()), made)


def planned(host: LvmHost, settings: SnapshotConfig, found: Tuning | None) -> tuple[int, tuple[str, ...], str, str]:
    plan = plan_snapshot(host.volume, host.group(), "r1", settings, tuning=found)
    return plan.chunk_size, plan.pvs, plan.chunk_reason, plan.left_aside


def test_auto_follows_the_last_tuning_and_says_so() -> None:
    host = LvmHost()
    size, pvs, reason, aside = planned(host, BOTH, tuning(host))
    assert (size, pvs, aside) == (64 * KIB, BESIDE, "")
    assert reason.startswith("the best with the COW area on /dev/sde by the probe of 2026-11-20, 200% faster")


def test_pvs_that_the_job_has_not_left_open_are_never_chosen() -> None:
    host = LvmHost()
    size, pvs, reason, _ = planned(host, SnapshotConfig(), tuning(host))
    assert (size, pvs) == (512 * KIB, ())
    assert reason.startswith("the best by the probe of 2026-11-20, 50% faster than the default")


def test_a_chunk_size_that_the_job_says_stays_and_so_does_a_place() -> None:
    host = LvmHost()
    assert planned(host, SnapshotConfig(chunk_size=512 * KIB, pvs=AUTO), tuning(host))[:2] == (512 * KIB, BESIDE)
    assert planned(host, SnapshotConfig(pvs=BESIDE), tuning(host))[:2] == (64 * KIB, BESIDE)
    assert planned(host, SnapshotConfig(chunk_size=4 * KIB, pvs=BESIDE), tuning(host))[:3] == (
        4 * KIB,
        BESIDE,
        "set by snapshot.chunk_size",
    )


def test_without_a_tuning_auto_is_the_default() -> None:
    host = LvmHost()
    assert planned(host, SnapshotConfig(), None) == (64 * KIB, (), "the disks are not rotational", "")
    size, pvs, _, aside = planned(host, BOTH, None)
    assert (size, pvs) == (64 * KIB, ())
    assert aside == "no probe has compared PVs for this volume: backupd probe JOB --tune"


def test_a_tuning_that_found_nothing_better_leaves_the_default() -> None:
    host = LvmHost()
    found = tuning(host, dict.fromkeys(SPEEDS, 100.0))
    size, pvs, reason, aside = planned(host, BOTH, found)
    assert (size, pvs, aside) == (64 * KIB, (), "")
    assert (
        reason == "the disks are not rotational; the probe of 2026-11-20 found nothing better within the job's settings"
    )


def other_disk(host: LvmHost) -> None:
    host.replace_disk("/dev/sde")


def missing(host: LvmHost) -> None:
    del host.free_by_pv["/dev/sde"]


def closed(host: LvmHost) -> None:
    host.closed.add("/dev/sde")


def full(host: LvmHost) -> None:
    host.free_by_pv["/dev/sde"] = 0


def nearly_full(host: LvmHost) -> None:
    host.free_by_pv["/dev/sde"] = 3


def given_up(host: LvmHost) -> None:
    host.failed.add("/dev/sde")


def otherwise_laid_out(host: LvmHost) -> None:
    segment = replace(host.volume.segments[0], stripes=2, devices=("/dev/sdb", "/dev/sdc"))
    host.volume = replace(host.volume, segments=(segment,))


def rotational(host: LvmHost) -> None:
    """The default is now a cell that was not measured."""
    host.queue = DiskQueue(True, 1280 * KIB)


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (other_disk, "/dev/sde is missing or was replaced"),
        (missing, "/dev/sde is missing or was replaced"),
        (closed, "/dev/sde is full, missing or closed"),
        (full, "/dev/sde is full, missing or closed"),
        (given_up, "the kernel has disabled /dev/sde"),
        (nearly_full, "there is not enough space for the COW area"),
        (otherwise_laid_out, "the volume's layout on its PVs has changed"),
    ],
)
def test_a_recommendation_that_does_not_hold_is_told_in_one_sentence_and_left_aside(
    happens: object, words: str
) -> None:
    host = LvmHost()
    found = tuning(host)
    happens(host)  # type: ignore[operator]
    size, pvs, reason, aside = planned(host, BOTH, found)
    assert (size, pvs) == (64 * KIB, ())
    assert aside == f"the probe of 2026-11-20: its recommendation is ignored: {words}"
    assert reason == f"the disks are not rotational; {aside}"


def test_a_recommendation_follows_its_disk_to_another_path() -> None:
    host = LvmHost()
    found = tuning(host)
    host.pv_uuids |= {"/dev/sdb": pv_uuid("/dev/sde"), "/dev/sde": pv_uuid("/dev/sdb")}
    segment = replace(host.volume.segments[0], devices=("/dev/sde", "/dev/sdc", "/dev/sdd"))
    host.volume = replace(host.volume, segments=(segment,))
    size, pvs, reason, aside = planned(host, BOTH, found)
    assert (size, pvs, aside) == (64 * KIB, ("/dev/sdb",), "")
    assert "with the COW area on /dev/sdb by the probe of 2026-11-20" in reason


# --- PVs that the job names ------------------------------------------------------------------------------------------

FAST = SnapshotConfig(pvs=(pv_uuid("/dev/sde"),), chunk_size=64 * KIB)


def test_a_job_s_uuid_is_followed_to_any_path_and_by_a_tuning() -> None:
    host = LvmHost()
    assert plan_snapshot(host.volume, host.group(), "r1", FAST).pvs == BESIDE
    assert planned(host, replace(FAST, chunk_size=AUTO), tuning(host))[:2] == (64 * KIB, BESIDE)
    faster = tuning(host, {**SPEEDS, (512 * KIB, BESIDE): 900.0})
    assert planned(host, replace(FAST, chunk_size=AUTO), faster)[:2] == (512 * KIB, BESIDE)


def test_a_job_whose_pv_is_gone_has_its_cow_area_anywhere_and_says_why() -> None:
    host = LvmHost()
    assert plan_snapshot(host.volume, host.group(), "r1", FAST).displaced == ""
    host.replace_disk("/dev/sde")
    plan = plan_snapshot(host.volume, host.group(), "r1", FAST)
    assert (plan.pvs, plan.displaced) == (
        (),
        f"{pv_uuid('/dev/sde')} is not a PV of labvg",
    )
    striped = plan_snapshot(host.volume, host.group(), "r1", replace(FAST, pvs=(*FAST.pvs, "/dev/sdb"), stripes=2))
    assert (striped.pvs, striped.striped_over) == ((), ())  # linear: whatever is left may have no room for stripes
    assert striped.displaced == plan.displaced


def test_a_job_that_wants_no_other_place_is_refused_when_its_pv_is_gone() -> None:
    host = LvmHost()
    host.replace_disk("/dev/sde")
    with pytest.raises(SnapshotError, match=r".* is not a PV of labvg") as caught:
        plan_snapshot(host.volume, host.group(), "r1", replace(FAST, pvs_gone=PvsGone.REFUSE))
    assert caught.value.hint == "available: /dev/sdb, /dev/sdc, /dev/sdd, /dev/sde"


def test_a_tuning_made_after_the_loss_counts_for_a_displaced_cow_area() -> None:
    host = LvmHost()
    host.replace_disk("/dev/sde")
    plan = plan_snapshot(host.volume, host.group(), "r1", replace(FAST, chunk_size=AUTO), tuning=tuning(host))
    assert (plan.chunk_size, plan.pvs) == (512 * KIB, ())
    assert plan.displaced


def test_a_default_that_was_not_measured_is_not_judged() -> None:
    host = LvmHost()
    found = tuning(host, {where: speed for where, speed in SPEEDS.items() if where != (512 * KIB, ())})
    rotational(host)
    size, pvs, _, aside = planned(host, BOTH, found)
    assert (size, pvs) == (512 * KIB, ())
    assert aside == "the probe of 2026-11-20: it has not measured the default, chunks of 512 KiB on any PV"


def test_no_room_anywhere_is_refused_as_without_a_tuning() -> None:
    host = LvmHost()
    found = tuning(host)
    host.free_by_pv = dict.fromkeys(host.free_by_pv, 2)
    with pytest.raises(SnapshotError, match="not enough free extents on labvg: need"):
        planned(host, SnapshotConfig(pvs=AUTO, size=SnapshotSize(percent_of_origin=20.0)), found)


# --- in stripes ------------------------------------------------------------------------------------------------------

OWN = ("/dev/sdb", "/dev/sdc", "/dev/sdd")


def striped_tuning(host: LvmHost) -> Tuning:
    """Stripes over the volume's own PVs are best there."""
    found = tuning(host)
    own = (TunedCell(64 * KIB, OWN, (120.0,) * 3), TunedCell(64 * KIB, OWN, (400.0,) * 3, stripes=3))
    return replace(found, cells=found.cells + own)


def striped(host: LvmHost, settings: SnapshotConfig) -> tuple[int, tuple[str, ...], str]:
    plan = plan_snapshot(host.volume, host.group(), "r1", settings, tuning=striped_tuning(host))
    return plan.chunk_size, plan.striped_over, plan.chunk_reason


def test_stripes_are_followed_as_far_as_the_job_leaves_them_open() -> None:
    host = LvmHost()
    size, over, reason = striped(host, BOTH)
    assert (size, over) == (64 * KIB, OWN)
    where = "/dev/sdb, /dev/sdc, /dev/sdd"
    assert reason.startswith(f"the best with the COW area striped over {where} by the probe of 2026-11-20, 300% faster")
    assert striped(host, SnapshotConfig(pvs=AUTO, stripes=1))[1] == ()
    assert striped(host, SnapshotConfig())[1] == OWN  # LVM might have taken any PV, and these are the volume's
    assert striped(host, SnapshotConfig(stripes=1))[1] == ()
    assert striped(host, SnapshotConfig(pvs=BESIDE, chunk_size=64 * KIB))[1] == ()
    backwards = SnapshotConfig(pvs=tuple(reversed(OWN)), chunk_size=64 * KIB)
    assert set(striped(host, backwards)[1]) == set(OWN)
    assert striped(host, SnapshotConfig(pvs=OWN, chunk_size=64 * KIB))[1] == OWN
    assert striped(host, SnapshotConfig(pvs=OWN, stripes=1))[1] == ()


def test_a_job_that_leaves_only_its_stripes_open_is_not_told_of_a_tuning_that_holds_no_more() -> None:
    host = LvmHost()
    found = striped_tuning(host)
    host.free_by_pv["/dev/sdz"] = 100
    plan = plan_snapshot(host.volume, host.group(), "r1", SnapshotConfig(pvs=OWN, chunk_size=64 * KIB), tuning=found)
    assert (plan.striped_over, plan.left_aside) == ((), "")


def test_stripes_go_on_no_disk_that_the_kernel_has_given_up() -> None:
    host = LvmHost()
    host.free_by_pv.update({"/dev/sdb": 200, "/dev/sdc": 200, "/dev/sdd": 500})
    host.failed.add("/dev/sdd")
    plan = plan_snapshot(host.volume, host.group(), "r1", SnapshotConfig(pvs=OWN, stripes=2))
    assert plan.striped_over == ("/dev/sdb", "/dev/sdc")
    with pytest.raises(SnapshotError, match=r"2 have free extents \(/dev/sdb, /dev/sdc\)"):
        plan_snapshot(host.volume, host.group(), "r1", SnapshotConfig(pvs=OWN, stripes=3))


def test_stripes_that_the_job_says_need_no_probe() -> None:
    host = LvmHost()
    plan = plan_snapshot(host.volume, host.group(), "r1", SnapshotConfig(stripes=2))
    assert len(plan.striped_over) == 2
    assert plan_snapshot(host.volume, host.group(), "r1", SnapshotConfig(pvs=OWN)).striped_over == ()
    aside = plan_snapshot(host.volume, host.group(), "r1", SnapshotConfig(pvs=AUTO, stripes=2), tuning=tuning(host))
    assert aside.left_aside == (
        "the probe of 2026-11-20: it has not measured the default, chunks of 64 KiB in 2 stripes on any PV"
    )


@pytest.mark.parametrize(
    ("happens", "words"),
    [
        (lambda host: host.free_by_pv.update({"/dev/sdc": 0}), "/dev/sdc is full, missing or closed"),
        (lambda host: host.closed.add("/dev/sdc"), "/dev/sdc is full, missing or closed"),
        (lambda host: host.failed.add("/dev/sdc"), "the kernel has disabled /dev/sdc"),
        (lambda host: host.free_by_pv.update({"/dev/sdc": 3}), "there is not enough space for the COW area"),
        (otherwise_laid_out, "the volume's layout on its PVs has changed"),
    ],
)
def test_stripes_of_which_one_pv_no_longer_does_are_left_aside(
    happens: Callable[[LvmHost], object], words: str
) -> None:
    host = LvmHost()
    found = striped_tuning(host)
    happens(host)
    plan = plan_snapshot(host.volume, host.group(), "r1", BOTH, tuning=found)
    assert plan.striped_over == ()
    assert plan.left_aside == f"the probe of 2026-11-20: its recommendation is ignored: {words}"


def test_a_thin_volume_takes_auto_for_nothing() -> None:
    host = LvmHost()
    found = tuning(host)
    host.volume = thin_volume()
    assert planned(host, BOTH, found)[:2] == (64 * KIB, ())
