"""Row first, effect second, release the same in every case."""

import pytest

from backupd.host.holdings import held
from backupd.vocabulary.errors import SnapshotError
from backupd.vocabulary.records import Holding, HoldingKind

MOUNT = Holding(HoldingKind.MOUNT, "/run/backupd/mnt/r1")


class Journal:
    """Rows in memory, and what was said to need attention."""

    def __init__(self) -> None:
        self.rows: list[Holding] = []
        self.attentions: list[str] = []

    def hold(self, holding: Holding) -> None:
        self.rows.append(holding)

    def released(self, holding: Holding) -> None:
        if holding in self.rows:
            self.rows.remove(holding)

    def attention(self, text: str) -> None:
        self.attentions.append(text)


class World:
    """What is mounted, and whether it lets itself be unmounted."""

    def __init__(self, *, busy: bool = False) -> None:
        self.mounted: set[str] = set()
        self.busy = busy
        self.releases = {HoldingKind.MOUNT: self.unmount}

    def unmount(self, holding: Holding) -> None:
        if self.busy:
            raise SnapshotError(f"{holding.name} is in use by process 7")
        self.mounted.discard(holding.name)


def test_the_row_is_there_before_the_thing_and_gone_after_it() -> None:
    journal, world = Journal(), World()
    with held(journal, MOUNT, world.releases):
        assert journal.rows == [MOUNT]
        world.mounted.add(MOUNT.name)
    assert (journal.rows, world.mounted) == ([], set())


def test_an_error_gives_it_back_all_the_same() -> None:
    journal, world = Journal(), World()
    with pytest.raises(ValueError, match="in the copy"), held(journal, MOUNT, world.releases):
        world.mounted.add(MOUNT.name)
        raise ValueError("in the copy")
    assert (journal.rows, world.mounted) == ([], set())


def test_a_release_that_fails_unmakes_no_good_backup() -> None:
    journal, world = Journal(), World(busy=True)
    with held(journal, MOUNT, world.releases):
        world.mounted.add(MOUNT.name)
    assert journal.rows == [MOUNT]  # for `backupd recover`
    assert "in use by process 7" in journal.attentions[0]


def test_the_first_error_keeps_the_stage_when_the_release_fails_too() -> None:
    journal, world = Journal(), World(busy=True)
    with pytest.raises(ValueError, match="in the copy") as caught, held(journal, MOUNT, world.releases):
        raise ValueError("in the copy")
    assert "clean-up incomplete" in caught.value.__notes__[0]
    assert journal.rows == [MOUNT]


def test_what_is_kept_is_not_given_back() -> None:
    journal, world = Journal(), World()
    with held(journal, MOUNT, world.releases) as claim:
        world.mounted.add(MOUNT.name)
        claim.keep()
    assert (journal.rows, world.mounted) == ([], {MOUNT.name})


def test_what_is_released_early_is_released_once_and_its_row_is_struck_at_the_end() -> None:
    journal, world = Journal(), World()
    released: list[Holding] = []

    def release(holding: Holding) -> None:
        released.append(holding)
        world.unmount(holding)

    releases = {HoldingKind.MOUNT: release}
    with held(journal, MOUNT, releases) as claim:
        with claim.released_after(releases):
            world.mounted.add(MOUNT.name)
        assert (world.mounted, journal.rows) == (set(), [MOUNT])
    assert (released, journal.rows) == ([MOUNT], [])


def test_what_does_not_let_itself_be_released_early_is_tried_again_at_the_end() -> None:
    journal, world = Journal(), World(busy=True)
    with held(journal, MOUNT, world.releases) as claim:
        with claim.released_after(world.releases):
            world.mounted.add(MOUNT.name)
        world.busy = False
    assert (world.mounted, journal.rows, journal.attentions) == (set(), [], [])
