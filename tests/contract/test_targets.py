"""What every target promises: the fake that the stories are tested with, and the real ones."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from threading import Barrier
from typing import NoReturn
from urllib.parse import urlsplit

import pytest

from backupd.policy import owner_record
from backupd.policy.owner_record import OwnerRecord
from backupd.targets import Target, names
from backupd.targets.blob_store import BlobFailure, Trouble
from backupd.targets.blobs import BlobTarget
from backupd.targets.directory import DirectoryTarget
from backupd.targets.listing import finished_there, is_returned
from backupd.targets.names import partial
from backupd.targets.s3 import S3Target
from backupd.targets.sftp import SftpTarget
from backupd.vocabulary.errors import TargetError, VerificationError
from backupd.vocabulary.run_section import RunSection
from backupd.vocabulary.servers import Flavour, Position, ServerFacts
from backupd.vocabulary.storage import Frame, Manifest, StoredObject
from backupd.vocabulary.volumes import Layout
from tests.contract.blob_targets import memory_blobs
from tests.contract.s3_server import s3_config, s3_service, s3_target
from tests.contract.sftp_server import sftp_config, sftp_server
from tests.fakes.blob_store import MemoryBlobStore
from tests.fakes.target import MACHINE, MemoryTarget
from tests.servers.sshd import SshServer

__all__ = ["s3_service", "sftp_server"]

JOB, RUN, NAME = "nightly", "run-1", "data-1.tar.zst"

MANIFEST = Manifest(
    run_id=RUN,
    job=JOB,
    host="db1",
    machine=MACHINE,
    created_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
    objects=(StoredObject(NAME, 10, 5, "a" * 64, "b" * 64, 1, (Frame(10, 5, "b" * 64),)),),
    server=ServerFacts(
        flavour=Flavour.MARIADB,
        version="10.11.6-MariaDB",
        version_number=(10, 11, 6),
        datadir=Path("/var/lib/mysql"),
        socket=None,
        binlog_basename=None,
        binlog_expire_seconds=None,
        read_only=False,
        is_replica=False,
        redo_logging=True,
        page_size=16384,
        settings={"lower_case_table_names": "0"},
    ),
    position=Position(),
    lsn=None,
    layout=Layout.STRIPED,
    volume="vg/data",
    datadir="mysql",
    run=RunSection(started_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)),
)


@pytest.fixture(params=["memory", "directory", "sftp", "s3", "blobs"])
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    match request.param:
        case "memory":
            return MemoryTarget()
        case "directory":
            return DirectoryTarget("store", tmp_path, machine=MACHINE)
        case "sftp":
            server: SshServer = request.getfixturevalue("sftp_server")
            return SftpTarget(sftp_config(server, tmp_path), machine=MACHINE)
        case "blobs":
            return memory_blobs(MemoryBlobStore())
        case _:
            return s3_target(s3_config(request.getfixturevalue("s3_service")))


@pytest.fixture(params=["directory", "directory, unmounted", "sftp", "sftp, unmounted", "s3", "blobs"])
def away(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    """One whose storage is not there, or is there without its file system."""
    kind, _, unmounted = request.param.partition(", ")
    path, sentinel = (tmp_path, ".mounted") if unmounted else (tmp_path / "missing", None)
    match kind:
        case "directory":
            return DirectoryTarget("store", path, machine=MACHINE, sentinel=sentinel)
        case "sftp":
            server: SshServer = request.getfixturevalue("sftp_server")
            return SftpTarget(sftp_config(server, path, sentinel=sentinel), machine=MACHINE)
        case "blobs":
            return memory_blobs(MemoryBlobStore(faults={"listed": [_no_container], "folders": [_no_container]}))
        case _:
            return s3_target(s3_config(request.getfixturevalue("s3_service"), bucket="no-such-bucket"))


def _no_container(_do: Callable[[], None]) -> NoReturn:
    raise BlobFailure(Trouble.NO_CONTAINER, "no such container")


LISTINGS: dict[str, Callable[[Target], object]] = {
    "machines": lambda target: target.machines(),
    "backups": lambda target: target.backups(),
    "backups of a job": lambda target: target.backups(JOB),
    "objects": lambda target: target.objects(JOB, RUN),
    "segments": lambda target: target.segments(JOB),
    "archived jobs": lambda target: target.archived_jobs(),
}


@pytest.mark.parametrize("listing", LISTINGS)
def test_what_is_away_is_never_told_as_empty(away: Target, listing: str) -> None:
    """Who believes that removes rows, gaps and what is left, and calls backups broken."""
    with pytest.raises(TargetError):
        LISTINGS[listing](away)


def put(target: Target, *blocks: bytes, job: str = JOB, run: str = RUN, name: str = NAME) -> None:
    with target.writing(job, run, name) as writer:
        for block in blocks:
            writer.write(block)


def put_half(target: Target) -> None:
    with target.writing(JOB, RUN, NAME) as writer:
        writer.write(b"half")
        raise ZeroDivisionError


def get(target: Target, *, job: str = JOB, run: str = RUN, name: str = NAME) -> bytes:
    with target.reading(job, run, name) as chunks:
        return b"".join(chunks)


def test_a_backup_s_objects_are_told_with_their_sizes(target: Target) -> None:
    assert dict(target.objects(JOB, RUN)) == {}
    put(target, b"abc", b"de")
    put(target, b"", name="empty")
    put(target, b"another run's", run="r2")
    assert dict(target.objects(JOB, RUN)) == {NAME: 5, "empty": 0}
    target.publish(MANIFEST)
    assert dict(target.objects(JOB, RUN)) == {NAME: 5, "empty": 0}


def plant(target: Target, *names: str) -> None:
    """As somebody does who sees the backup's folder, its prefix or its share."""
    for name in names:
        where = urlsplit(target.location(JOB, RUN))
        if isinstance(target, MemoryTarget):
            target.stored[JOB, RUN, name] = b"mine"
        elif isinstance(target, S3Target):
            key = f"{where.path.removeprefix('/')}/{name}"
            target._service.client.put_object(Bucket=where.netloc, Key=key, Body=b"mine")
        elif isinstance(target, BlobTarget):
            target._store.put(f"{target._key(JOB, RUN)}/{name}", b"mine")
        else:
            path = Path(where.path) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"mine")


