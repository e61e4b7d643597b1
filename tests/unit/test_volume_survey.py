"""How LVM's facts, the kernel's, the servers' and the catalogue's are joined."""

from pathlib import Path

import pytest

from backupd.config import JobConfig, SnapshotConfig
from backupd.config.fields import SnapshotSize
from backupd.operations.measure.volume_survey import only, survey
from backupd.vocabulary.errors import Cancelled, ConfigurationError, ServerError, SnapshotError, UsageError
from backupd.vocabulary.extents import (
    HostElsewhere,
    HostHere,
    JobHere,
    KnownFrom,
    SnapshotHere,
    Survey,
    SurveyedVolume,
    Use,
    UseKind,
)
from backupd.vocabulary.volumes import DeviceNumber, MountPoint
from tests.fakes.surveyed import DATADIR, SurveyedHost

EXTENT = 4 << 20


def job(name: str = "nightly", host: str = "db1", **snapshot: object) -> JobConfig:
    return JobConfig(name=name, host=host, targets=("vault",), snapshot=SnapshotConfig(**snapshot))  # type: ignore[arg-type]


def volume(found: Survey, name: str) -> SurveyedVolume:
    return next(one for group in found.groups for one in group.volumes if one.placed.volume.name == name)


# --- whose data lies where --------------------------------------------------------------------------------------------


def test_job_uses_the_volume_that_its_server_says() -> None:
    found = SurveyedHost("mixed", {"db1": DATADIR}).survey(job())
    data = volume(found, "data")
    assert data.hosts == (HostHere("db1", KnownFrom.SERVER),)
    assert data.jobs == (JobHere("nightly", KnownFrom.SERVER, needs=208 * EXTENT),)  # 20 % of 1036 extents
    assert (volume(found, "own").hosts, volume(found, "own").jobs) == ((), ())
    assert found.elsewhere == ()


@pytest.mark.parametrize(
    "error",
    [ServerError("gone"), SnapshotError("no folder"), ConfigurationError("no password"), OSError("no certificate")],
)
def test_server_that_does_not_tell_is_where_its_last_run_was(error: Exception) -> None:
    host = SurveyedHost("mixed", {"db1": error}, {"weekly": "labvg/data"})
    found = host.survey(job(), job("weekly"))
    assert volume(found, "data").hosts == (HostHere("db1", KnownFrom.LAST_RUN),)
    assert [one.name for one in volume(found, "data").jobs] == ["nightly", "weekly"]
    assert {one.known_from for one in volume(found, "data").jobs} == {KnownFrom.LAST_RUN}


def test_catalogue_is_not_asked_where_the_server_answers() -> None:
    host = SurveyedHost("mixed", {"db1": DATADIR}, {"nightly": "labvg/own"})
    found = host.survey(job())
    assert (host.asked, volume(found, "own").jobs) == ([], ())


def test_server_that_does_not_tell_and_had_no_run_is_unknown() -> None:
    found = SurveyedHost("mixed").survey(job())
    assert found.elsewhere == (HostElsewhere("db1", ("nightly",), False, "db1 does not answer"),)
    assert all(one.jobs == () for one in found.groups[0].volumes)


def test_server_on_another_disk_lies_elsewhere() -> None:
    other = MountPoint(Path("/srv/plain"), DeviceNumber(8, 1), "ext4")
    found = SurveyedHost("mixed", {"db1": other}).survey(job())
    words = "on /srv/plain (ext4), which is on none of these volumes"
    assert found.elsewhere == (HostElsewhere("db1", ("nightly",), True, words),)


def test_last_run_s_volume_that_is_no_more_does_not_hide_the_host() -> None:
    found = SurveyedHost("mixed", {}, {"nightly": "gone/data"}).survey(job())
    assert [(one.name, one.known) for one in found.elsewhere] == [("db1", False)]


def test_datadir_is_not_on_an_inactive_volume_whose_device_is_minus_one() -> None:
    nowhere = MountPoint(Path("/srv"), DeviceNumber(-1, -1), "xfs")
    found = SurveyedHost("snapshots", {"db1": nowhere}).survey(job())
    assert volume(found, "idle").hosts == ()


def test_a_cancellation_is_no_silence_of_the_server() -> None:
    with pytest.raises(Cancelled):
        SurveyedHost("mixed", {"db1": Cancelled("stop")}).survey(job())


# --- room -------------------------------------------------------------------------------------------------------------


def test_snapshot_that_is_too_large_for_the_group_is_told_with_its_hint() -> None:
    found = SurveyedHost("mixed", {"db1": DATADIR}).survey(job(pvs=("/dev/ubdb",)))
    (one,) = volume(found, "data").jobs
    assert (one.fits, one.needs) == (False, None)
    assert one.refusal == "not enough free extents on /dev/ubdb of labvg: need 208, have 127"
    assert one.hint.startswith("lower snapshot.size (now auto: 20%, or what past runs have filled)")


