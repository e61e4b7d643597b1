"""What a control host and a host's agent say to each other: one request and one answer, each a JSON document.

    {"protocol": 1, "backupd": "0.9.0", "ask": "status", "run_id": "20261126-shop-nightly"}
    {"protocol": 1, "backupd": "0.9.0", "speaks": [1, 1], "answer": {"run_id": …, "status": "running", …}}
    {"protocol": 1, "backupd": "0.9.0", "speaks": [1, 1], "error": {"code": …, "message": …, "hint": …, …}}

Knows: the closed list of what can be asked, the type, size and form of everything that is said, and which protocol two
backupds have in common. Refuses to know how either comes from one to the other. Both sides take the other for a
stranger: whoever reads checks, and keys that are not known are ignored. A protocol only grows by fields that have a
default; anything else is a new one.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, Final

from backupd.policy.typed_json import DocumentKind, plain
from backupd.vocabulary.errors import BackupdError, NotUnderstood, Unreadable, VerificationError
from backupd.vocabulary.escaping import encodable
from backupd.vocabulary.fleet import PROTOCOLS, DescribedJob, HostDescription, RunState
from backupd.vocabulary.identity import is_name
from backupd.vocabulary.names import NAME
from backupd.vocabulary.records import RUN_ID, RunDetails, RunError
from backupd.vocabulary.selectors import RESERVED

MOST_REQUEST_BYTES: Final = 64 << 10
MOST_ANSWER_BYTES: Final = 8 << 20
MOST_JOBS: Final = 1000  # of a host
MOST_CURVE_POINTS: Final = 2000  # of a run's samples, and of its changes of pace

_LEAST_RATE, _MOST_RATE = 1 << 10, 1 << 50  # bytes a second
_LONGEST_VERSION = 100  # characters
_MOST_SECONDS = 1e9  # thirty years: no lag, no backup and no absence lasts as long


class Ask(StrEnum):
    """All that an agent can be asked."""

    DESCRIBE = "describe"
    START = "start"
    STATUS = "status"
    CANCEL = "cancel"
    RESULT = "result"


Answer = HostDescription | RunState | RunDetails

_ANSWERS: Final[Mapping[Ask, Any]] = {
    Ask.DESCRIBE: HostDescription,
    Ask.START: RunState,
    Ask.STATUS: RunState,
    Ask.CANCEL: RunState,
    Ask.RESULT: RunDetails,
}

_HINT = "only a control host's backupd sends requests to an agent; try `backupd fleet check` there"
_REQUEST = DocumentKind(
    name="request",
    major=PROTOCOLS[-1],
    most_bytes=MOST_REQUEST_BYTES,
    most_values=MOST_JOBS + 64,
    damaged_hint=_HINT,
    unknown_hint=_HINT,
    newer_hint=_HINT,
    with_defaults=True,
)
_ANSWER_HINT = "is the forced command of the control host's key on that host exactly `backupd agent`?"
_ANSWER = DocumentKind(
    name="answer",
    major=PROTOCOLS[-1],
    most_bytes=MOST_ANSWER_BYTES,
    most_values=1 << 18,
    damaged_hint=_ANSWER_HINT,
    unknown_hint=_ANSWER_HINT,
    newer_hint=_ANSWER_HINT,
    with_defaults=True,
)


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked of an agent; fields that its `ask` has no use for are empty."""

    ask: Ask
    job: str = ""
    run_id: str = ""
    max_rate: int | None = None  # bytes a second
    backupd: str = ""  # the version of who asks; told by `request_text`
    sees_to: tuple[str, ...] = ()  # jobs of the host whose backups whoever asks makes, as long as it goes on asking

    def require_sound(self) -> None:
        """Raise where a field is not what its ask needs.

        Raises:
            NotUnderstood: one is missing, or not of the form that such a thing has.
        """
        if self.ask is not Ask.DESCRIBE and not is_run_id(self.run_id):
            raise NotUnderstood(f"{self.run_id!r:.80} is not a valid run id", hint=_HINT)
        if self.ask is Ask.START and not NAME.fullmatch(self.job):
            raise NotUnderstood(f"{self.job!r:.80} is not the name of a job", hint=_HINT)
        if len(self.sees_to) > MOST_JOBS or not all(NAME.fullmatch(job) for job in self.sees_to):
            raise NotUnderstood("the list of jobs that the control host makes backups of is not valid", hint=_HINT)
        if self.max_rate is not None and not _LEAST_RATE <= self.max_rate <= _MOST_RATE:
            raise NotUnderstood(f"{self.max_rate} bytes a second is not a rate to copy at", hint=_HINT)


@dataclass(frozen=True, slots=True)
class Answered:
    """What has come back from an agent, and who has sent it."""

    backupd: str  # its version
    speaks: tuple[int, int]  # the oldest and the newest protocol
    answer: Answer | None
    error: RunError | None  # instead of the answer


def is_run_id(text: str) -> bool:
    """Whether a run can be called so."""
    return bool(RUN_ID.fullmatch(text)) and text not in RESERVED


def request_text(request: Request, *, protocol: int, version: str) -> bytes:
    """The document that goes to the agent."""
    asked = {key: value for key, value in plain(request).items() if value not in ("", None, ())}
    return _encoded({"protocol": protocol, "backupd": version, **asked})


def parse_request(text: bytes, *, version: str, speaks: range = PROTOCOLS) -> Request:
    """What a stranger asks of an agent of this version.

    Raises:
        NotUnderstood: it is no such document, or of no protocol that this backupd speaks.
    """
    try:
        body = _REQUEST.parsed(text)
        _require_known(body, version, speaks)
        if not (isinstance(ask := body.get("ask"), str) and ask in set(Ask)):
            raise NotUnderstood(f"an agent cannot be asked for {ask!r:.80}", hint=f"it knows: {', '.join(Ask)}")
        request: Request = _REQUEST.typed(Request, body, "document")
    except VerificationError as error:
        raise NotUnderstood(error.message, hint=error.hint) from error
    request.require_sound()
    return request


