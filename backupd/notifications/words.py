"""A notice as people and programs get it, whichever way it goes.

Knows: the words. Everything but the machine's name, names of the configuration and a digest's sentence may hold what a
server or a disk has said: it belongs into a body, never into a header.
"""

import socket
from datetime import UTC
from typing import Any

from backupd.vocabulary.escaping import indented, plain
from backupd.vocabulary.instants import to_the_second
from backupd.vocabulary.schedule import Notice, NoticeKind

SCHEMA = 1

_BECAME = {
    NoticeKind.STARTED: "has started",
    NoticeKind.SUCCEEDED: "is good",
    NoticeKind.FAILED: "failed",
    NoticeKind.RETRYING: "failed and will be tried again",
    NoticeKind.ATTENTION: "needs attention",
    NoticeKind.RECOVERED: "is good again",
    NoticeKind.MISSED: "was missed",
    NoticeKind.ALARM: "has an alarm",
    NoticeKind.OVER: "had an alarm that is now over",
}


def title(notice: Notice) -> str:
    """One line of printable ASCII: which machine, whose it is, what became of that; of a digest its sentence."""
    if notice.kind is NoticeKind.DIGEST:
        became = f"digest: {notice.text}"
    else:
        became = f"{_whose(notice)} {_BECAME[notice.kind]}"
    line = f"backupd on {socket.gethostname()}: {became}"
    return "".join(letter if " " <= letter <= "~" else "?" for letter in line)


def _whose(notice: Notice) -> str:
    if notice.cluster is not None:
        if notice.cluster:
            return f"{notice.job} of cluster {notice.cluster}"
        # Of the whole fleet nothing fails but that a notice can be read.
        return "a notice of the fleet" if notice.kind is NoticeKind.FAILED else "the fleet"
    if notice.job or notice.target:
        return notice.job or f"target {notice.target}"
    if notice.kind in (NoticeKind.ALARM, NoticeKind.OVER):
        return f"the {notice.detail['alarm'].replace('-', ' ')}"
    return "a proof host's work"


def body(notice: Notice) -> str:
    """The sentence, then what else is known, a line each, or several that are indented below its name.

    `plain`, whatever a server or a disk has said. A digest's tables stand apart.
    """
    lines = [indented(notice.text), ""]
    for key, value in known(notice).items():
        if notice.kind is NoticeKind.DIGEST and (lines[-1].count("\n") or "\n" in value):
            lines.append("")
        lines.append(indented(f"{key}:{_between(value)}{value}"))
    return "\n".join([*lines, ""])


def known(notice: Notice) -> dict[str, str]:
    """By name, whatever is known beside the sentence; not escaped."""
    return {"at": to_the_second(notice.at), "machine": socket.gethostname(), **notice.detail}


def _between(value: str) -> str:
    return "\n" if "\n" in value else " "


def document(notice: Notice) -> dict[str, Any]:
    """The same for a program; `schema` changes when a key changes its meaning or goes."""
    return {
        "schema": SCHEMA,
        "kind": notice.kind.value,
        "job": notice.job,
        "target": notice.target,
        "cluster": notice.cluster,
        "machine": socket.gethostname(),
        "at": notice.at.astimezone(UTC).isoformat(),
        "subject": notice.subject,
        "backed_up": notice.backed_up,
        "text": plain(notice.text),
        "detail": {key: plain(value) for key, value in notice.detail.items()},
    }
