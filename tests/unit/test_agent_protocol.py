"""What a control host and an agent say to each other is checked on both sides, and grows without breaking."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.fleet import HostAway, HostRefuses
from backupd.fleet.asking_agent import AskingAgent
from backupd.policy import agent_protocol as protocol
from backupd.policy.agent_protocol import MOST_ANSWER_BYTES, MOST_REQUEST_BYTES, Ask, Request
from backupd.vocabulary.errors import Busy, Cancelled, CatalogueUnavailable, NotUnderstood, VerificationError
from backupd.vocabulary.fleet import DescribedJob, HostDescription, Role, RunState, StartOrder
from backupd.vocabulary.records import RunDetails, RunError, RunStatus
from tests.docs.json_documents import Having, Maker

NOON = datetime(2026, 11, 26, 12, tzinfo=UTC)
DESCRIBED = HostDescription(
    "db1-0123abcd", "0.9", (1, 1), NOON, (DescribedJob("nightly", ("vault",), Role.UNKNOWN, problem="it\nhangs"),)
)
STATE = RunState("r1", RunStatus.FAILED, error=RunError("server-error", "two\nlines", "look", 6))
REQUESTS = [
    Request(Ask.DESCRIBE),
    Request(Ask.START, "nightly", "20261126-shop-nightly.2", 50 << 20),
    Request(Ask.STATUS, run_id="r1"),
    Request(Ask.CANCEL, run_id="r1"),
    Request(Ask.RESULT, run_id="r1"),
]


def asked(request: Request, **changed: Any) -> bytes:
    body = json.loads(protocol.request_text(request, protocol=1, version="0.9"))
    return json.dumps({**body, **changed}).encode()


@pytest.mark.parametrize("request_", REQUESTS, ids=str)
def test_a_request_arrives_as_it_was_sent(request_: Request) -> None:
    text = protocol.request_text(request_, protocol=1, version="0.9")
    assert text.count(b"\n") == 1
    assert protocol.parse_request(text, version="0.8") == replace(request_, backupd="0.9")


def test_keys_that_a_later_backupd_adds_are_ignored_on_both_sides() -> None:
    assert protocol.parse_request(asked(REQUESTS[2], colour="blue"), version="0.9").ask is Ask.STATUS
    body = json.loads(protocol.answer_text(STATE, version="0.9"))
    text = json.dumps({**body, "mood": 1, "answer": {**body["answer"], "colour": "blue"}}).encode()
    assert protocol.parse_answer(text, REQUESTS[2]).answer == STATE


def test_fields_that_an_earlier_backupd_did_not_have_get_their_defaults() -> None:
    body = json.loads(protocol.answer_text(STATE, version="0.9"))
    body["answer"] = {"run_id": "r1", "status": "running"}
    assert protocol.parse_answer(json.dumps(body).encode(), REQUESTS[2]).answer == RunState("r1", RunStatus.RUNNING)


@pytest.mark.parametrize("having", Having)
def test_all_that_a_catalogue_can_have_of_a_run_arrives(having: Having) -> None:
    run: RunDetails = Maker(having)(RunDetails)
    text = protocol.answer_text(run, version="0.9")
    assert protocol.parse_answer(text, Request(Ask.RESULT, run_id=run.run_id)).answer == run


@given(st.text(), st.text(), st.lists(st.text(), max_size=3))
def test_words_of_any_characters_arrive(message: str, hint: str, attention: list[str]) -> None:
    run: RunDetails = Maker(Having.AS_LITTLE_AS_IT_MUST)(RunDetails)
    run = replace(run, error=RunError("server-error", message, hint, 6), attention=tuple(attention))
    text = protocol.answer_text(run, version="0.9")
    assert protocol.parse_answer(text, Request(Ask.RESULT, run_id=run.run_id)).answer == run


@pytest.mark.parametrize(
    ("text", "fact"),
    [
        (b"", "cannot be parsed"),
        (b"[]", "not a JSON object"),
        (b"{}", "does not say its protocol"),
        (b"\xff\xfe", "cannot be parsed"),
        (b"[" * 50_000, "larger than"),
        (b" " * (MOST_REQUEST_BYTES + 1), "larger than 64 KiB"),
        (b'{"protocol": 1, "protocol": 1}', "a key occurs twice"),
        (b'{"protocol": true, "backupd": "0.9"}', "does not say its protocol"),
        (asked(REQUESTS[0], ask="shell"), "cannot be asked for 'shell'"),
        (asked(REQUESTS[0], ask=["describe"]), "cannot be asked for"),
        (asked(REQUESTS[0], ask=None), "cannot be asked for None"),
        (asked(REQUESTS[1], job="--config=/tmp/x"), "is not the name of a job"),
        (asked(REQUESTS[1], job="../nightly"), "is not the name of a job"),
        (asked(REQUESTS[1], job="nightly\n"), "document.job"),
        (asked(REQUESTS[1], job=""), "is not the name of a job"),
        (asked(REQUESTS[1], job="n" * 42), "is not the name of a job"),
        (asked(REQUESTS[1], job=7), "document.job"),
        (asked(REQUESTS[1], max_rate=0), "is not a rate"),
        (asked(REQUESTS[1], max_rate=-1), "is not a rate"),
        (asked(REQUESTS[1], max_rate=1 << 62), "is not a rate"),
        (asked(REQUESTS[1], max_rate="1; rm -rf /"), "document.max_rate"),
        (asked(REQUESTS[1], max_rate=1.5), "document.max_rate"),
        (asked(REQUESTS[2], run_id="../../etc/passwd"), "is not a valid run id"),
        (asked(REQUESTS[2], run_id="/etc/passwd"), "is not a valid run id"),
        (asked(REQUESTS[2], run_id="-r"), "is not a valid run id"),
        (asked(REQUESTS[2], run_id="latest"), "is not a valid run id"),
        (asked(REQUESTS[2], run_id="as-of=now"), "is not a valid run id"),
        (asked(REQUESTS[2], run_id="r\x00"), "document.run_id"),
        (asked(REQUESTS[2], run_id="r" * 62), "is not a valid run id"),
        (asked(REQUESTS[2], run_id=None), "document.run_id"),
    ],
)
def test_what_is_no_request_is_refused_in_a_sentence(text: bytes, fact: str) -> None:
    with pytest.raises(NotUnderstood) as caught:
        protocol.parse_request(text, version="0.9")
    assert fact in caught.value.message
    assert caught.value.hint


@given(st.binary(max_size=300))
def test_no_bytes_do_anything_but_be_refused(text: bytes) -> None:
    with pytest.raises(NotUnderstood):
        protocol.parse_request(text, version="0.9")


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        (REQUESTS[0], replace(DESCRIBED, machine="../db1")),
        (REQUESTS[0], replace(DESCRIBED, jobs=DESCRIBED.jobs * 2)),
        (REQUESTS[0], replace(DESCRIBED, jobs=(replace(DESCRIBED.jobs[0], job="a b"),))),
        (REQUESTS[0], STATE),
        (REQUESTS[2], replace(STATE, run_id="r2")),
        (REQUESTS[2], replace(STATE, phase="\x1b[2J")),
        (REQUESTS[4], STATE),
    ],
    ids=str,
)
def test_an_answer_that_is_none_to_this_request_is_refused(request_: Request, answer: Any) -> None:
    with pytest.raises(VerificationError) as caught:
        protocol.parse_answer(protocol.answer_text(answer, version="0.9"), request_)
    assert caught.value.hint


@pytest.mark.parametrize(
    "field",
    [
        '"lag_seconds": 1e999',
        '"lag_seconds": -1e999',
        '"lag_seconds": 2e9',
        '"lag_seconds": -1',
        '"lag_seconds": 1' + "0" * 400,
        '"expected_seconds": 1e999',
        '"expected_seconds": 1e10',
        '"expected_bytes": -1',
        '"expected_bytes": 1' + "0" * 30,
        '"fallback_after_seconds": 1e999',
    ],
)
def test_numbers_that_nobody_can_reckon_with_are_refused(field: str) -> None:
    text = json.dumps(json.loads(protocol.answer_text(DESCRIBED, version="0.9")))
    name = field.partition(":")[0]
    assert f"{name}: null" in text
    with pytest.raises(HostRefuses, match=name.strip('"')):
        AskingAgent("db1", lambda _: text.replace(f"{name}: null", field).encode()).describe()


# --- what is believed ------------------------------------------------------------------------------------------------


def answering(answer: Any) -> AskingAgent:
    return AskingAgent("db1", lambda _: protocol.answer_text(answer, version="0.9"))


def test_what_has_not_been_yet_is_not_believed() -> None:
    far, now = datetime(2999, 1, 1, tzinfo=UTC), datetime.now(UTC)
    job = replace(DESCRIBED.jobs[0], last_good_at=far, last_proven_at=far)
    (told,) = answering(replace(DESCRIBED, jobs=(job,))).describe().jobs
    assert (told.last_good_at, told.last_proven_at) == (None, None)
    ended = answering(replace(STATE, started_at=far, ended_at=far)).status("r1")
    assert ended.ended_at is not None
    assert ended.started_at is not None
    assert now <= ended.started_at <= ended.ended_at <= datetime.now(UTC)
    claimed = replace(DESCRIBED, machine_since=far, machine_before="db9", machines={DESCRIBED.machine: now})
    told_now = answering(claimed).describe()  # the records know that
    assert (told_now.machine_since, told_now.machine_before, told_now.machines) == (None, "", {})
    near = datetime.now(UTC) + timedelta(seconds=30)  # a sound host's clock may be so far ahead
    assert answering(replace(STATE, ended_at=near)).status("r1").ended_at == near
    run: RunDetails = Maker(Having.AS_LITTLE_AS_IT_MUST)(RunDetails)
    details = answering(replace(run, started_at=far, ended_at=far)).result(run.run_id)
    assert details.ended_at is not None
    assert now <= details.started_at <= details.ended_at <= datetime.now(UTC)


def test_a_stranger_s_words_are_one_line_and_not_a_long_one() -> None:
    (job,) = answering(DESCRIBED).describe().jobs
    assert job.problem == "it\\nhangs"
    (job,) = answering(replace(DESCRIBED, jobs=(replace(job, problem="\x1b" * 5_000),))).describe().jobs
    assert job.problem == ("\\x1b" * 500)[:500]
    error = RunError("server-error", "two\nlines" * 1000, "look\n", 6)
    told = answering(replace(STATE, error=error)).status("r1").error
    assert told is not None
    assert (len(told.message), told.message[:10], told.hint) == (500, "two\\nlines", "look\\n")


# --- versions --------------------------------------------------------------------------------------------------------


class Host:
    """An agent of a backupd that speaks these protocols; it has heard what it was asked."""

    def __init__(self, speaks: range, version: str) -> None:
        self.speaks, self.version, self.heard = speaks, version, list[int]()

    def exchange(self, text: bytes) -> bytes:
        self.heard.append(json.loads(text)["protocol"])
        try:
            protocol.parse_request(text, version=self.version, speaks=self.speaks)
        except NotUnderstood as error:
            return protocol.error_text(error, version=self.version, speaks=self.speaks)
        return protocol.answer_text(STATE, version=self.version, speaks=self.speaks)


def test_both_speak_the_newest_protocol_that_both_know() -> None:
    for theirs, ours, heard in (
        (range(1, 2), range(1, 2), [1]),
        (range(1, 3), range(1, 4), [3, 2]),
        (range(2, 6), range(1, 4), [3]),
    ):
        host = Host(theirs, "0.9")
        assert AskingAgent("db1", host.exchange, speaks=ours).status("r1").status is STATE.status
        assert host.heard == heard


@pytest.mark.parametrize(
    ("theirs", "ours", "who"),
    [
        (range(1, 2), range(2, 4), "upgrade backupd on db1"),
        (range(5, 7), range(2, 4), "upgrade backupd on the control"),
    ],
)
def test_without_a_common_protocol_it_is_told_who_is_to_be_upgraded(theirs: range, ours: range, who: str) -> None:
    with pytest.raises(HostRefuses) as caught:
        AskingAgent("db1", Host(theirs, "0.7").exchange, speaks=ours).status("r1")
    assert "db1 (backupd 0.7) speaks agent protocol" in caught.value.message
    assert caught.value.hint.startswith(who)


# --- what is asked for through it ------------------------------------------------------------------------------------


def test_a_clock_that_is_off_is_told_by_how_much() -> None:
    agent = AskingAgent("db1", lambda _: protocol.answer_text(DESCRIBED, version="0.9"))
    ahead = agent.describe().clock_ahead_seconds
    assert ahead is not None
    assert abs(ahead - (NOON - datetime.now(UTC)).total_seconds()) < 5


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (UnicodeError("label empty or too long"), "UnicodeError: label empty or too long"),
        (ValueError("p must be at least\n512-bit"), r"ValueError: p must be at least\n512-bit"),
        (OverflowError("date value out of range"), "OverflowError: date value out of range"),
    ],
)
def test_whatever_is_raised_over_one_host_is_that_host_s_refusal(
    error: Exception, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    def exchange(_: bytes) -> bytes:
        raise error

    agent = AskingAgent("db1", exchange)
    for ask in (
        agent.describe,
        partial(agent.start, StartOrder("nightly", "r1")),
        partial(agent.status, "r1"),
        partial(agent.cancel, "r1"),
        partial(agent.result, "r1"),
    ):
        with pytest.raises(HostRefuses) as caught:
            ask()
        assert caught.value.message == f"db1 could not be asked: {said}"
        assert caught.value.refusal is None
    assert caplog.text.count("Traceback") == 5


def test_who_cancels_while_a_host_is_asked_is_heard() -> None:
    def exchange(_: bytes) -> bytes:
        raise Cancelled("cancelled by SIGINT")

    with pytest.raises(Cancelled):
        AskingAgent("db1", exchange).describe()


def test_a_refusal_says_which_host_and_why_in_one_line() -> None:
    error = Busy("job nightly\x1b[2J\nis held", hint="later")
    with pytest.raises(HostRefuses) as caught:
        AskingAgent("db1", lambda _: protocol.error_text(error, version="0.9")).start(StartOrder("nightly", "r1"))
    assert caught.value.message == r"db1: job nightly\x1b[2J\nis held"
    assert caught.value.refusal is not None
    assert caught.value.refusal.code == "busy"


def test_a_catalogue_that_is_locked_for_now_is_a_host_that_is_away() -> None:
    error = CatalogueUnavailable("the catalogue is locked", hint="fuser -v FILE")
    with pytest.raises(HostAway, match="db1: the catalogue is locked"):
        AskingAgent("db1", lambda _: protocol.error_text(error, version="0.9")).status("r1")


@given(st.binary(max_size=200))
def test_whatever_a_host_prints_is_an_answer_or_a_refusal(said: bytes) -> None:
    with pytest.raises(HostRefuses):
        AskingAgent("db1", lambda _: said).describe()


def test_an_answer_has_a_limit() -> None:
    with pytest.raises(HostRefuses, match="larger than 8 MiB"):
        AskingAgent("db1", lambda _: b" " * (MOST_ANSWER_BYTES + 1)).describe()
