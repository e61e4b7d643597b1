"""What stays of a binlog archive where a segment could not be read, in which a backup may stand."""

from backupd.policy.segment_retention import SegmentDecision, SegmentNeeds, decision, needed
from tests.unit.test_roll_forward import NOW, WRITTEN, backup_after

FIRST_CHAIN, SECOND_CHAIN = WRITTEN[0].chain, WRITTEN[3].chain  # of three segments each
IN_FIRST, IN_SECOND = backup_after(WRITTEN, 15), backup_after(WRITTEN, 45)  # each in the second segment of its chain


def test_a_segment_that_could_not_be_read_stays_with_all_behind_it_where_a_backup_may_stand_in_it() -> None:
    needs = needed(WRITTEN, [IN_SECOND], {FIRST_CHAIN: 2})
    assert needs == SegmentNeeds(IN_SECOND, {SECOND_CHAIN: (2, "r45")}, {FIRST_CHAIN: 2})
    assert needs.from_number == {FIRST_CHAIN: 2, SECOND_CHAIN: 2}
    before, *others = WRITTEN[:3]
    assert [decision(one, needs, NOW) for one in others] == [
        SegmentDecision(one.name, keep=True, reason="a backup may begin in segment 2, which could not be read")
        for one in others
    ]
    assert not decision(before, needs, NOW).keep


def test_no_backup_stands_in_an_unread_segment_of_a_chain_in_which_all_have_their_place() -> None:
    assert needed(WRITTEN, [IN_SECOND], {SECOND_CHAIN: 1}) == needed(WRITTEN, [IN_SECOND])


def test_of_a_chain_that_one_backup_is_placed_in_and_another_may_be_the_earlier_of_both_is_needed() -> None:
    for unread, first in ((1, 1), (2, 2), (3, 2)):
        needs = needed(WRITTEN, [IN_FIRST, IN_SECOND], {SECOND_CHAIN: unread})
        assert needs.unread == {SECOND_CHAIN: unread}
        assert needs.from_number == {FIRST_CHAIN: 2, SECOND_CHAIN: first}
