"""Whether what was found after a power cut is what was promised before it. Pure.

Knows: each promise, and what breaks it.
"""

from collections.abc import Iterator, Mapping
from typing import Any

GOOD = ("success", "attention")
_AT_WORK = 2  # a receiver, which writes a segment, and a run, which writes an owner record
_ON_A_TARGET = (
    "on the target ",
    "a row of partial-objects ",
)  # removed two minutes after the first look: see identity.md


def violations(facts: Mapping[str, Any]) -> list[str]:
    """A sentence for each promise that was broken; none where all were kept. It begins with the promise's name."""
    return list(_violations(facts))


def _violations(facts: Mapping[str, Any]) -> Iterator[str]:
    for step, said in facts["boot"].items():
        if said["status"]:
            yield f"boot: {step} failed: {said['error'].strip()}"
    if "server" not in facts:
        return
    server, promised = facts["server"], facts["promised"]
    if not server["answers"]:
        yield f"server: it does not recover: {server['log'][-300:]}"
        return
    if server["orders"] < promised["orders"]:
        yield f"server: {promised['orders']} orders were acknowledged, {server['orders']} are there"
    yield from _of_commands(facts)
    yield from _of_catalogue(facts)
    if on_the_host := [thing for thing in facts["left_at_first"] if not thing.startswith(_ON_A_TARGET)]:
        yield f"recover: it left {', '.join(on_the_host)}"
    if facts["left"]:
        yield f"recover: it left for longer than two minutes {', '.join(facts['left'])}"
    if len(facts["unfinished"]) > _AT_WORK:
        yield f"recover: more is unfinished than was at work: {', '.join(facts['unfinished'])}"
    yield from _of_backups(facts)
    yield from _of_the_restore(facts)
    yield from _of_the_archive(facts)


def _of_commands(facts: Mapping[str, Any]) -> Iterator[str]:
    for said in facts["commands"]:
        words = " ".join(said["words"])
        if said["words"][0] == "recover" and said["status"]:
            yield f"recover: `{words}` ended with {said['status']}: {said['error'].strip()[-300:]}"
        if "Traceback" in said["error"]:
            yield f"words: `{words}` printed a traceback: {said['error'].strip()[-300:]}"
        if "error: " in said["error"] and "hint: " not in said["error"]:
            yield f"words: `{words}` told an error without a hint: {said['error'].strip()[-300:]}"


def _of_catalogue(facts: Mapping[str, Any]) -> Iterator[str]:
    if facts["runs"] is None:
        yield "catalogue: it does not open"
    if facts["catalogue"] != ["ok"]:
        yield f"catalogue: its integrity check says {facts['catalogue']}"


def _of_backups(facts: Mapping[str, Any]) -> Iterator[str]:
    """What was acknowledged is good and there, but for what may be pruned; what is published is whole."""
    runs, found = facts["runs"] or {}, facts["manifests"]
    for run in facts["promised"]["runs"]:
        if runs.get(run) not in GOOD:
            yield f"runs: {run} was acknowledged, and the catalogue says {runs.get(run, 'nothing of it')}"
        if run not in found and run not in facts["promised"]["may_go"]:
            yield f"runs: {run} was acknowledged, and the target has no manifest of it"
    for run, status in found.items():
        if status:
            yield f"manifest: {run} is published, and `verify` ends with {status}"


def _of_the_restore(facts: Mapping[str, Any]) -> Iterator[str]:
    if (restored := facts.get("restored")) is None:
        return
    promised = facts["promised"]["tree"]
    if promised and restored["tree"] != promised:
        yield "restore: it was acknowledged, and what is in its folder is not what was there"
    if not promised and restored["tree"] != facts["promised"]["whole_tree"]:
        yield f"restore: the same command ended with {restored['again']}, and what is in its folder is not whole"


def _of_the_archive(facts: Mapping[str, Any]) -> Iterator[str]:
    if (archive := facts.get("archive")) is None:
        return
    if not archive["goes_on"]:
        yield "archive: it does not go on"
    for reason in archive["gaps"]:
        yield f"archive: a gap: {reason}"
    if archive["verify"]:
        yield f"archive: `binlog verify` ends with {archive['verify']}"
