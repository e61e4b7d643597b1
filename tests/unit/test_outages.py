"""How long a request is made again, and how often it is said."""

import time

import pytest

from backupd.targets.outages import Outages, Patience

QUICK = Patience(tries=3, first_seconds=0.0001, most_seconds=0.001)


def outages(at_most_seconds: float = 0.001) -> Outages:
    return Outages("target store", QUICK, at_most_seconds=at_most_seconds)


def test_with_a_number_of_tries_no_outage_is_waited_for() -> None:
    attempts = outages(60).attempts(tries=2)
    assert attempts.again("no")
    assert not attempts.again("no")


def test_a_request_is_made_as_often_as_patience_says_however_long_each_takes() -> None:
    attempts = outages().attempts()
    assert attempts.again("no")
    time.sleep(0.002)
    assert attempts.again("no")
    assert not attempts.again("no")


def test_an_answer_begins_another_row() -> None:
    attempts = outages().attempts(tries=2)
    for _ in range(5):
        assert attempts.again("no")
        attempts.answered()


def test_many_requests_tell_of_one_outage_once_and_of_the_next_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    several = outages(60)
    all_of_them = [several.attempts() for _ in range(4)]
    for _ in range(2):
        for each in all_of_them:
            assert each.again("could not write it: no route to host")
        for each in all_of_them:
            each.answered()
    told = [record.getMessage().partition(" after ")[0] for record in caplog.records]
    begun = "target store: could not write it: no route to host; retrying for up to 1m"
    assert told == [begun, "target store answers again"] * 2


def test_what_nobody_wants_is_not_asked_for_again() -> None:
    assert not outages(60).attempts(unwanted=lambda: True).again("no")


def test_pauses_double_up_to_a_bound_and_are_at_random_below() -> None:
    patience = Patience()
    for failures, bound in ((1, 0.5), (2, 1.0), (5, 8.0), (7, 20.0), (5000, 20.0)):
        pauses = [patience.pause_seconds(failures) for _ in range(200)]
        assert 0.5 * bound < max(pauses) <= bound
        assert min(pauses) < 0.5 * bound
