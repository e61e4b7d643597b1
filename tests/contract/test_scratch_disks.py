"""What every implementation of `ScratchDisks` promises: the stories' fake, and, in the lab, LVM and mdadm themselves.

With `BACKUPD_LAB_SPARE_DISKS` (set in a lab that has spare disks) the suite also runs as root on those.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd.host import process
from backupd.lvm import ScratchDisks, disks_of, holding_on_disks, scratch_name
from backupd.lvm.blank import signatures
from backupd.lvm.scratch_disks import LinuxScratchDisks
from backupd.vocabulary.errors import Refused, SnapshotError
from backupd.vocabulary.records import Holding, HoldingKind
from backupd.vocabulary.scratch_layouts import KIB, LayoutKind, ScratchLayout
from tests.fakes.scratch_disks import FakeScratchDisks, OnDisks
from tests.fakes.target import MACHINE

SPARE = tuple(os.environ.get("BACKUPD_LAB_SPARE_DISKS", "").split())
RUN, OTHER = "20261122-005204-ab12", "20261122-005204-cd34"
GROUP, ARRAY = HoldingKind.SCRATCH_GROUP, HoldingKind.SCRATCH_ARRAY
NAME = scratch_name(RUN)


@dataclass(frozen=True)
class Host:
    """Two empty disks and what can be done to them past the contract."""

    scratch: ScratchDisks
    disks: tuple[str, ...]
    alias: str  # another path to the first
    put: Callable[[str], None]  # a file system
    put_data: Callable[[str], None]  # in no known format
    contents: Callable[[str], tuple[str, ...]]
    foreign_group: Callable[[str], AbstractContextManager[None]]  # of this name, on both disks

    @property
    def layout(self) -> ScratchLayout:
        return ScratchLayout(LayoutKind.RAID0, self.disks, stripe_size=64 * KIB)

    def ours(self) -> list[tuple[Holding, str]]:
        return [(holding, run_id) for holding, run_id in self.scratch.ours() if run_id in (RUN, OTHER)]

    def everything(self) -> list[tuple[str, ...]]:
        return [self.contents(disk) for disk in self.disks]


@pytest.fixture(params=["fake", "linux"] if SPARE else ["fake"])
def host(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Host]:
    alias = tmp_path / "alias"
    made = _fake(str(alias)) if request.param == "fake" else _linux(alias)
    yield made
    for holding, run_id in made.ours():
        remove = made.scratch.remove_group if holding.kind is GROUP else made.scratch.remove_array
        remove(holding.name, disks_of(holding), run_id)
    if request.param == "linux":
        zero(*made.disks)


def _fake(alias: str) -> Host:
    fake = FakeScratchDisks()
    disks = tuple(fake.sizes)
    fake.aliases[alias] = disks[0]

    @contextmanager
    def foreign_group(vg: str) -> Iterator[None]:
        stranger = OnDisks(GROUP, vg, disks, None)
        fake.made.append(stranger)
        yield
        fake.made.remove(stranger)

    def put(disk: str) -> None:
        fake.held[disk] = "ext4"

    return Host(fake, disks, alias, put, fake.leftovers.add, fake.contents, foreign_group)


def _linux(alias: Path) -> Host:
    alias.symlink_to(SPARE[0])

    @contextmanager
    def foreign_group(vg: str) -> Iterator[None]:
        _run("vgcreate", "-qq", vg, *SPARE)
        yield
        _run("vgremove", "-qq", vg)
        _run("pvremove", "-qq", *SPARE)

    def put(disk: str) -> None:
        _run("mkfs.ext4", "-q", "-E", "nodiscard", disk)

    def put_data(disk: str) -> None:
        with Path(disk).open("r+b") as file:
            file.seek(1 << 20)
            file.write(b"raw" * 1000)

    def contents(disk: str) -> tuple[str, ...]:
        return signatures(Path(disk))

    return Host(LinuxScratchDisks(MACHINE), SPARE, str(alias), put, put_data, contents, foreign_group)


def zero(*disks: str) -> None:
    """Nothing is on them, in whatever format."""
    for disk in disks:
        _run("blkdiscard", "--zeroout", "--force", disk)


def _run(*argv: str) -> None:
    process.run(list(argv), timeout_seconds=60)


def test_an_empty_disk_is_told_with_its_size(host: Host) -> None:
    host.scratch.require_distinct(host.disks)
    assert [host.scratch.require_empty(Path(disk)) for disk in host.disks] == [512 << 20] * 2


def test_a_disk_that_holds_something_is_refused_by_name_and_left_as_it_is(host: Host) -> None:
    host.put(host.disks[1])
    with pytest.raises(Refused, match=f"{host.disks[1]} is not empty: it has ext4") as refused:
        host.scratch.require_empty(Path(host.disks[1]))
    assert f"wipefs --all {host.disks[1]}" in refused.value.hint
    with pytest.raises(Refused, match="it has ext4"):
        host.scratch.make_group(NAME, host.disks, RUN)
    with pytest.raises(Refused, match="it has ext4"):
        host.scratch.make_array(NAME, host.layout, RUN)
    assert host.everything() == [(), ("ext4",)], "and nothing was done to the other one"


def test_a_disk_with_data_in_no_known_format_is_refused_unless_nobody_needs_it(host: Host) -> None:
    host.put_data(host.disks[1])
    assert host.everything() == [(), ()]
    with pytest.raises(Refused, match=f"{host.disks[1]} is not empty: it has data") as refused:
        host.scratch.require_empty(Path(host.disks[1]))
    assert "--overwrite-leftovers" in refused.value.hint
    assert host.scratch.require_empty(Path(host.disks[1]), overwrite_leftovers=True) == 512 << 20


def test_a_disk_that_is_not_there_is_refused(host: Host) -> None:
    with pytest.raises(Refused, match="/dev/nowhere does not exist") as refused:
        host.scratch.require_empty(Path("/dev/nowhere"))
    assert refused.value.hint


def test_a_disk_that_is_named_twice_is_refused_by_whatever_paths(host: Host) -> None:
    for disks in ((host.disks[0], host.disks[0]), (host.disks[0], host.alias)):
        for refusing in (
            lambda disks=disks: host.scratch.require_distinct(disks),
            lambda disks=disks: host.scratch.make_group(NAME, disks, RUN),
            lambda disks=disks: host.scratch.make_array(NAME, ScratchLayout(LayoutKind.RAID0, disks, 64 * KIB), RUN),
        ):
            with pytest.raises(Refused, match="is given"):
                refusing()
    assert host.everything() == [(), ()]


@pytest.mark.parametrize("run_id", ["a_b", "x" * 25])
def test_a_run_whose_disks_could_not_be_found_again_gets_none(host: Host, run_id: str) -> None:
    with pytest.raises(Refused, match="is not a valid disk label, so a dead run's disks could not be found again"):
        host.scratch.make_group("vg", host.disks, run_id)
    with pytest.raises(Refused, match="is not a valid disk label, so a dead run's disks could not be found again"):
        host.scratch.make_array(scratch_name(run_id), host.layout, run_id)
    assert host.everything() == [(), ()]


def test_a_group_is_found_as_the_holding_that_it_is_and_leaves_the_disks_empty(host: Host) -> None:
    host.scratch.make_group(NAME, host.disks, RUN)
    assert host.ours() == [(holding_on_disks(GROUP, host.disks, RUN), RUN)]
    assert host.everything() == [("LVM2_member",)] * 2
    host.scratch.remove_group(NAME, host.disks, RUN)
    assert host.everything() == [(), ()]
    assert host.ours() == []
    host.scratch.remove_group(NAME, host.disks, RUN)


def test_an_array_is_found_as_the_holding_that_it_is_and_leaves_the_disks_empty(host: Host) -> None:
    host.scratch.make_array(NAME, host.layout, RUN)
    assert host.ours() == [(holding_on_disks(ARRAY, host.disks, RUN), RUN)]
    assert host.everything() == [("linux_raid_member",)] * 2
    host.scratch.remove_array(NAME, host.disks, RUN)
    assert host.everything() == [(), ()]
    assert host.ours() == []
    host.scratch.remove_array(NAME, host.disks, RUN)


def test_one_after_the_other_can_be_made_of_the_same_disks(host: Host) -> None:
    for _ in range(2):
        host.scratch.make_group(NAME, host.disks, RUN)
        host.scratch.remove_group(NAME, host.disks, RUN)
        host.scratch.make_array(NAME, host.layout, RUN)
        host.scratch.remove_array(NAME, host.disks, RUN)
    assert host.everything() == [(), ()]


def test_disks_in_a_group_or_an_array_are_empty_for_nobody(host: Host) -> None:
    host.scratch.make_group(NAME, host.disks, RUN)
    with pytest.raises(Refused):
        host.scratch.make_array(scratch_name(OTHER), host.layout, OTHER)
    host.scratch.remove_group(NAME, host.disks, RUN)
    host.scratch.make_array(NAME, host.layout, RUN)
    with pytest.raises(Refused):
        host.scratch.make_group(scratch_name(OTHER), host.disks, OTHER)
    assert [run_id for _, run_id in host.ours()] == [RUN]


def test_what_is_another_runs_stays(host: Host) -> None:
    host.scratch.make_group(NAME, host.disks, RUN)
    with pytest.raises(SnapshotError, match=f"has no tag of run {OTHER}") as told:
        host.scratch.remove_group(NAME, host.disks, OTHER)
    assert told.value.hint
    host.scratch.remove_group(scratch_name(OTHER), host.disks, OTHER)
    assert [run_id for _, run_id in host.ours()] == [RUN]
    host.scratch.remove_group(NAME, host.disks, RUN)
    host.scratch.make_array(NAME, host.layout, RUN)
    host.scratch.remove_array(NAME, host.disks, OTHER)
    assert [run_id for _, run_id in host.ours()] == [RUN]


def test_a_group_of_somebody_else_of_the_same_name_is_left_alone(host: Host) -> None:
    with host.foreign_group(NAME):
        before = host.everything()
        assert host.ours() == []
        with pytest.raises(Refused):
            host.scratch.make_group(NAME, host.disks, RUN)
        with pytest.raises(SnapshotError, match=f"has no tag of run {RUN}"):
            host.scratch.remove_group(NAME, host.disks, RUN)
        assert host.everything() == before == [("LVM2_member",)] * 2


def test_an_array_without_mdadm_is_told_with_the_package(monkeypatch: pytest.MonkeyPatch, host: Host) -> None:
    if isinstance(host.scratch, FakeScratchDisks):
        host.scratch.has_mdadm = False
    monkeypatch.setattr(process, "found", lambda program: program != "mdadm")
    with pytest.raises(SnapshotError, match="mdadm is not installed") as told:
        host.scratch.make_array(NAME, host.layout, RUN)
    assert "apt-get install mdadm" in told.value.hint
    assert host.everything() == [(), ()]
