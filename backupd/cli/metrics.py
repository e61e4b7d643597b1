"""`backupd metrics`, and the text file that is left for node_exporter after other commands."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.output import write
from backupd.vocabulary.errors import BackupdError, UsageError

if TYPE_CHECKING:
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration

log = logging.getLogger(__name__)


def metrics(
    ctx: typer.Context,
    *,
    textfile: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write them to FILE (.prom) for node_exporter.", show_default=False),
    ] = None,
) -> None:
    """Print the metrics that the daemon exports, as of now; needs no daemon."""
    from backupd.operations import context
    from backupd.service.textfile import exposition_once, write_textfile

    configuration = context.configuration(ctx.obj.config)
    with context.catalogue(configuration) as catalogue:
        text = exposition_once(configuration, catalogue)
    if textfile is None:
        write(text.decode())
        return
    try:
        write_textfile(textfile, text)
    except OSError as error:
        raise UsageError(
            f"{textfile} could not be written: {error.strerror}",
            hint=("the user who runs this must be able to write to the folder"),
        ) from error


@contextmanager
def left_for_node_exporter(configuration: "Configuration", catalogue: "Catalogue") -> Iterator[None]:
    """However the block ends, the text file of `[service]` is written then; nothing where none is named.

    What goes wrong with it is in the log, and changes nothing else.
    """
    try:
        yield
    finally:
        if configuration.service.textfile is not None:
            _leave(configuration.service.textfile, configuration, catalogue)


def _leave(path: Path, configuration: "Configuration", catalogue: "Catalogue") -> None:
    from backupd.service.textfile import exposition_once, write_textfile

    try:
        write_textfile(path, exposition_once(configuration, catalogue))
    except (BackupdError, OSError) as error:
        log.warning("the metrics could not be written to %s: %s", path, error)