STRAYS = ("@eaDir/data.tar.zst/thumb.jpg", "Thumbs.db", ".DS_Store", "note.txt")
STRAYS_TOLD = {"@eaDir/": 0, "Thumbs.db": 4, ".DS_Store": 4, "note.txt": 4}


def test_what_a_person_put_beside_a_backup_is_told_and_outlives_it(target: Target) -> None:
    put(target, b"abc")
    target.publish(MANIFEST)
    plant(target, *STRAYS)
    assert dict(target.objects(JOB, RUN)) == {NAME: 3, **STRAYS_TOLD}
    assert target.manifest(JOB, RUN) == MANIFEST
    for _ in range(2):
        target.remove(JOB, RUN)
        assert dict(target.objects(JOB, RUN)) == STRAYS_TOLD
    with pytest.raises(TargetError):
        target.manifest(JOB, RUN)


def test_what_a_dead_process_left_of_its_manifest_is_in_nobodys_way(target: Target, tmp_path: Path) -> None:
    put(target, b"abc")
    for folder in tmp_path.rglob(RUN):
        (folder / partial("manifest.json")).write_bytes(b"half of it")
    target.publish(MANIFEST)
    assert target.manifest(JOB, RUN) == MANIFEST


PROOF = "proof-20261122T040000Z.json"


def test_a_proof_is_attached_once_to_a_finished_backup_and_goes_with_it(target: Target) -> None:
    put(target, b"abc")
    with pytest.raises(TargetError):
        target.attach(JOB, RUN, PROOF, b"{}")
    target.publish(MANIFEST)
    target.attach(JOB, RUN, PROOF, b"{}")
    for name in (PROOF, NAME, "note.txt", "manifest.json"):
        with pytest.raises(TargetError):
            target.attach(JOB, RUN, name, b"another")
    assert get(target, name=PROOF) == b"{}"
    assert dict(target.objects(JOB, RUN)) == {NAME: 3, PROOF: 2}
    assert target.manifest(JOB, RUN) == MANIFEST
    target.remove(JOB, RUN)
    assert dict(target.objects(JOB, RUN)) == {}


def test_usable_target_tells_its_room(target: Target) -> None:
    free = target.require_usable()
    assert free is None or free > 0


def planted(target: Target, name: str, tmp_path: Path) -> None:
    """A file or an object of this name is where a target is tried."""
    match target:
        case S3Target():
            client, key = target._service.client, target._bucket.key(name)
            client.put_object(Bucket=target._config.bucket, Key=key, Body=b"")
        case BlobTarget():
            target._store.put(target._bucket.key(name), b"", only_new=True)
        case _:
            (tmp_path / name).touch()