def answer_text(answer: Answer, *, version: str, speaks: range = PROTOCOLS) -> bytes:
    """The document that goes back."""
    return _encoded({**_sender(version, speaks), "answer": plain(answer)})


def error_text(error: BackupdError, *, version: str, speaks: range = PROTOCOLS) -> bytes:
    """The document that goes back instead of an answer."""
    message, hint = encodable(error.message), encodable(error.hint)
    told = {"code": error.code, "message": message, "hint": hint, "exit_status": int(error.exit_status)}
    return _encoded({**_sender(version, speaks), "error": told})


def parse_answer(text: bytes, request: Request) -> Answered:
    """What a stranger answers to this request.

    Raises:
        VerificationError, Unreadable: it makes no sense.
    """
    body = _ANSWER.parsed(text)
    version, speaks = body.get("backupd"), _ANSWER.typed(tuple[int, int], body.get("speaks"), "speaks")
    if not isinstance(version, str) or len(version) > _LONGEST_VERSION or not version.isprintable():
        raise _ANSWER.invalid(version, "backupd")
    if speaks[0] > speaks[1]:
        raise _ANSWER.invalid(speaks, "speaks")
    if "error" in body:
        return Answered(version, speaks, None, _ANSWER.typed(RunError, body["error"], "error"))
    answer = _ANSWER.typed(_ANSWERS[request.ask], body.get("answer"), "answer")
    _require_plausible(answer, request)
    return Answered(version, speaks, answer, None)


def common_protocol(theirs: tuple[int, int], ours: range = PROTOCOLS) -> int | None:
    """The newest that both speak; None where there is none."""
    newest = min(theirs[1], ours[-1])
    return newest if newest >= max(theirs[0], ours[0]) else None


def no_common_protocol(host: str, answered: Answered, *, version: str, ours: range = PROTOCOLS) -> tuple[str, str]:
    """The sentence and the hint where a control host of this version and an agent have none in common."""
    sentence = (
        f"{host} (backupd {answered.backupd}) speaks agent {_spoken(answered.speaks)}; this control host (backupd"
        f" {version}) speaks {_spoken((ours[0], ours[-1]))}"
    )
    older = answered.speaks[1] < ours[0]
    return sentence, f"upgrade backupd on {host}" if older else "upgrade backupd on the control host"


def thinned(run: RunDetails) -> RunDetails:
    """The run as it is answered: of long curves some points, evenly over their length."""
    values = {one.name: getattr(run, one.name) for one in fields(run)}
    return RunDetails(**{**values, "samples": _some(run.samples), "pace": _some(run.pace)})


def _some(points: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(points) <= MOST_CURVE_POINTS:
        return points
    step = (len(points) - 1) / (MOST_CURVE_POINTS - 1)
    return tuple(points[round(number * step)] for number in range(MOST_CURVE_POINTS))


def _require_known(body: Mapping[str, Any], version: str, speaks: range) -> None:
    protocol, theirs = body.get("protocol"), body.get("backupd")
    if type(protocol) is not int or not isinstance(theirs, str):
        raise Unreadable("the request does not say its protocol and its backupd's version", hint=_HINT)
    if protocol not in speaks:
        raise NotUnderstood(
            f"the control host's backupd {theirs!r:.80} asks in protocol {protocol}, backupd {version} of this host"
            f" speaks {_spoken((speaks[0], speaks[-1]))}",
            hint=f"upgrade backupd on {'this host' if protocol > speaks[-1] else 'the control host'}",
        )


def _require_plausible(answer: Answer, request: Request) -> None:
    match answer:
        case HostDescription():
            names = {job.job for job in answer.jobs}
            if not is_name(answer.machine):
                raise _ANSWER.invalid(answer.machine, "answer.machine")
            if len(answer.jobs) > MOST_JOBS or len(names) < len(answer.jobs):
                raise _ANSWER.invalid(len(answer.jobs), "answer.jobs")
            if wrong := next((name for name in names if not NAME.fullmatch(name)), None):
                raise _ANSWER.invalid(wrong, "answer.jobs.job")
            for job in answer.jobs:
                _require_numbers(job)
        case RunState() | RunDetails() if answer.run_id != request.run_id:
            raise _ANSWER.invalid(answer.run_id, "answer.run_id")


def _require_numbers(job: DescribedJob) -> None:
    """What is reckoned with: one host's number must not stop the planning of all others."""
    for name in ("lag_seconds", "expected_seconds", "fallback_after_seconds"):
        seconds = getattr(job, name)
        if seconds is not None and not 0 <= seconds <= _MOST_SECONDS:
            raise _ANSWER.invalid(seconds, f"answer.jobs.{name}")
    if job.expected_bytes is not None and job.expected_bytes < 0:
        raise _ANSWER.invalid(job.expected_bytes, "answer.jobs.expected_bytes")


def _spoken(protocols: tuple[int, int]) -> str:
    oldest, newest = protocols
    return f"protocol {newest}" if oldest == newest else f"protocols {oldest} to {newest}"


def _sender(version: str, speaks: range) -> dict[str, Any]:
    return {"protocol": speaks[-1], "backupd": version, "speaks": [speaks[0], speaks[-1]]}


def _encoded(body: Mapping[str, Any]) -> bytes:
    """One line. What is no Unicode (a byte of a file's name, in an error) is escaped, as JSON can."""
    return f"{json.dumps(body, default=plain, separators=(',', ':'))}\n".encode()
