"""Where numbers fall within a domain, a refusal says that it cannot be found by GTID."""

from dataclasses import replace

import pytest

from backupd.policy.moments import BeforeGtid, Latest, Moment, ToGtid
from backupd.policy.rising_numbers import doubt
from tests.binlog_segments import FIRST, UUID

LAST = replace(FIRST, gtid_start="0-1-101", gtid_end="0-2-100", gtid_state="0-1-101,0-2-100,5-2-7")


@pytest.mark.parametrize(
    ("moment", "told"),
    [
        (ToGtid("0-2-100"), True),
        (BeforeGtid("0-2-90"), True),  # as far as is known here
        (ToGtid("0-2-102"), False),  # it was not written yet
        (ToGtid("0-3-1"), False),  # by no server that wrote
        (ToGtid("5-2-3"), False),  # alone in its domain
        (ToGtid(f"{UUID}:7"), False),
        (ToGtid("no GTID"), False),
        (Latest(), False),
    ],
)
def test_a_number_that_another_server_may_have_passed_is_doubted(moment: Moment, told: bool) -> None:
    found = doubt(moment, [FIRST, LAST])
    assert ("cannot be found by GTID" in found) is told
    assert doubt(moment, [FIRST]) == ""  # of which no states are known
