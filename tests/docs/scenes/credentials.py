"""A target whose credentials end soon."""

from datetime import UTC, datetime, timedelta

from tests.docs.stage import Stage, host
from tests.fakes.target import MemoryTarget


def play(stage: Stage) -> None:
    with host(stage) as db1:
        ends = (datetime.now(UTC) + timedelta(days=7)).replace(hour=0, minute=0, second=0)
        db1.world.others = [MemoryTarget("azure", access_ends=ends)]
        db1.patch.setattr(MemoryTarget, "require_usable", lambda _self: None)  # as of a cloud: its room is unknown
        db1.types("check", "nightly", status=3)
