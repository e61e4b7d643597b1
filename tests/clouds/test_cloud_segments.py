"""What every target promises of segments, of those in clouds: the suite of `tests.contract.test_target_segments`."""

from dataclasses import replace

import pytest

from backupd.config import AzureConfig, GcsConfig
from backupd.targets.blobs import BlobTarget
from backupd.targets.names import BINLOG
from tests.clouds.conftest import blob_target
from tests.contract import test_target_segments
from tests.contract.s3_faults import in_between, lose_the_answer
from tests.contract.test_target_segments import FIRST, LARGE, put_segment, segment
from tests.contract.test_targets import JOB

globals().update({name: test for name, test in vars(test_target_segments).items() if name.startswith("test_")})


@pytest.mark.parametrize("content", [b"small", LARGE], ids=["small", "large"])
def test_what_a_dead_writer_uploaded_of_a_segment_is_in_nobody_s_way(target: BlobTarget, content: bytes) -> None:
    target._store.upload(f"{target._key(JOB, BINLOG)}/{FIRST}", "0" * 32).part(0, 0, bytes(256 << 10))
    assert target.backups() == []
    put_segment(target, content)
    assert segment(target) == content
    target.remove_segments(JOB, [FIRST])
    assert dict(target.segments(JOB)) == {}
    assert list(target._uploads(target._bucket.prefix)) == []


def test_an_answer_that_was_lost_is_looked_up(config: AzureConfig | GcsConfig) -> None:
    with in_between(config.endpoint or "") as proxy:
        target = blob_target(replace(config, endpoint=proxy.endpoint))
        proxy.next("PutObject", lose_the_answer)
        put_segment(target, b"small")
    assert segment(blob_target(config)) == b"small"
