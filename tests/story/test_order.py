"""What comes before what, asked of the world at the moment when the next thing happens."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from backupd.catalogue.store import Catalogue
from backupd.operations.backup.phases import BackupTelling
from backupd.vocabulary.records import HoldingKind, Phase, RunStatus
from tests.fakes.server import FakeCanary
from tests.story.world import World


def answers_at(world: World, event: str, question: Callable[[], Any]) -> list[Any]:
    """What the question is answered with, each time that the event is about to happen."""
    answers: list[Any] = []
    world.at[event] = lambda: answers.append(question())
    return answers


def kinds_held(world: World) -> set[HoldingKind]:
    with Catalogue.open(world.places.catalogue) as other_process:
        return {holding.kind for _, holding in other_process.holdings("r1")}


def test_lock_is_released_before_the_copy_starts(world: World) -> None:
    at_mount = answers_at(world, "host.mount", lambda: world.database.locked)
    at_copy = answers_at(world, "target.writing", lambda: world.database.locked)
    world.back_up()
    assert (at_mount, at_copy[0]) == ([False], False)


def test_lock_is_held_while_the_snapshot_is_taken(world: World) -> None:
    locked = answers_at(world, "host.create", lambda: world.database.locked)
    world.back_up()
    assert locked == [True]


def test_the_volume_is_synced_and_the_shell_is_warm_before_the_lock_is_asked_for(world: World) -> None:
    synced: list[None] = []
    world.at["sync"] = lambda: synced.append(None)
    ready = answers_at(world, "lock.asked", lambda: (len(synced), world.host.shells))
    world.back_up()
    assert ready == [(1, 1)]


def test_lvm_s_shell_has_ended_before_the_settle_gate_waits(world: World) -> None:
    shells = answers_at(world, "host.mount", lambda: world.host.shells)
    world.back_up()
    assert shells == [0]


def test_snapshot_and_probe_files_are_gone_before_the_verification(world: World) -> None:
    reading = answers_at(world, "target.reading", lambda: (list(world.host.lvs), list(world.mount_root.glob(".*"))))
    world.back_up()
    assert reading == [([], [])] * 3  # data, binlog, index


def test_the_manifest_comes_after_everything_was_read_back(world: World) -> None:
    there = answers_at(world, "target.reading", (world.backups / "r1" / "manifest.json").exists)
    world.back_up()
    assert there == [False] * 3  # data, binlog, index


def test_the_run_is_no_success_before_the_manifest_is_there(world: World) -> None:
    status = answers_at(world, "target.publish", lambda: world.row().status)
    world.back_up()
    assert status == [RunStatus.RUNNING]


def test_nothing_is_written_to_the_catalogue_between_lock_request_and_unlock(world: World) -> None:
    def content() -> dict[str, bytes]:
        catalogue: Path = world.places.catalogue
        return {file.name: file.read_bytes() for file in catalogue.parent.glob(f"{catalogue.name}*")}

    asked = answers_at(world, "lock.asked", content)
    created = answers_at(world, "host.create", content)
    ended = answers_at(world, "lock.ended", content)
    world.back_up()
    assert any(name.endswith("-wal") for name in asked[0])
    assert asked == created == ended


@pytest.mark.parametrize(
    ("event", "kind"),
    [
        ("probe.prepare", HoldingKind.PROBE_FILES),
        ("host.prepared", HoldingKind.SNAPSHOT),
        ("host.mount", HoldingKind.MOUNT),
        ("target.writing", HoldingKind.PARTIAL),
    ],
)
def test_the_row_of_a_thing_is_durable_before_the_thing_is_made(world: World, event: str, kind: HoldingKind) -> None:
    held = answers_at(world, event, lambda: kinds_held(world))
    world.back_up()
    assert held
    assert all(kind in kinds for kinds in held)


def test_the_first_canary_row_is_before_the_lock_and_the_second_after_it(world: World) -> None:
    asked = answers_at(world, "lock.asked", lambda: list(world.database.rows))
    ended = answers_at(world, "lock.ended", lambda: list(world.database.rows))
    world.back_up()
    assert asked == ended == [[("r1", "before")]]
    assert world.database.rows == [("r1", "before"), ("r1", "after")]
    assert FakeCanary.table == world.target.manifest("nightly", "r1").canary


def test_a_baseline_is_measured_before_the_lock(world: World) -> None:
    windows = answers_at(world, "lock.asked", lambda: world.probe.windows)
    world.back_up()
    assert windows == [1]


def test_no_canary_row_is_written_where_the_job_wants_none(world: World) -> None:
    world.with_canary = False
    world.back_up()
    assert [moment for _, moment in world.database.rows] == []


def test_a_progress_bar_hears_the_phases_in_their_order(world: World) -> None:
    heard: list[Phase] = []
    world.back_up(telling=BackupTelling(phase=heard.append))
    assert heard == [
        Phase.PREFLIGHT,
        Phase.BASELINE,
        Phase.LOCK_WAIT,
        Phase.SETTLE,
        Phase.COPY,
        Phase.RELEASE,
        Phase.VERIFY,
    ]


def test_progress_ends_at_all_of_it(world: World) -> None:
    heard: list[tuple[int, int]] = []
    world.back_up(telling=BackupTelling(copied=lambda done, total: heard.append((done, total))))
    assert [done for done, _ in heard] == sorted(done for done, _ in heard)
    assert all(done <= total for done, total in heard)
    assert heard[-1][0] > 0.9 * heard[-1][1]


def test_progress_counts_the_binlog_too(world: World) -> None:
    world.database.offset = 1 << 20
    (world.datadir / "bin.000001").write_bytes(bytes(2 << 20))
    heard: list[tuple[int, int]] = []
    row = world.back_up(telling=BackupTelling(copied=lambda done, total: heard.append((done, total))))
    assert heard[-1][1] == pytest.approx(row.backups[0].bytes_read, rel=0.05)
