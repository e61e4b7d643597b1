"""A catalogue whose file was damaged: nothing of it passes for good, and nothing that meets it is called a bug.

Each page of a catalogue with rows in every table is zeroed, or changed by some bits. Either `require_whole` says so, or
nothing that was acknowledged is lost: SQLite keeps no checksums, so that a changed letter within a text is a text.
"""

import json
import random
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.policy.timetable import Timetable
from backupd.vocabulary.errors import CatalogueError, ExitStatus, UsageError
from backupd.vocabulary.schedule import Activity
from tests.many_runs import JOBS, make_catalogue
from tests.share import seeded

RUNS = 120  # the hundredth is a bench
PAGE = 4096  # bytes, SQLite's own default
CHANGES = seeded(6, usual=1)  # of a page, beside that it is zeroed
ONE_IN = seeded(1, usual=9)  # so many pages
PARTS = 6  # of the pages, each a test: as one, all of them would take longer than a test may


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound catalogue that nobody has open: there is nothing beside the file."""
    path = tmp_path_factory.mktemp("whole") / "catalogue.db"
    make_catalogue(path, RUNS, samples_per_run=2)
    with direct(path, busy_timeout_seconds=1) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path


@pytest.fixture
def path(whole: Path, path_in_memory: Path) -> Path:
    """A copy, to be damaged."""
    return Path(shutil.copy(whole, path_in_memory / "catalogue.db"))


def read_everything(catalogue: Catalogue) -> dict[str, str]:
    """What a person, the pages and the daemon read; the status of each run that is told.

    Raises:
        CatalogueError: of the file's damage.
    """
    now = datetime.now(UTC)
    listed = catalogue.runs(limit=None)
    for run in listed[:20]:
        with suppress(UsageError):  # its row and its index disagree
            catalogue.run(run.run_id)
    catalogue.probes(limit=None)
    catalogue.benches(limit=None, samples=True)
    catalogue.records(JOBS, at=now, samples=True)
    catalogue.costs()
    catalogue.besides()
    catalogue.stored()
    catalogue.holdings()
    catalogue.unfinished()
    catalogue.slots(limit=None)
    catalogue.newest_slots(before=now)
    catalogue.pauses()
    catalogue.audit_entries(limit=None)
    catalogue.audit_trail()
    catalogue.gone_by()
    catalogue.identity()
    return {run.run_id: run.status.value for run in listed}


def told_of(path: Path) -> tuple[str, dict[str, str] | None]:
    """What is said of the file as a whole, empty where nothing; and what its runs are, None where it cannot be read.

    Whatever else than a CatalogueError with a hint is raised is a fault, and so is damage that is met while reading and
    that the check of the whole file has not found.
    """
    runs = None
    whole: list[CatalogueError] = []
    read: list[CatalogueError] = []
    try:
        with Catalogue.open(path) as catalogue:
            catalogue.require_whole()
    except CatalogueError as error:
        whole.append(error)
    try:
        with Catalogue.open(path) as catalogue:
            runs = read_everything(catalogue)
    except CatalogueError as error:
        read.append(error)
    for raised in (*whole, *read):
        assert raised.hint
        assert raised.exit_status is ExitStatus.CATALOGUE
    assert whole or not read, read
    return whole[0].message if whole else "", runs


def damage(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)


def pages(path: Path) -> Iterator[int]:
    """The first one, and then one in so many; in `make test-all` all."""
    yield from range(0, path.stat().st_size // PAGE, ONE_IN)


def changes(page: bytes, seed: int) -> Iterator[bytes]:
    """The same page with a few bits that are others."""
    drawn = random.Random(seed)
    for _ in range(CHANGES):
        changed = bytearray(page)
        for _ in range(drawn.choice((1, 4, 32))):
            changed[drawn.choice((drawn.randrange(PAGE), drawn.randrange(64)))] ^= 1 << drawn.randrange(8)
        yield bytes(changed)


def test_a_sound_catalogue_is_whole(path: Path) -> None:
    with Catalogue.open(path) as catalogue:
        assert catalogue.faults() == []
        catalogue.require_whole()
        assert catalogue.rows() > RUNS
    assert path.stat().st_size % PAGE == 0


TOLD = {"activity": "backup", "cron": "0 2 * * *", "zone": "UTC", "offset_seconds": 0.0}
TOLD |= {"since": "2026-11-20T04:00:00+00:00"}


@pytest.mark.parametrize(
    "detail",
    ['{"activity": "bacjup"}', '{"activity": "backup", "cron": "0 2 * * *"}', "[]", "{", '{"activity": []}', "[" * 9999]
    + [json.dumps({**TOLD, "since": since}) for since in ("2026-11-20", "2026-11-20T04:00:00", 7)]
    + [json.dumps({**TOLD, "cron": cron}) for cron in ("0 3 * * x", "0 3 * *", "")]
    + [json.dumps({**TOLD, "offset_seconds": offset}) for offset in (1e300, float("nan"), float("inf"))],
)
def test_a_damaged_row_of_the_audit_chain_ends_no_schedule(
    path: Path, detail: str, caplog: pytest.LogCaptureFixture
) -> None:
    timetable = Timetable("0 2 * * *", "UTC", 0.0)
    with Catalogue.open(path) as catalogue:
        catalogue.go_by({("nightly", Activity.BACKUP): timetable}, since=datetime.now(UTC))
    with direct(path, busy_timeout_seconds=1) as database:
        database.execute("DROP TRIGGER audit_no_update")
        database.execute("UPDATE audit SET detail = ? WHERE event = 'scheduled'", (detail,))
        database.execute("UPDATE audit SET detail = '{\"backups\": [], \"manifests\": 1}' WHERE event = 'run-ended'")
    with Catalogue.open(path) as catalogue:
        assert catalogue.gone_by() == {}
        assert "what was due by it while the daemon was down may be missing" in caplog.text
        assert catalogue.audit_trail().chain.first_fault is not None
        catalogue.go_by({("nightly", Activity.BACKUP): timetable}, since=datetime.now(UTC))
        assert list(catalogue.gone_by()) == [("nightly", Activity.BACKUP)]


def test_a_damaged_row_brings_no_timetable_back_that_it_had_replaced(path: Path) -> None:
    backup, verify = ("nightly", Activity.BACKUP), ("nightly", Activity.VERIFY)
    before, now = Timetable("0 2 * * *", "UTC"), Timetable("0 4 * * *", "UTC")
    with Catalogue.open(path) as catalogue:
        catalogue.go_by({backup: before, verify: before}, since=datetime(2026, 11, 20, tzinfo=UTC))
        catalogue.go_by({backup: now, verify: before}, since=datetime(2026, 11, 21, tzinfo=UTC))
    with direct(path, busy_timeout_seconds=1) as database:
        database.execute("DROP TRIGGER audit_no_update")
        database.execute("UPDATE audit SET detail = replace(detail, '0 4 * * *', '0 4 * * x')")
    with Catalogue.open(path) as catalogue:
        assert list(catalogue.gone_by()) == [verify]
        since = datetime(2026, 11, 22, tzinfo=UTC)
        assert catalogue.go_by({backup: before, verify: before}, since=since)[backup].since == since


def test_a_row_of_a_zone_that_is_not_installed_stays(path: Path) -> None:
    told = {("nightly", Activity.BACKUP): Timetable("0 2 * * *", "Europe/Nowhere")}
    with Catalogue.open(path) as catalogue:
        catalogue.go_by(told, since=datetime.now(UTC))
        assert {key: one.timetable for key, one in catalogue.gone_by().items()} == told


@pytest.mark.exhaustive
def test_each_page_that_is_zeroed_is_noticed_or_held_nothing(whole: Path, path: Path) -> None:
    sound = whole.read_bytes()
    _, expected = told_of(path)
    assert expected is not None
    for page in pages(whole):
        damage(path, page * PAGE, bytes(PAGE))
        fault, runs = told_of(path)
        assert fault or runs == expected, page
        path.write_bytes(sound)


@pytest.mark.exhaustive
@pytest.mark.parametrize("part", range(PARTS))
def test_bits_that_flip_in_any_page_are_noticed_or_cost_no_run(whole: Path, path: Path, part: int) -> None:
    sound = whole.read_bytes()
    _, expected = told_of(path)
    assert expected is not None
    for page in list(pages(whole))[part::PARTS]:
        for changed in changes(sound[page * PAGE : (page + 1) * PAGE], seed=page):
            damage(path, page * PAGE, changed)
            fault, runs = told_of(path)
            if not fault and runs != expected:
                with Catalogue.open(path) as catalogue:
                    assert differs_from_chain(catalogue), page
            path.write_bytes(sound)


def differs_from_chain(catalogue: Catalogue) -> bool:
    """`audit verify` finds it: a row of the chain is not as it was written, or a run is not as the chain has it."""
    trail = catalogue.audit_trail()
    chain = trail.chain
    ended = {run_id: trail.runs.get(run_id) for run_id in chain.statuses}
    return chain.first_fault is not None or ended != dict(chain.statuses)


def test_a_catalogue_that_has_lost_its_tables_is_not_begun_anew(path: Path) -> None:
    """The first page lists tables and indexes: one that lists none looks as a new file's does."""
    damage(path, 100, b"\x0d\x00\x00\x00\x00")  # a leaf without a cell
    before = path.read_bytes()
    with pytest.raises(CatalogueError, match="is damaged") as raised:
        Catalogue.open(path)
    assert "backupd catalogue rebuild" in raised.value.hint
    assert path.read_bytes()[PAGE:] == before[PAGE:]


