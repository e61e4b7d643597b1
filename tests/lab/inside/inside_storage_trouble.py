"""What goes wrong with stored backups, and what is left: a broken copy, a store that is gone, a run that is killed."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from backupd.lab import sshd
from tests.lab.inside.host import RUN_FOLDER, SITE, SLOW_COPY, Changes, Host, mounted, tool
from tests.lab.inside.inside_good_run import tree
from tests.lab.inside.moments import copying
from tests.lab.inside.places import volume
from tests.lab.inside.stores import STORES, Stores, Tree, flip, remove, target_changes, three_stores, tree_of

USAGE, ATTENTION, REFUSED, VERIFICATION = 2, 3, 5, 9
RESTORED, BY_HAND = SITE.state / "restored", SITE.state / "by-hand"
FILLED = f"{SITE.volume_group}/filled"
DEVICE = Path("/dev") / FILLED


@pytest.fixture(scope="module")
def stores() -> Iterator[Stores]:
    folder = SITE.state / "stores"
    with three_stores(folder) as made:
        yield made
    remove(folder)


@pytest.fixture(scope="module")
def good(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The document of a run that went to all three."""
    host = Host(tmp_path_factory.mktemp("good"))
    return host.backupd("run", "nightly", "--json", changes=stores.changes).document


@pytest.fixture(scope="module")
def unpacked(good: dict[str, Any], stores: Stores) -> Tree:
    """What the backup holds, by age, zstd and tar alone."""
    try:
        return stores.unpacked_by_hand(good["run_id"], BY_HAND)
    finally:
        remove(BY_HAND)


# --- into a volume ----------------------------------------------------------------------------------------------------


def into_volume(host: Host, stores: Stores, run_id: str, *, expect: int = 0) -> str:
    words = ("restore", run_id, "--into-volume", FILLED, "--identity", str(stores.identity))
    ended = host.backupd(*words, changes=stores.changes, expect=expect)
    return ended.stdout + ended.stderr


def signature() -> str:
    return tool("wipefs", "--noheadings", str(DEVICE)).strip()


def test_a_volume_that_is_not_there_is_answered_with_the_command_that_makes_it(
    host: Host, good: dict[str, Any], stores: Stores
) -> None:
    said = into_volume(host, stores, good["run_id"], expect=USAGE)
    assert "hint: make one: lvcreate --name filled --size " in said


def test_a_volume_that_is_too_small_is_refused_before_anything_is_written(
    host: Host, good: dict[str, Any], stores: Stores
) -> None:
    with volume("filled", "--size", "64m", SITE.volume_group):
        assert "is too small: the backup needs" in into_volume(host, stores, good["run_id"], expect=REFUSED)
        assert signature() == ""


def test_a_volume_that_holds_something_or_is_in_use_is_left_as_it_is(
    host: Host, good: dict[str, Any], stores: Stores
) -> None:
    with volume("filled", "--size", "1200m", SITE.volume_group):
        with DEVICE.open("rb"):
            assert "some process has it open" in into_volume(host, stores, good["run_id"], expect=REFUSED)
        tool("mkfs.ext4", "-q", "-E", "nodiscard", str(DEVICE))
        before = signature()
        assert "it holds ext4" in into_volume(host, stores, good["run_id"], expect=REFUSED)
        assert signature() == before != ""


def test_a_filled_volume_has_every_file_of_the_backup(
    host: Host, good: dict[str, Any], stores: Stores, unpacked: Tree, tmp_path: Path
) -> None:
    with volume("filled", "--size", "1200m", SITE.volume_group):
        said = into_volume(host, stores, good["run_id"])
        at = tmp_path / "filled"
        at.mkdir()
        line = next(line for line in said.splitlines() if "mount -t " in line)
        tool(*line[line.index("mount -t ") :].replace("MOUNT-POINT", str(at)).split())
        try:
            found = tree_of(at)
        finally:
            tool("umount", str(at))
    assert {path: entry for path, entry in found.items() if path in unpacked} == unpacked
    assert "CHANGE MASTER TO" in said