def tried(target: Target, tmp_path: Path) -> set[str]:
    """What is there of this kind."""
    match target:
        case S3Target() | BlobTarget():
            found = [item.key for item in target._listed(target._bucket.key(".backupd-writable-"), patiently=False)]
        case _:
            found = [path.name for path in tmp_path.iterdir()]
    return {name.rpartition("/")[2] for name in found if "backupd-writable" in name}


@pytest.mark.parametrize("target", ["directory", "sftp", "s3", "blobs"], indirect=True)
def test_what_a_killed_process_left_that_tried_a_target_is_removed_by_the_next(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = {names.new_trial(MACHINE), f"{names.new_trial(MACHINE)}.partial"}
    others = {names.new_trial("db2-0a1b2c3d"), names.new_trial(f"{MACHINE}-00000000"), f"{names.trials(MACHINE)}mine"}
    for name in (*ours, *others):
        planted(target, name, tmp_path)
    target.require_usable()
    assert tried(target, tmp_path) == ours | others
    monkeypatch.setattr(names, "TRIAL_SECONDS", -60.0)
    target.require_usable()
    assert tried(target, tmp_path) == others


@pytest.mark.parametrize("size", [0, 1, 4095, (1 << 20) - 1, 1 << 20, (3 << 20) + 517])
def test_what_was_written_is_read_back(target: Target, size: int) -> None:
    content = bytes(i * 7 % 251 for i in range(1000)) * (size // 1000 + 1)
    put(target, content[: size // 3], content[size // 3 : size])
    assert get(target) == content[:size]


def test_object_cannot_be_seen_before_it_is_whole(target: Target) -> None:
    with target.writing(JOB, RUN, NAME) as writer:
        writer.write(b"half")
        with pytest.raises(TargetError):
            get(target)
    assert get(target) == b"half"


def test_nothing_is_left_of_an_object_whose_writing_failed(target: Target) -> None:
    with pytest.raises(ZeroDivisionError):
        put_half(target)
    with pytest.raises(TargetError):
        get(target)
    put(target, b"second try")
    assert get(target) == b"second try"


def test_several_objects_are_written_and_read_at_once(target: Target) -> None:
    contents = {f"data-{n}.tar.zst": bytes([n]) * (1 << 20) + bytes(n) for n in range(1, 5)}
    together = Barrier(len(contents), timeout=20)

    def write(name: str) -> None:
        content = contents[name]
        with target.writing(JOB, RUN, name) as writer:
            together.wait()
            for start in range(0, len(content), 100_000):
                writer.write(content[start : start + 100_000])
            together.wait()

    def read(name: str) -> bytes:
        with target.reading(JOB, RUN, name) as chunks:
            together.wait()
            return b"".join(chunks)

    with ThreadPoolExecutor(len(contents)) as pool:
        list(pool.map(write, contents))
        assert dict(zip(contents, pool.map(read, contents), strict=True)) == contents


def test_an_object_that_fails_leaves_the_others_that_are_being_written(target: Target) -> None:
    with target.writing(JOB, RUN, "good.tar.zst") as writer:
        writer.write(b"one, ")
        with pytest.raises(ZeroDivisionError):
            put_half(target)
        writer.write(b"two")
    assert get(target, name="good.tar.zst") == b"one, two"
    with pytest.raises(TargetError):
        get(target)


def test_missing_object_is_a_target_error(target: Target) -> None:
    put(target, b"x")
    with pytest.raises(TargetError):
        get(target, name="other.tar.zst")
    with pytest.raises(TargetError):
        get(target, run="run-2")


def test_published_manifest_is_read_back(target: Target) -> None:
    put(target, b"x")
    target.publish(MANIFEST)
    assert target.manifest(JOB, RUN) == MANIFEST
    assert get(target) == b"x"


def test_backup_without_manifest_is_none(target: Target) -> None:
    with pytest.raises(TargetError):
        target.manifest(JOB, RUN)
    put(target, b"x")
    with pytest.raises(TargetError):
        target.manifest(JOB, RUN)


def test_a_manifest_that_is_not_there_is_told_from_one_that_is(target: Target) -> None:
    """By name, without an error that would pass for a target that is away."""
    assert finished_there(target, JOB, [RUN]) == []
    put(target, b"x" * 5)
    assert finished_there(target, JOB, [RUN, "other"]) == []
    target.publish(MANIFEST)
    assert finished_there(target, JOB, ["other", RUN]) == [RUN]
    assert [is_returned(target, JOB, RUN, name) for name in (NAME, "data-2.tar.zst")] == [True, False]


def test_nothing_is_told_of_a_manifest_where_the_target_is_away(away: Target) -> None:
    with pytest.raises(TargetError):
        finished_there(away, JOB, [RUN])


def test_finished_backup_is_not_written_to(target: Target) -> None:
    put(target, b"x")
    target.publish(MANIFEST)
    with pytest.raises(TargetError):
        put(target, b"y")
    with pytest.raises(TargetError):
        target.publish(replace(MANIFEST, host="db2"))
    assert get(target) == b"x"
    assert target.manifest(JOB, RUN) == MANIFEST


def test_remove_leaves_nothing_of_an_unfinished_backup_and_touches_no_other(target: Target) -> None:
    put(target, b"x")
    put(target, b"y", run="run-2")
    put(target, b"z", job="hourly")
    target.remove(JOB, RUN)
    with pytest.raises(TargetError):
        get(target)
    assert get(target, run="run-2") == b"y"
    assert get(target, job="hourly") == b"z"


def test_remove_of_nothing_does_nothing(target: Target) -> None:
    target.remove(JOB, RUN)
    put(target, b"x")
    target.remove(JOB, RUN)
    target.remove(JOB, RUN)
    put(target, b"again")
    assert get(target) == b"again"


def test_a_finished_backup_is_removed_whole(target: Target) -> None:
    put(target, b"x")
    target.publish(MANIFEST)
    target.remove(JOB, RUN)
    with pytest.raises(TargetError):
        target.manifest(JOB, RUN)
    with pytest.raises(TargetError):
        get(target)


@pytest.mark.parametrize("bad", ["..", ".", "", "a/b", "/etc", "nul\0"])
def test_names_cannot_lead_out_of_the_target(target: Target, bad: str) -> None:
    for job, run, name in ((bad, RUN, NAME), (JOB, bad, NAME), (JOB, RUN, bad)):
        with pytest.raises(TargetError):
            put(target, b"x", job=job, run=run, name=name)
        with pytest.raises(TargetError):
            get(target, job=job, run=run, name=name)


def test_location_names_job_and_backup(target: Target) -> None:
    assert JOB in target.location(JOB, RUN)
    assert RUN in target.location(JOB, RUN)


# --- ranges ----------------------------------------------------------------------------------------------------------

LONG = bytes(i * 31 % 251 for i in range(1004)) * 2500  # more than two reads of any target
RANGES = [
    (0, 1), (0, 4096), (1, 4095), (4095, 2), (4096, 4096), (517, 1 << 20), ((1 << 20) - 1, 3), ((2 << 20) + 9, 100_000),
    (len(LONG) - 1, 1), (len(LONG), 0), (0, len(LONG)), (12345, 0), (0, None), (4097, None), (len(LONG), None),
]  # fmt: skip


def test_any_range_of_an_object_is_read_as_it_was_written(target: Target) -> None:
    put(target, LONG)
    for offset, size in RANGES:
        with target.reading(JOB, RUN, NAME, offset=offset, size=size) as chunks:
            found = b"".join(chunks)
        assert found == LONG[offset : None if size is None else offset + size], (offset, size)


@pytest.mark.parametrize(("offset", "size"), [(0, 6), (4, 2), (5, 1), (4096, 1)])
def test_a_range_that_the_object_does_not_have_is_a_target_error(target: Target, offset: int, size: int) -> None:
    put(target, b"12345")
    with pytest.raises(TargetError), target.reading(JOB, RUN, NAME, offset=offset, size=size) as chunks:
        b"".join(chunks)


# --- what lies there -------------------------------------------------------------------------------------------------


def listed(target: Target, job: str | None = None) -> set[tuple[str, str, bool]]:
    return {(one.job, one.backup_id, one.finished) for one in target.backups(job)}


def test_an_empty_target_has_no_backups(target: Target) -> None:
    assert listed(target) == listed(target, JOB) == set()


def test_backups_are_listed_finished_or_not_of_one_job_or_of_all(target: Target) -> None:
    put(target, b"one")
    target.publish(MANIFEST)
    put(target, b"two", run="run-2")
    put(target, b"three", job="nightly-2", run="run-3")
    assert listed(target, JOB) == {(JOB, RUN, True), (JOB, "run-2", False)}
    assert listed(target) == {(JOB, RUN, True), (JOB, "run-2", False), ("nightly-2", "run-3", False)}
    assert listed(target, "weekly") == set()


def test_a_backup_tells_when_it_was_written(target: Target) -> None:
    put(target, b"one")
    target.publish(MANIFEST)
    (found,) = target.backups(JOB)
    assert found.at.utcoffset() is not None
    if not isinstance(target, MemoryTarget):  # its clock stands still
        assert abs((datetime.now(UTC) - found.at).total_seconds()) < 60


def test_a_removed_backup_is_no_longer_listed(target: Target) -> None:
    put(target, b"one")
    target.publish(MANIFEST)
    target.remove(JOB, RUN)
    assert listed(target) == set()


def test_a_manifest_is_never_written_over(target: Target) -> None:
    put(target, b"one")
    target.publish(MANIFEST)
    with pytest.raises(TargetError):
        target.publish(replace(MANIFEST, host="db2"))
    assert target.manifest(JOB, RUN) == MANIFEST


# --- several machines on one storage ---------------------------------------------------------------------------------

OTHER = "db2-0badcafe"


def test_a_machine_sees_and_removes_only_what_is_its_own(target: Target) -> None:
    other = target.of_machine(OTHER)
    assert (target.machine, other.machine, other.name) == (MACHINE, OTHER, target.name)
    put(target, b"ours")
    target.publish(MANIFEST)
    put(other, b"theirs")
    put(other, b"theirs alone", run="run-2")
    other.publish(replace(MANIFEST, machine=OTHER))
    assert listed(target) == {(JOB, RUN, True)}
    assert listed(other) == {(JOB, RUN, True), (JOB, "run-2", False)}
    assert target.objects(JOB, "run-2") == {}
    assert set(target.machines()) == set(other.machines()) == {MACHINE, OTHER}
    for run in (RUN, "run-2"):
        target.remove(JOB, run)
    assert listed(target) == set()
    assert (get(other), get(other, run="run-2")) == (b"theirs", b"theirs alone")
    assert other.manifest(JOB, RUN).machine == OTHER


def test_locations_of_two_machines_differ(target: Target) -> None:
    assert MACHINE in target.location(JOB, RUN)
    assert OTHER in target.of_machine(OTHER).location(JOB, RUN)


@pytest.mark.parametrize("bad", ["", "..", "db1", "-0badcafe", ".db1-0badcafe", "a/b-0badcafe", "db1-0BADCAFE"])
def test_what_can_be_no_machine_s_name_leads_nowhere(target: Target, bad: str) -> None:
    with pytest.raises(TargetError, match="not a machine's name"):
        target.of_machine(bad)


def test_an_empty_target_has_no_machines(target: Target) -> None:
    assert target.machines() == []


def test_what_others_keep_beside_the_machines_is_no_machine(target: Target) -> None:
    for stray in ("lost+found/x", "@eaDir/x", ".trash-0badcafe/x", "notes-0badcafe.txt", "db3-0badcafe-old/x"):
        lay(target, stray, b"x")
    put(target, b"x")
    assert target.machines() in ([MACHINE], [])  # a target in memory has no place for strays


# --- owner records ---------------------------------------------------------------------------------------------------


def record(number: int, digit: str = "a", *, machine: str = MACHINE) -> OwnerRecord:
    return OwnerRecord(machine, number, digit * 32, "db1.example.com", datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))


def lay(target: Target, path: str, content: bytes) -> None:
    """Somebody else writes this below the storage's root, past the target."""
    match target:
        case MemoryTarget():
            if path.startswith(f"{MACHINE}/owner/"):
                target.records[path.rpartition("/")[2]] = content
        case S3Target():
            key = target._bucket.key(path)
            target._service.client.put_object(Bucket=target._config.bucket, Key=key, Body=content)
        case BlobTarget():
            target._store.put(target._bucket.key(path), content)
        case DirectoryTarget() | SftpTarget():
            file = Path(target.folder or target._config.path, path)  # type: ignore[union-attr]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def owner_records(target: Target) -> set[str]:
    """The names of all that lies among the owner records."""
    match target:
        case MemoryTarget():
            return set(target.records)
        case S3Target():
            prefix = target._bucket.key(MACHINE, "owner", "")
            return {stored.key.removeprefix(prefix) for stored in target._listing.objects(prefix)}
        case BlobTarget():
            prefix = target._bucket.key(MACHINE, "owner", "")
            return {stored.key.removeprefix(prefix) for stored in target._store.listed(prefix)}
        case DirectoryTarget() | SftpTarget():
            root = Path(target.folder or target._config.path)  # type: ignore[union-attr]
            return {path.name for path in (root / MACHINE / "owner").iterdir()}
    raise AssertionError(target)


def test_nobody_owns_a_new_target(target: Target) -> None:
    assert target.owner() is None
    assert target.last_owner_number() == 0
    assert listed(target) == set()


def test_the_last_one_who_wrote_is_the_owner_and_older_records_go(target: Target) -> None:
    for number in range(1, 5):
        assert target.succeed(record(number, f"{number}"))
        assert target.owner() == record(number, f"{number}")
        assert target.last_owner_number() == number
    assert owner_records(target) == {"0000000003.json", "0000000004.json"}
    assert target.of_machine(OTHER).owner() is None
    assert target.machines() == [MACHINE]
    assert listed(target) == set()


def test_of_two_who_have_read_the_same_record_one_succeeds(target: Target) -> None:
    assert target.succeed(record(1))
    ours, theirs = record(2, "b"), record(2, "c")
    assert target.succeed(ours)
    assert not target.of_machine(MACHINE).succeed(theirs)
    assert target.owner() == ours
    assert owner_records(target) == {"0000000001.json", "0000000002.json"}


def test_one_who_is_so_slow_that_his_number_is_free_again_does_not_succeed(target: Target) -> None:
    for number in range(1, 5):
        assert target.succeed(record(number))
    assert not target.succeed(record(1, "b"))
    assert target.owner() == record(4)
    assert owner_records(target) == {"0000000003.json", "0000000004.json"}


def test_who_writes_the_same_record_again_has_succeeded(target: Target) -> None:
    assert target.succeed(record(1))
    assert target.succeed(record(1))
    assert target.owner() == record(1)


def test_one_of_eight_at_once_succeeds(target: Target) -> None:
    together = Barrier(8, timeout=20)

    def write(digit: str) -> bool:
        one = target.of_machine(MACHINE)
        together.wait()
        return one.succeed(record(1, digit))

    with ThreadPoolExecutor(8) as pool:
        won = dict(zip("12345678", pool.map(write, "12345678"), strict=True))
    (winner,) = [digit for digit, succeeded in won.items() if succeeded]
    assert target.owner() == record(1, winner)
    assert owner_records(target) == {"0000000001.json"}


WHOLE = owner_record.to_text(record(7))


@pytest.mark.parametrize(
    "garbage",
    [
        "", "{", WHOLE[:-20], "null", "[]", "\0" * 64, WHOLE.replace("machine", "whose"),
        WHOLE.replace(": 7", ": true"), WHOLE.replace(": 7", ": 8"), WHOLE.replace(MACHINE, OTHER),
        WHOLE.replace("a" * 32, "a"), WHOLE.replace("+00:00", ""),
    ],
)  # fmt: skip
def test_a_record_that_is_garbage_says_so_and_can_be_succeeded(target: Target, garbage: str) -> None:
    assert target.succeed(record(1))
    lay(target, f"{MACHINE}/owner/0000000007.json", garbage.encode())
    with pytest.raises(VerificationError, match=r"0000000007\.json is (not an owner record|owner record )") as refused:
        target.owner()
    assert "`backupd identity adopt`" in refused.value.hint
    assert not target.succeed(record(2, "b"))
    assert target.last_owner_number() == 7
    assert target.succeed(record(8, "b"))
    assert target.owner() == record(8, "b")


def test_what_else_lies_among_the_records_is_none(target: Target) -> None:
    assert target.succeed(record(3))
    strays = [".0000000009.json.0123456789abcdef.partial", "0000000009.json.bak", "9.json", "notes.txt"]
    for name in (*strays, ".0000000001.json.0123456789abcdef.partial"):
        lay(target, f"{MACHINE}/owner/{name}", b"x")
    assert target.owner() == record(3)
    assert target.succeed(record(4))
    assert owner_records(target) == {"0000000003.json", "0000000004.json", *strays}


def test_owner_records_are_no_job_s(target: Target) -> None:
    assert target.succeed(record(1))
    lay(target, f"{MACHINE}/owner/run-1/data-1.tar.zst", b"x")
    assert listed(target) == set()
    for call in (lambda: target.backups("owner"), lambda: target.remove("owner", RUN)):
        with pytest.raises(TargetError, match="a job cannot be called 'owner'"):
            call()
    with pytest.raises(TargetError, match="a job cannot be called 'owner'"):
        put(target, b"x", job="owner")
    assert target.owner() == record(1)
