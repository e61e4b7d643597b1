"""`backupd binlog verify`: a job's binlog archive is read back where it lies."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backupd.cli.invocation import IdentityOption, JsonOption
from backupd.cli.output import print_document, reported, say, tell
from backupd.vocabulary.errors import BackupdError, Busy, NoKey, TargetError, VerificationError, worst_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from backupd.archive.encryption import Identities
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.operations.binlog.verifying import SegmentsVerified

_NAMED = 5


def verify(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job with a binlog archive.")],
    *,
    target: Annotated[
        str | None, typer.Option("--target", help="Only the archive on this target.", show_default=False)
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(metavar="P%", help="Read only a random sample of the segments of this size.", show_default=False),
    ] = None,
    identity: IdentityOption = None,
    json: JsonOption = False,
) -> None:
    """Compare a binlog archive with the catalogue: every segment is listed in its size, and read back with its digest.

    No key is needed; with one, encrypted segments are opened as well. What is lost is recorded, and no restore counts
    on it.
    """
    from backupd.cli.selection import identities_in, targets_with_segments
    from backupd.host.signals import cancellable
    from backupd.operations import context
    from backupd.operations.restore.verify import share_of

    manner = ReadBack(1.0 if sample is None else share_of(sample), identities_in(identity), quiet=json)
    configuration = context.configuration(ctx.obj.config)
    context.job(configuration, job)
    errors: list[BackupdError] = []
    with context.own_catalogue(configuration) as catalogue, cancellable():
        stored = catalogue.stored_segments(job) if target is None else ()
        targets = targets_with_segments(configuration, job, stored) if target is None else [target]
        results = read_back(configuration, catalogue, job, targets, manner, errors)
    if json:
        print_document({"job": job, "targets": results})
    if errors:
        raise worst_of(errors)


@dataclass(frozen=True, slots=True)
class ReadBack:
    """How much of an archive is read, with which keys, and whether people are told."""

    share: float
    identities: "Identities | None"
    quiet: bool


def read_back(
    configuration: "Configuration",
    catalogue: "Catalogue",
    job: str,
    targets: "Iterable[str]",
    manner: ReadBack,
    errors: list[BackupdError],
) -> list[dict[str, Any]]:
    """What the job's archive is on each of the targets, as a document; what is wrong with one is in `errors`, too."""
    from functools import partial

    from backupd import wiring
    from backupd.host.claims import Claims
    from backupd.operations.binlog.segment_reader import SegmentReader
    from backupd.operations.binlog.verifying import verify_segments

    undisturbed = partial(Claims(configuration.paths.run).segments, job)
    results: list[dict[str, Any]] = []
    machine = catalogue.identity().name
    for name in targets:
        place = wiring.target(configuration, name, machine)
        reader = SegmentReader(job, [place], manner.identities)
        try:
            found = verify_segments(place, catalogue, reader, share=manner.share, undisturbed=undisturbed)
            results.append(_document(found))
            with reported(errors):
                _tell(found, quiet=manner.quiet)
            found.require_whole()
            _require_opened(found, manner.identities)
        except (Busy, NoKey, TargetError, VerificationError) as error:
            errors.append(error)
            tell(f"target {name}: {error.message}")
    return results


def _tell(found: "SegmentsVerified", *, quiet: bool) -> None:
    from backupd.report.words import many, size
    from backupd.vocabulary.escaping import some

    if not quiet:
        say(
            f"target {found.target}: {many(found.recorded, 'segment')} recorded, {len(found.lost)} lost;"
            f" {found.read} read back ({size(found.bytes_read)})"
        )
    for names, what in (
        (found.breaks, "gaps between segments there"),
        (found.unrecorded, f"segments that the catalogue does not know there (`{_rebuild(found.target)}` adds them)"),
        (found.strangers, "not backupd's, left alone"),
    ):
        if names:
            tell(f"target {found.target}: {what}: {some(names, _NAMED, '; ')}")


def _require_opened(found: "SegmentsVerified", identities: "Identities | None") -> None:
    """Told where the identities open some of what was read, and not all of it.

    Raises:
        NoKey: they open nothing of it.
    """
    if identities is None or not found.unopened:
        return
    if found.unopened == found.read:
        raise NoKey(
            f"none of the identities in {identities.source} opens a segment on target {found.target}: all were compared"
            " as they are stored",
            hint="`age-keygen -y FILE` prints the recipient of a file",
        )
    tell(
        f"target {found.target}: {found.unopened} of {found.read} segments were compared as they are stored: none of"
        f" the identities in {identities.source} opens them"
    )


def _rebuild(target: str) -> str:
    return f"backupd catalogue rebuild --target {target}"


def _document(found: "SegmentsVerified") -> dict[str, Any]:
    return {
        "target": found.target,
        "recorded": found.recorded,
        "read": found.read,
        "bytes_read": found.bytes_read,
        "lost": [{"name": one.name, "reason": one.reason, "elsewhere": list(one.elsewhere)} for one in found.lost],
        "breaks": found.breaks,
        "unrecorded": found.unrecorded,
        "strangers": found.strangers,
        "errors": [{"code": one.code, "message": one.message, "hint": one.hint} for one in found.errors],
    }