def test_recover_makes_a_volume_blank_again_whose_restore_was_killed(
    host: Host, good: dict[str, Any], stores: Stores
) -> None:
    config = host.configured(stores.changes)
    words = ["restore", good["run_id"], "--into-volume", FILLED, "--identity", str(stores.identity)]
    with volume("filled", "--size", "1200m", SITE.volume_group):
        process = subprocess.Popen(["backupd", "--config", str(config), *words], stderr=subprocess.DEVNULL)
        at = RUN_FOLDER / "mnt" / good["run_id"]
        while not (str(at) in mounted() and any(at.iterdir())):
            assert process.poll() is None, "it has ended before it was killed"
        process.kill()
        process.wait()
        assert signature() != ""
        assert "gave back file-system" in host.backupd("recover", changes=stores.changes).stdout
        assert signature() == ""


# --- a copy that is broken, a store that is gone ----------------------------------------------------------------------


def test_a_broken_copy_is_found_and_the_restore_takes_another(
    host: Host, good: dict[str, Any], stores: Stores, unpacked: Tree
) -> None:
    broken = stores.folders["store"] / "nightly" / good["run_id"] / "data-1.tar.zst.age"
    flip(broken)
    try:
        said = host.backupd(
            "verify", good["run_id"], "--target", "store", changes=stores.changes, expect=VERIFICATION
        ).stderr
        assert "data-1.tar.zst.age" in said
        words = ("restore", good["run_id"], "--to", str(RESTORED), "--identity", str(stores.identity))
        host.backupd(*words, changes=stores.changes)
        found = tree_of(RESTORED)
        host.backupd("drill", good["run_id"], "--identity", str(stores.identity), changes=stores.changes)
    finally:
        flip(broken)
        remove(RESTORED)
    assert {path: entry for path, entry in found.items() if path in unpacked} == unpacked
    host.backupd("verify", good["run_id"], "--target", "store", changes=stores.changes)


def test_a_store_that_goes_away_in_mid_copy_does_not_fail_the_others(
    host: Host, stores: Stores, tmp_path: Path
) -> None:
    away = SITE.state / "going-away"
    away.mkdir()
    try:
        with sshd.serving(tmp_path / "ssh") as server:
            changes: Changes = {
                **stores.changes,
                **SLOW_COPY,
                **target_changes(server.configuration("offsite", away)),
                "targets.offsite.timeout": "10s",
            }
            with host.running(changes) as run:
                run.until(copying)
                for pid in reversed(list(tree(server.pid))):
                    os.kill(pid, signal.SIGKILL)
                ended = run.ended(expect=ATTENTION, within_seconds=120)
        assert "offsite" in " ".join(ended.document["attention"])
        assert list(stores.of(run.run_id)) == ["store", "bucket"]
        host.backupd("verify", run.run_id, "--target", "bucket", changes=stores.changes)
    finally:
        remove(away)
    # What is left of it lies where nobody can look any more; its holding is struck once that store is back.
    host.backupd("recover", changes=stores.changes)


def test_recover_leaves_no_object_and_no_upload_of_a_killed_run(
    host: Host, good: dict[str, Any], stores: Stores
) -> None:
    with host.running({**stores.changes, **SLOW_COPY}) as run:
        run.until(copying)
        run.until(lambda run_id: any((stores.folders["offsite"] / "nightly" / run_id).glob(".*")))
        run.process.kill()
        run.ended(expect=-signal.SIGKILL)
    host.backupd("recover", changes=stores.changes)
    for folder in stores.folders.values():
        assert not list(folder.glob(f"nightly/{run.run_id}*"))
    assert stores.uploads() == []
    assert tuple(stores.of(good["run_id"])) == STORES


def test_prune_says_what_it_would_do_and_then_does_it(host: Host, good: dict[str, Any], stores: Stores) -> None:
    changes: Changes = {**stores.changes, "jobs.nightly.retention.keep_last": 7}
    runs = [host.backupd("run", "nightly", "--json", changes=changes).document["run_id"] for _ in range(2)]
    oldest, newest = runs
    host.backupd("pin", good["run_id"], "--note", "for the auditors", changes=stores.changes)
    less: Changes = {**stores.changes, "jobs.nightly.retention.keep_last": 1}
    planned = host.backupd("prune", "nightly", "--dry-run", changes=less).stdout
    assert oldest in planned
    assert tuple(stores.of(oldest)) == STORES, "a dry run removes nothing"
    host.backupd("prune", "nightly", changes=less)
    assert stores.of(oldest) == {}
    for kept in (good["run_id"], newest):
        assert tuple(stores.of(kept)) == STORES
    shown = host.backupd("show", oldest, "--json", changes=stores.changes).document
    assert shown["run_id"] == oldest, "its row outlives its objects"
