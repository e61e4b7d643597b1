"""The phases of a run in words: what it does now, and what a phase is called afterwards.

Knows: one sentence for terminal and page.
"""

from backupd.vocabulary.records import Phase

_DOING = {
    Phase.PREFLIGHT: "checking server, volume and targets",
    Phase.BASELINE: "measuring the baseline of writes, without a snapshot",
    Phase.PREFLUSH: "waiting for the server to flush its dirty pages",
    Phase.LOCK_WAIT: "taking the snapshot under the lock",
    Phase.SETTLE: "waiting for the penalty to settle",
    Phase.COPY: "copying",
    Phase.RELEASE: "removing the snapshot",
    Phase.SEND: "sending the spooled data",
    Phase.VERIFY: "reading back the stored copy",
}


def doing(phase: Phase) -> str:
    """What a run in this phase is doing."""
    return _DOING.get(phase, phase.value)
