"""`backupd binlog verify`: a job's binlog archive is read back where it lies."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from backupd.cli.invocation import IdentityOption, JsonOption
from backupd.cli.output import print_document, say, tell
from backupd.vocabulary.errors import BackupdError, NoKey, TargetError, VerificationError

if TYPE_CHECKING:
    from backupd.operations.binlog.verifying import SegmentsVerified

_NAMED = 5


def verify(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB", help="A job with a binlog archive.")],
    *,
    target: Annotated[
        str | None, typer.Option("--target", help="Only the archive on this target.", show_default=False)
    ] = None,
    share: Annotated[
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
    from backupd import wiring
    from backupd.cli.chosen import identities_in
    from backupd.host.signals import cancellable
    from backupd.operations.binlog.reading import SegmentReader
    from backupd.operations.binlog.verifying import verify_segments
    from backupd.operations.restore.verify import share_of

    part = 1.0 if share is None else share_of(share)
    configuration = wiring.configuration(ctx.obj.config)
    chosen = wiring.job(configuration, job)
    identities = identities_in(identity)
    errors: list[BackupdError] = []
    results: list[dict[str, Any]] = []
    with wiring.own_catalogue(configuration) as catalogue, cancellable():
        machine = catalogue.identity().name
        for name in chosen.targets if target is None else [target]:
            place = wiring.target(configuration, name, machine)
            reader = SegmentReader(job, [place], catalogue.trust(machine), identities)
            try:
                found = verify_segments(place, catalogue, reader, share=part)
                results.append(_document(found))
                _tell(found, quiet=json)
                found.require_whole()
            except NoKey:
                raise
            except (TargetError, VerificationError) as error:
                errors.append(error)
                tell(f"target {name}: {error.message}")
    if json:
        print_document({"job": job, "targets": results})
    if errors:
        raise next((error for error in errors if isinstance(error, VerificationError)), errors[0])


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
