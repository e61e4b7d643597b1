"""What goes wrong with stored backups, and what is left: a broken copy, a store that is gone, a run that is killed."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.lab.inside.host import SITE, SLOW_COPY, Changes, Host, stored
from tests.lab.inside.inside_good_run import tree
from tests.lab.inside.moments import copying
from tests.lab.inside.stores import STORES, Stores, flip, target_changes
from tests.lab.inside.trees import Tree, remove, tree_of
from tests.servers import sshd

ATTENTION, VERIFICATION = 3, 9
RESTORED = SITE.state / "restored"


@pytest.mark.matrix
def test_a_broken_copy_is_found_and_the_restore_takes_another(
    host: Host, sent: dict[str, Any], stores: Stores, unpacked: Tree
) -> None:
    broken = stored(stores.folders["store"], sent["run_id"]) / "data-1.tar.zst.age"
    flip(broken)
    try:
        said = host.backupd(
            "verify", sent["run_id"], "--target", "store", changes=stores.changes, expect=VERIFICATION
        ).stderr
        assert "data-1.tar.zst.age" in said
        words = ("restore", sent["run_id"], "--to", str(RESTORED), "--identity", str(stores.identity))
        host.backupd(*words, changes=stores.changes)
        found = tree_of(RESTORED)
        host.backupd("drill", sent["run_id"], "--identity", str(stores.identity), changes=stores.changes)
    finally:
        flip(broken)
        remove(RESTORED)
    assert {path: entry for path, entry in found.items() if path in unpacked} == unpacked
    host.backupd("verify", sent["run_id"], "--target", "store", changes=stores.changes)


@pytest.mark.matrix
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
                "targets.offsite.outage": "10s",
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
    host: Host, sent: dict[str, Any], stores: Stores
) -> None:
    with host.running({**stores.changes, **SLOW_COPY}) as run:
        run.until(copying)
        run.until(lambda run_id: any(stored(stores.folders["offsite"], run_id).glob(".*")))
        run.process.kill()
        run.ended(expect=-signal.SIGKILL)
    host.backupd("recover", changes=stores.changes)
    for folder in stores.folders.values():
        assert not list(folder.glob(f"nightly/{run.run_id}*"))
    assert stores.uploads() == []
    assert tuple(stores.of(sent["run_id"])) == STORES


@pytest.mark.matrix
def test_prune_says_what_it_would_do_and_then_does_it(host: Host, sent: dict[str, Any], stores: Stores) -> None:
    changes: Changes = {**stores.changes, "jobs.nightly.retention.keep_last": 7}
    runs = [host.backupd("run", "nightly", "--json", changes=changes).document["run_id"] for _ in range(2)]
    oldest, newest = runs
    host.backupd("pin", sent["run_id"], "--note", "for the auditors", changes=stores.changes)
    less: Changes = {**stores.changes, "jobs.nightly.retention.keep_last": 1}
    planned = host.backupd("prune", "nightly", "--dry-run", changes=less).stdout
    assert oldest in planned
    assert tuple(stores.of(oldest)) == STORES, "a dry run removes nothing"
    host.backupd("prune", "nightly", changes=less)
    assert stores.of(oldest) == {}
    for kept in (sent["run_id"], newest):
        assert tuple(stores.of(kept)) == STORES
    shown = host.backupd("show", oldest, "--json", changes=stores.changes).document
    assert shown["run_id"] == oldest, "its row outlives its objects"
