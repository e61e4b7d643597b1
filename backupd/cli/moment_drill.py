"""Which moment a drill is to prove: one that its options name, or one that is drawn."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.chosen import copies_of, sources_of
from backupd.cli.moments import ONE_MOMENT, archived_job, moment_of, segments_read, tell_statements, usable_archive
from backupd.cli.output import tell
from backupd.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.operations.restore.moment_drill import MomentToProve
    from backupd.policy.moments import Moment
    from backupd.vocabulary.records import RunDetails

RANDOM = "random"

DrillTimeOption = Annotated[
    str | None,
    typer.Option(
        "--to-time",
        metavar="TIME|random",
        help="Prove the binlog archive's moment of this time, or one that is drawn: all that was committed before it.",
        show_default=False,
    ),
]
SeedOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=0,
        help="With `--to-time random`: draw again what this seed has drawn from the same archive.",
        show_default=False,
    ),
]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A moment that is drawn from the archive, once that is known."""

    seed: int

    @classmethod
    def anew(cls) -> "Drawn":
        """By a seed of its own."""
        return cls(secrets.randbelow(1 << 32))


def drilled_moment_of(
    to_time: str | None,
    to_gtid: str | None,
    before_gtid: str | None,
    to_position: str | None,
    *,
    latest: bool,
    seed: int | None,
) -> "Moment | Drawn | None":
    """What the options name; None where they name no moment.

    Raises:
        UsageError: they name several, or one is none; a seed is given, and nothing is to be drawn.
    """
    if to_time != RANDOM:
        if seed is not None:
            raise UsageError("--seed belongs to --to-time random", hint="a moment that is named is not drawn")
        return moment_of(to_time, to_gtid, before_gtid, to_position, latest=latest)
    if moment_of(None, to_gtid, before_gtid, to_position, latest=latest) is not None:
        raise UsageError("a moment is either drawn or named", hint=ONE_MOMENT)
    return Drawn.anew() if seed is None else Drawn(seed)


def moment_to_prove(
    configuration: "Configuration",
    catalogue: "Catalogue",
    wanted: "Moment | Drawn",
    *,
    run_id: str | None,
    job: str | None,
    target: str | None,
    identities: "Identities | None",
) -> "tuple[RunDetails, MomentToProve]":
    """How the moment is reached, which is told, and from which backup; from that of the run whose id is given.

    Raises:
        UsageError: it cannot be reached, or none can.
    """
    from backupd.operations.restore.moment_drill import MomentToProve
    from backupd.policy.random_moment import drawn
    from backupd.policy.roll_forward import plan, reach
    from backupd.report.words import many

    chosen = archived_job(configuration, catalogue, run_id, job)
    backups, segments = usable_archive(catalogue, chosen, run_id=run_id, target=target)
    if isinstance(wanted, Drawn):
        moment: Moment = drawn(reach(backups, segments), wanted.seed)
        tell(f"drawn with seed {wanted.seed}: {moment}")
    else:
        moment = wanted
    way = plan(backups, segments, moment, now=datetime.now(UTC))
    run = catalogue.run(way.backup.run_id)
    tell(f"run {run.run_id} of job {run.job} and {many(len(way.segments), 'binlog segment')} after it, to {moment}")
    tell_statements(way)
    sources = sources_of(configuration, catalogue, run, copies_of(run, target=target))
    reader = segments_read(configuration, catalogue, chosen, target=target, identities=identities)
    return run, MomentToProve(way, sources, reader, identities, confined=not configuration.restore.unconfined)