def test_room_is_the_group_s_by_disk() -> None:
    room = volume(SurveyedHost("mixed").survey(), "data").room
    assert room is not None
    assert room.by_pv == {
        "/dev/ubdb": 127 * EXTENT,
        "/dev/ubdc": 126 * EXTENT,
        "/dev/ubdd": 124 * EXTENT,
        "/dev/ubde": 456 * EXTENT,
    }
    assert (room.free, room.pool) == (833 * EXTENT, "")


def test_room_of_a_thin_volume_is_its_pool_s_and_a_job_needs_that_share_of_it() -> None:
    thin = MountPoint(Path("/srv/thin"), DeviceNumber(254, 4), "xfs")
    host = SurveyedHost("thin", {"db1": thin})
    device = volume(host.survey(), "thin").placed.volume.device
    found = SurveyedHost("thin", {"db1": MountPoint(thin.path, device, "xfs")}).survey(
        job(size=SnapshotSize(percent_of_origin=50.0)), job("large", size=SnapshotSize(percent_of_origin=100.0))
    )
    told = volume(found, "thin")
    assert told.room is not None
    assert (told.room.free, told.room.by_pv, told.room.pool) == (19 * EXTENT, {}, "labvg/pool")
    assert [(one.name, one.needs, one.fits) for one in told.jobs] == [
        ("nightly", 50 << 20, True),
        ("large", None, False),
    ]
    assert "not enough space in thin pool labvg/pool" in told.jobs[1].refusal


@pytest.mark.parametrize(("state", "name"), [("thin", "pool"), ("snapshots", "theirs")])
def test_pool_and_snapshot_have_no_room_for_snapshots(state: str, name: str) -> None:
    assert volume(SurveyedHost(state).survey(), name).room is None


# --- what runs on it --------------------------------------------------------------------------------------------------


def test_mounts_swap_and_holders_are_told() -> None:
    uses = (Use(UseKind.MOUNT, "/srv/mysql", "xfs"), Use(UseKind.HOLDER, "crypt"))
    assert volume(SurveyedHost("mixed", uses={DATADIR.device: uses}).survey(), "data").uses == uses


def test_volume_that_is_open_to_nobody_seen_is_told_open() -> None:
    found = SurveyedHost("mixed", uses={}).survey()
    assert volume(found, "data").uses == (Use(UseKind.OPEN),)
    assert volume(found, "own").uses == ()  # it is not open


def test_pool_is_not_told_open_because_its_volumes_are() -> None:
    assert volume(SurveyedHost("thin", uses={}).survey(), "pool").uses == ()


def test_snapshots_are_told_with_whose_they_are() -> None:
    found = SurveyedHost("snapshots").survey()
    assert volume(found, "own").snapshots == (
        SnapshotHere("backupd-r1", thin=False, run_id="r1"),
        SnapshotHere("theirs", thin=False, run_id=None),
    )
    assert (volume(found, "backupd-r1").run_id, volume(found, "theirs").run_id) == ("r1", None)
    assert volume(SurveyedHost("thin").survey(), "thin").snapshots == (
        SnapshotHere("backupd-r2", thin=True, run_id="r2"),
        SnapshotHere("thin_snap", thin=True, run_id=None),
    )


# --- what is asked for ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", ["labvg/own", "/dev/labvg/own"])
def test_one_volume_is_told_with_its_whole_group(wanted: str) -> None:
    found = only(SurveyedHost("mixed").survey(job()), wanted)
    assert [one.placed.volume.name for one in found.groups[0].volumes] == ["own"]
    assert len(found.groups[0].placed.volumes) == 2
    assert found.elsewhere == ()


def test_one_group_is_told_without_the_others() -> None:
    found = only(SurveyedHost("foreign").survey(), "foreign")
    assert [group.placed.room.name for group in found.groups] == ["foreign"]


@pytest.mark.parametrize(
    ("state", "wanted", "message", "hint"),
    [
        ("foreign", "nosuch", "no volume group 'nosuch'", "there are: foreign, labvg"),
        ("foreign", "", "no volume group ''", "there are: foreign, labvg"),
        ("mixed", "labvg/x", "no logical volume labvg/x", "labvg has: data, own"),
        ("foreign", "foreign/x", "no logical volume foreign/x", "foreign has none"),
        (
            "thin",
            "labvg/pool_tdata",
            ("labvg/pool_tdata is an internal part of labvg/pool"),
            "backupd volumes labvg/pool",
        ),
        (
            "thin",
            "labvg/[pool_tdata]",
            "labvg/[pool_tdata] is an internal part of labvg/pool",
            "backupd volumes labvg/pool",
        ),
    ],
)
def test_names_that_there_are_not_are_refused(state: str, wanted: str, message: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        only(SurveyedHost(state).survey(), wanted)
    assert (caught.value.message, caught.value.hint) == (message, hint)


def test_host_without_lvm_volumes_says_so() -> None:
    with pytest.raises(UsageError) as caught:
        only(Survey(()), "vg0")
    assert caught.value.hint == "this host has none: see `vgs`"


def test_survey_of_a_host_without_configuration() -> None:
    found = survey((), (), SurveyedHost("mixed").sources)
    assert [one.placed.volume.name for one in found.groups[0].volumes] == ["data", "own"]
