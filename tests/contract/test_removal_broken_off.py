"""A removal that breaks off within a backup, on real stores: the next pruning finishes it, and says why it began."""

import errno
import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncssh
import pytest
from botocore.exceptions import ConnectionClosedError

from backupd.catalogue.store import Catalogue
from backupd.host.claims import Claims
from backupd.operations.ownership import Ownership
from backupd.operations.upkeep.prune import prune
from backupd.targets import Target
from backupd.targets.blob_store import BlobFailure, Trouble
from backupd.targets.blobs import BlobTarget
from backupd.targets.directory import DirectoryTarget
from backupd.targets.s3 import S3Target
from backupd.targets.sftp import SftpTarget
from backupd.vocabulary.identity import Machine
from backupd.vocabulary.records import RunDetails, RunStatus
from backupd.vocabulary.storage import Backup
from tests.contract.s3_server import s3_service
from tests.contract.sftp_server import sftp_server
from tests.contract.test_targets import MANIFEST, put, target
from tests.fakes.blob_store import MemoryBlobStore
from tests.story.test_prune import JOB

__all__ = ["s3_service", "sftp_server", "target"]

AT = datetime.now(UTC) - timedelta(days=8)  # the stores go by the real clock, and a backup of the future stays
STORES = pytest.mark.parametrize("target", ["directory", "sftp", "s3", "blobs"], indirect=True)


@contextmanager
def breaking_off(target: Target, *, after: int) -> Iterator[None]:
    """For the length of the block the store removes so many objects of `r1`, and then nobody reaches it for that."""

    def failing(real: Callable[..., Any], error: Exception) -> Callable[..., Any]:
        asked = itertools.count(1)

        def removing(*args: Any, **named: Any) -> Any:
            is_meant = any("/r1/" in os.path.realpath(str(one)) for one in (*args, *named.values()))
            if is_meant and next(asked) > after:
                raise error
            return real(*args, **named)

        return removing

    with pytest.MonkeyPatch.context() as patched:
        match target:
            case DirectoryTarget():
                patched.setattr(os, "unlink", failing(os.unlink, OSError(errno.EIO, os.strerror(errno.EIO))))
            case SftpTarget():
                lost = asyncssh.ConnectionLost("as told")
                patched.setattr(asyncssh.SFTPClient, "remove", failing(asyncssh.SFTPClient.remove, lost))
            case S3Target():
                client = target._service.client
                closed = ConnectionClosedError(endpoint_url="as told")
                patched.setattr(client, "delete_object", failing(client.delete_object, closed))
            case BlobTarget():
                silent = BlobFailure(Trouble.SILENT, "as told")
                patched.setattr(MemoryBlobStore, "delete", failing(MemoryBlobStore.delete, silent))
        yield


@STORES
@pytest.mark.parametrize("after", [1, 2])
def test_a_removal_that_breaks_off_within_a_backup_is_finished_by_the_next_pruning(
    target: Target, tmp_path_factory: pytest.TempPathFactory, after: int
) -> None:
    base = tmp_path_factory.mktemp("host")
    machine = Machine("db1", {"machine-id": "a1"}, boot_id="boot")
    with Catalogue.open(base / "catalogue.db", machine=lambda: machine) as catalogue:
        ownership = Ownership(catalogue, machine, Claims(base / "run"), renewal_seconds=60)
        ownership.take(target)
        for number in (1, 2, 3):
            back_up(target, catalogue, f"r{number}", AT + timedelta(days=number))
        job = replace(JOB, targets=(target.name,))

        def pruned() -> Any:
            return prune(job, (target,), catalogue, ownership=ownership, now=AT + timedelta(days=9))

        with breaking_off(target, after=after):
            assert [name for name, _ in pruned().failures] == [target.name]
        assert [one.finished for one in target.backups("nightly") if one.backup_id == "r1"] == [False]
        assert len(target.objects("nightly", "r1")) == 4 - after
        done = pruned()
        done.require_complete()
        assert done.vanished == ()
        assert (dict(target.objects("nightly", "r1")), len(target.backups("nightly"))) == ({}, 2)
        (copy,) = catalogue.backups_of("r1")
        assert (copy.removed_at is not None, copy.removed_because) == (True, "expired: not among the last 2")


def back_up(target: Target, catalogue: Catalogue, run_id: str, at: datetime) -> None:
    """A backup of three objects, which is there and known."""
    for name in ("data-1.tar.zst", "data-2.tar.zst", "options.tar.zst"):
        put(target, b"12345", run=run_id, name=name)
    target.publish(replace(MANIFEST, run_id=run_id))
    backup = Backup(target.name, "there", 10, 5, 1, "b" * 64)
    run = RunDetails(run_id, "nightly", "db1", target.machine, RunStatus.SUCCESS, at, ended_at=at)
    catalogue.import_run(replace(run, backups=(backup,)))
