"""Every frame is read within the promised rounds, whatever sizes they have."""

from hypothesis import example, given
from hypothesis import strategies as some

from backupd.policy.verification_rounds import next_part


@example(sizes=[5, 0, 0], rounds=1)
@given(sizes=some.lists(some.integers(0, 1 << 40), min_size=1, max_size=60), rounds=some.integers(1, 200))
def test_every_frame_is_read_once_within_the_promised_rounds(sizes: list[int], rounds: int) -> None:
    read: list[int] = []
    taken = 0
    while len(read) < len(sizes):
        found = next_part(sizes, len(read), rounds)
        assert found.start == len(read)
        assert len(found) > 0
        read += found
        taken += 1
    assert read == list(range(len(sizes)))
    assert taken <= rounds


@given(begin=some.integers(-5, 100), rounds=some.integers(1, 9))
def test_a_place_that_the_copy_does_not_have_is_its_beginning(begin: int, rounds: int) -> None:
    assert next_part([7, 7, 7], begin, rounds).start == (begin if begin in (1, 2) else 0)


def test_a_round_reads_about_its_part() -> None:
    assert [next_part([10] * 20, begin, 4) for begin in (0, 5, 15)] == [range(5), range(5, 10), range(15, 20)]
    assert next_part([1000, 1, 1], 0, 4) == range(1)
    assert next_part([5], 0, 1) == range(1)