def cut_to(share: float) -> Callable[[Path], None]:
    def cut(path: Path) -> None:
        with path.open("r+b") as file:
            file.truncate(int(path.stat().st_size * share) // PAGE * PAGE)

    return cut


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_file_that_was_cut_short_is_damaged(path: Path, share: float) -> None:
    cut_to(share)(path)
    fault, _ = told_of(path)
    assert "damaged" in fault


VALUES = {
    "an instant that is none": ("UPDATE runs SET started_at = 'yesterday' WHERE rowid = 7", "runs"),
    "an instant without a zone": ("UPDATE runs SET ended_at = '2026-11-20T12:00:00' WHERE rowid = 7", "runs"),
    "a word that nobody says": ("UPDATE runs SET status = 'sucess' WHERE rowid = 7", "runs"),
    "a number that is a text": ("UPDATE phases SET seconds = 'long' WHERE rowid = 7", "phases"),
    "a text that is a number": ("UPDATE backups SET location = x'00ff' WHERE rowid = 7", "backups"),
    "a text that is no text": ("UPDATE runs SET host = CAST(x'c328' AS TEXT) WHERE rowid = 7", "UTF-8"),
    "JSON that is none": ("UPDATE drills SET checks = '[{' WHERE rowid = 1", "drills"),
    "a row of no run": ("DELETE FROM runs WHERE rowid = 7", "is of no runs"),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_value_that_cannot_be_is_named_with_its_table_and_never_a_bug(path: Path, name: str) -> None:
    statement, said = VALUES[name]
    with direct(path, busy_timeout_seconds=1) as connection:
        connection.execute(statement)
        assert connection.execute("SELECT changes()").fetchone() == (1,)
    fault, _ = told_of(path)
    assert "is damaged: " in fault
    assert said in fault
