"""`backupd volumes`: what is on every volume of this host, and which jobs use it."""

import os
import shutil
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.invocation import JsonOption
from backupd.cli.output import draws_dots_here, print_document, print_text
from backupd.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from backupd.config import Configuration
    from backupd.vocabulary.extents import Survey

_WIDTH = 80


def volumes(
    ctx: typer.Context,
    wanted: Annotated[str | None, typer.Argument(metavar="VG|VG/LV", help="Only this volume group or volume.")] = None,
    *,
    json: JsonOption = False,
) -> None:
    """List every LVM volume of this host: its layout on disks, its users, its jobs, and free space for snapshots."""
    from backupd.operations import context
    from backupd.operations.measure.volume_survey import only
    from backupd.report.volume_document import survey_document
    from backupd.report.volume_table import survey_text

    if os.geteuid() != 0:
        raise UsageError("only root may list volumes: LVM needs it", hint="sudo backupd volumes")
    configuration = context.configuration_or_defaults(ctx.obj.config)
    whole = _survey(configuration)
    chosen = whole if wanted is None else only(whole, wanted)
    if json:
        print_document(survey_document(chosen))
    else:
        width = min(shutil.get_terminal_size((_WIDTH, 24)).columns, _WIDTH)
        print_text(survey_text(chosen, width=width, ascii_only=not draws_dots_here()))


def _survey(configuration: "Configuration") -> "Survey":
    """With the catalogue for what servers do not tell; a host without one is not given one."""
    from contextlib import ExitStack

    from backupd import wiring
    from backupd.operations import context
    from backupd.operations.measure.volume_survey import survey

    with ExitStack() as opened:
        there = configuration.catalogue.path.exists()
        catalogue = opened.enter_context(context.catalogue(configuration)) if there else None
        sources = wiring.survey_sources(configuration, catalogue)
        return survey(tuple(configuration.hosts), tuple(configuration.jobs.values()), sources)
