"""What dead benches left: given back by catalogue or by marks, in one go, whatever the moment of death.

As in `test_recover` they die for real: a forked child runs the bench and kills itself with SIGKILL. What a kernel would
keep of its volumes, mounts and disks the child writes down first, because the host is a fake.
"""

import os
import pickle
import signal
from collections.abc import Callable

import pytest

from backupd.host.claims import Claims
from backupd.vocabulary.benches import BenchRequest
from backupd.vocabulary.errors import Refused
from backupd.vocabulary.records import HoldingKind, RunStatus
from tests.story.bench_world import ON_DISKS, SHORT, BenchWorld
from tests.story.test_recover import wait_until_dead
from tests.story.world import World


def die_at(bench: BenchWorld, event: str, request: BenchRequest) -> None:
    """A bench is killed when the event is about to happen."""
    kernel, agreed = bench.world.base / "kernel", bench.plan(request)
    child = os.fork()
    if child == 0:

        def die() -> None:
            host = bench.host
            kernel.write_bytes(pickle.dumps((host.lvs, host.scratch, host.mounted, bench.disks.made)))
            os.kill(os.getpid(), signal.SIGKILL)

        happens(bench, event, die)
        try:
            bench.take(request, agreed=agreed)
        finally:
            os._exit(1)  # it should not live to get here
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    host = bench.host
    host.lvs, host.scratch, host.mounted, bench.disks.made = pickle.loads(kernel.read_bytes())
    for run_id in ("b1", "b1-1"):
        wait_until_dead(bench.world, run_id)


def happens(bench: BenchWorld, event: str, what: Callable[[], object]) -> None:
    """The event of the fakes, or one of the windows."""
    if event == "a load's window":
        bench.during = what
    elif event == "a probe's window":
        bench.during = lambda: what() if any(lv.live for lv in bench.host.lvs.values()) else None
    elif event.startswith("disks."):

        def happened(verb: str) -> None:
            if f"disks.{verb}" == event:
                what()

        bench.disks.happened = happened
    else:
        bench.world.at[event] = what


@pytest.fixture
def bench(world: World) -> BenchWorld:
    return BenchWorld(world)


@pytest.fixture
def on_disks(world: World) -> BenchWorld:
    return BenchWorld.with_disks(world)


EVENTS = [
    *("host.create_scratch", "host.format", "host.mount_scratch", "a load's window", "host.prepared", "host.create"),
    *("a probe's window", "host.mount", "host.remove", "host.unmount"),
]


@pytest.mark.exhaustive
@pytest.mark.parametrize("event", EVENTS)
def test_a_bench_that_was_killed_at_any_moment_is_cleaned_up_after_in_one_go(bench: BenchWorld, event: str) -> None:
    die_at(bench, event, SHORT)
    assert bench.record().status is RunStatus.RUNNING
    bench.recover()
    assert bench.world.left() == []
    assert (bench.host.scratch, bench.host.lvs, bench.host.mounted) == ({}, {}, {})
    record = bench.record()
    assert record.status is RunStatus.FAILED
    assert record.error is not None
    assert record.error.code == "died"


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    "event", [*EVENTS, "disks.make_group", "disks.remove_group", "disks.make_array", "disks.remove_array"]
)
def test_the_disks_of_a_killed_bench_are_empty_again(on_disks: BenchWorld, event: str) -> None:
    die_at(on_disks, event, ON_DISKS)
    on_disks.recover()
    assert on_disks.world.left() == []
    assert on_disks.disks.contents("/dev/sdx") == on_disks.disks.contents("/dev/sdy") == ()


@pytest.mark.parametrize("event", ["a load's window", "a probe's window"])
def test_marks_alone_are_enough(on_disks: BenchWorld, event: str) -> None:
    die_at(on_disks, event, ON_DISKS)
    for file in on_disks.world.places.catalogue.parent.glob("catalogue.sqlite*"):
        file.unlink()
    kinds = {holding.kind for holding in on_disks.recover().given_back}
    assert kinds >= {HoldingKind.SNAPSHOT, HoldingKind.MOUNT, HoldingKind.SCRATCH_GROUP}
    assert on_disks.world.left() == []
    assert on_disks.disks.contents("/dev/sdx") == ()


@pytest.mark.parametrize("event", ["a load's window", "disks.remove_array"])
def test_disks_that_a_dead_bench_left_are_refused_with_the_way_to_have_them_back(
    on_disks: BenchWorld, event: str
) -> None:
    die_at(on_disks, event, ON_DISKS)
    with pytest.raises(Refused, match="/dev/sdx is not empty") as refused:
        on_disks.plan(ON_DISKS)
    assert refused.value.hint == "run b1 of backupd is using it: wait for it; if it died: backupd recover"
    on_disks.recover()
    assert on_disks.plan(ON_DISKS).disks == ("/dev/sdx", "/dev/sdy")


def test_a_volume_that_the_catalogue_and_its_tag_tell_of_is_given_back_once(bench: BenchWorld) -> None:
    die_at(bench, "a load's window", SHORT)
    given_back = [holding.name for holding in bench.recover().given_back]
    assert given_back.count("labvg/backupd-b1-linear") == 1


def test_a_probe_s_snapshot_goes_before_the_scratch_volume_that_it_is_of(bench: BenchWorld) -> None:
    die_at(bench, "a probe's window", SHORT)
    recovery = bench.recover()
    assert recovery.runs == ("b1-1", "b1")
    names = [holding.name for holding in recovery.given_back]
    assert names.index("labvg/backupd-b1-1") < names.index("labvg/backupd-b1-linear")


def test_a_dead_bench_and_its_probe_are_no_job_to_be_started_again(bench: BenchWorld) -> None:
    die_at(bench, "a probe's window", SHORT)
    bench.recover()
    with bench.world.catalogue() as catalogue:
        errors = [catalogue.bench("b1").error, catalogue.probe("b1-1").error]
    hints = [error.hint for error in errors if error is not None]
    assert hints == [
        "everything that it held was released; none of its figures were kept: run `backupd bench layouts` again when"
        " convenient",
        "everything that it held was released; none of its figures were kept: probe again when convenient",
    ]


def test_the_next_bench_cleans_up_after_a_dead_one(bench: BenchWorld) -> None:
    die_at(bench, "a probe's window", SHORT)
    bench.take(SHORT, run_id="b2")
    assert bench.world.left() == []
    assert bench.record("b2").status is RunStatus.SUCCESS
    assert bench.record("b1").status is RunStatus.FAILED


def test_a_live_bench_is_left_alone(bench: BenchWorld) -> None:
    die_at(bench, "a load's window", SHORT)
    before = bench.world.left()
    with Claims(bench.world.places.run).run("b1"):  # as if its process lived
        bench.recover()
        assert [one for one in bench.world.left() if "lock file" not in one] == before
    bench.recover()
    assert bench.world.left() == []
