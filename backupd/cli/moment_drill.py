"""Which moment a drill is to prove: one that its options name, or one that is drawn."""

from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.drawn_moments import Drawn
from backupd.cli.moments import ONE_MOMENT, AskedMoment, moment_of, tell_statements, way_to
from backupd.cli.output import tell
from backupd.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.operations.restore.moment.moment_drill import MomentToProve
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
            raise UsageError("--seed belongs to --to-time random", hint="omit --seed, or use --to-time random")
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
    from backupd.operations.restore.moment.moment_drill import MomentToProve
    from backupd.report.words import many

    way = way_to(configuration, catalogue, AskedMoment(wanted, run_id, job), target=target, identities=identities)
    run, plan = way.run, way.plan
    tell(
        f"run {run.run_id} of job {run.job} and {many(len(plan.segments), 'binlog segment')} after it,"
        f" to {plan.end.moment}"
    )
    tell_statements(plan)
    confined = not configuration.restore.unconfined
    return run, MomentToProve(plan, way.copies, way.reader, identities, confined=confined)
