"""`backupd demo`: the whole job on a striped volume under load, in the lab; what it cost, and an accident."""

import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Annotated

import typer

from backupd.cli.output import print_text, tell

_ROWS = 60_000
_UNDISTURBED_SECONDS = 15.0
_DEADLINE_SECONDS = 900.0  # three minutes are enough on two idle cores; a busy machine may take longer
_JOB = "nightly"


def demo(*, inside: Annotated[bool, typer.Option(hidden=True)] = False) -> None:
    """Try a job in the lab, on a striped volume under a loaded server, and compare it with earlier defaults.

    Runs check, run, verify, drill, history, compare and probe. In the end somebody drops a table, and it comes back
    from the backup and the binlog archive with every row.
    """
    if inside:
        _inside()
        return
    from backupd.lab.options import LabOptions
    from backupd.lab.run import run_lab

    tell(f"demo: a striped volume of three disks under a loaded MariaDB server with {_ROWS} rows")
    options = LabOptions(rows=_ROWS, deadline_seconds=_DEADLINE_SECONDS)
    status = run_lab(options, ("backupd", "demo", "--inside"), say=tell)
    if status:
        raise typer.Exit(status)


def _inside() -> None:
    """What a DBA would type, one after the other; what the server lost meanwhile; an accident."""
    from backupd.cli.demo_accident import accident
    from backupd.lab.configuration import OLD_DEFAULTS, add_old_defaults
    from backupd.lab.site import guest_site

    _type("identity", "show")
    _type("check", _JOB)
    ours = _measured(_JOB)
    _type("verify", "latest")
    _type("drill", "latest")
    _type("history")
    add_old_defaults(guest_site())
    theirs = _measured(OLD_DEFAULTS)
    _type("compare", f"latest:{OLD_DEFAULTS}", f"latest:{_JOB}")
    _type("probe", _JOB, "--seconds", "2", "--repeat", "1", "--max-load", "100")  # the load here is our own
    print_text("\nwhat the backup with the earlier defaults cost")
    print_text(_price(OLD_DEFAULTS, *theirs))
    print_text("\nwhat this backup cost, and what it is worth")
    print_text(_price(_JOB, *ours))
    accident(_JOB, _type)


def _measured(job: str) -> tuple[float, float]:
    """A backup of this job, and when it began and ended; the load was left alone just before, to compare with."""
    time.sleep(_UNDISTURBED_SECONDS)
    began = time.time()
    _type("run", job)
    return began, time.time()


def _type(*words: str) -> None:
    """Run a command as a person would; a status that is neither ok nor attention ends the demo with it."""
    print_text(f"\n$ backupd {' '.join(words)}")
    sys.stdout.flush()
    status = subprocess.run([sys.argv[0], *words], check=False).returncode
    if status not in (0, 3):
        raise typer.Exit(status)


def _price(job: str, began: float, ended: float) -> str:
    """What the job's newest run cost by its own bill, and by what the load generator counted meanwhile."""
    from backupd.lab import load
    from backupd.lab.site import guest_site
    from backupd.operations import context
    from backupd.report.bill_words import bill_words
    from backupd.report.run_facts import run_facts
    from backupd.report.words import columns

    with context.catalogue(context.configuration(None)) as catalogue:
        run = catalogue.run(f"latest:{job}")
    site = guest_site()
    samples = load.parse_load(site.load_log.read_text())
    beats = load.parse_heartbeats(site.heartbeat_log.read_text())
    before = load.rate_between(samples, began - _UNDISTURBED_SECONDS, began)
    during = load.rate_between(samples, began, ended)
    facts: list[Sequence[str]] = [(f"{name}:", text) for name, text in run_facts(run) + bill_words(run)]
    if before and during is not None:
        lost = load.transactions_lost(samples, began, ended, undisturbed=before) or 0.0
        facts.append(
            (
                "server meanwhile:",
                f"{during / before:.0%} of the baseline of {before:.0f} transactions a second:"
                f" {max(lost, 0):.0f} fewer in {ended - began:.0f} s",
            )
        )
    stall = load.longest_stall(beats, began, ended)
    if stall is not None:
        facts.append(("longest stall:", f"{stall * 1000:.0f} ms (a small insert, tried 20 times a second)"))
    return columns(facts)
