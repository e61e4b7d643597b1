"""Retention of a binlog archive on real stores: what goes is gone there, and what is found there again is the rest."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.host.claims import Claims
from backupd.operations.binlog.segment_reader import SegmentReader
from backupd.operations.binlog.verifying import verify_segments
from backupd.operations.ownership import Ownership
from backupd.operations.upkeep.prune import prune
from backupd.operations.upkeep.rebuild_segments import rebuild_segments
from backupd.policy.trust import Trust
from backupd.targets import Target
from backupd.vocabulary.identity import Machine
from backupd.vocabulary.records import RunDetails, RunStatus
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Backup
from tests.binlog_segments import FIRST, lay_segments, sealed_chain
from tests.contract.s3_server import s3_service
from tests.contract.sftp_server import sftp_server
from tests.contract.test_targets import MANIFEST, put, target
from tests.signers import signer
from tests.story.test_prune import JOB

__all__ = ["s3_service", "sftp_server", "target"]


def test_what_is_pruned_is_gone_and_the_rest_is_found_and_read_again(target: Target, tmp_path: Path) -> None:
    key = signer()
    machine = Machine("db1", {"machine-id": "a1"}, boot_id="boot")
    chain = sealed_chain(6, key, first=replace(FIRST, machine=target.machine))
    stands = chain[3].segment  # the backup ends the fourth
    at = stands.received_at + timedelta(minutes=1)
    trust = Trust(frozenset([key.public]))
    with Catalogue.open(tmp_path / "catalogue.db", machine=lambda: machine) as catalogue:
        ownership = Ownership(catalogue, machine, Claims(tmp_path / "run"), renewal_seconds=60)
        ownership.take(target)
        lay_segments(target, chain)
        put(target, b"12345", run="r1")
        target.publish(replace(MANIFEST, run_id="r1"))
        backup = Backup(target.name, "there", 10, 5, 1, "b" * 64)
        run = RunDetails("r1", "nightly", "db1", target.machine, RunStatus.SUCCESS, at, ended_at=at)
        place = Position(stands.file, stands.end, stands.gtid_end)
        catalogue.import_run(replace(run, backups=(backup,), position=place))
        for one in chain:
            catalogue.add_segment(one.segment, spooled=False)
            catalogue.segment_stored(one.segment.name, target.name, at=at)
        job = replace(JOB, targets=(target.name,))
        now = at + timedelta(hours=1)
        prune(job, (target,), catalogue, ownership=ownership, now=now).require_complete()
        left = [one.segment for one in chain[3:]]
        assert sorted(target.segments("nightly")) == [segment.name for segment in left]
        found = verify_segments(target, catalogue, SegmentReader("nightly", [target]))
        assert (found.read, found.lost, found.breaks, found.errors) == (3, [], [], [])
    with Catalogue.open(tmp_path / "new.db", machine=lambda: machine) as empty:
        (rebuilt,) = rebuild_segments(target, empty, trust)
        assert (rebuilt.imported, rebuilt.failures) == (3, [])
        assert list(empty.segments("nightly", target=target.name)) == left
