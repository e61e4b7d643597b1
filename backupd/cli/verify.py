"""`backupd verify`: what is stored is read back and compared; no key is needed."""

from contextlib import ExitStack
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backupd.cli.chosen import JsonOption, RunArgument, TargetOption, copies_of, run_of, sources_of, unpruned
from backupd.cli.metrics import left_for_node_exporter
from backupd.cli.output import print_document, say, tell
from backupd.errors import BackupdError, TargetError, VerificationError

if TYPE_CHECKING:
    from backupd.catalogue.store import Catalogue
    from backupd.targets import Source
    from backupd.verify import Verified


def register(app: typer.Typer) -> None:
    """Add this command to the tree."""
    app.command()(verify)


def verify(
    ctx: typer.Context,
    run_id: RunArgument,
    *,
    target: TargetOption = None,
    sample: Annotated[
        str | None, typer.Option(metavar="P%", help="Read only so much of it, chosen by chance.", show_default=False)
    ] = None,
    json: JsonOption = False,
) -> None:
    """Read a backup back, past the page cache, and compare every digest: each of its copies, whole or a sample."""
    from backupd import notices, wiring
    from backupd.interruption import cancellable
    from backupd.verify import share_of

    share = None if sample is None else share_of(sample)
    configuration = wiring.configuration(ctx.obj.config)
    results: list[dict[str, Any]] = []
    errors: list[BackupdError] = []
    with wiring.catalogue(configuration) as catalogue, cancellable(), ExitStack() as claimed:
        claimed.enter_context(left_for_node_exporter(configuration, catalogue))
        run = run_of(catalogue, run_id, target=target)
        claimed.enter_context(unpruned(configuration, run))
        for source in sources_of(configuration, run, copies_of(run, target=target, broken_too=True)):
            try:
                found = _verify(source, catalogue, share)
            except (TargetError, VerificationError) as error:
                errors.append(error)
                results.append(_failed(source, error))
                tell(f"target {source.target.name}: {error.message}")
            else:
                results.append(_good(source, found))
                if not json:
                    say(_sentence(source, found))
    if json:
        print_document({"run_id": run.run_id, "copies": results})
    if errors:
        with notices.failure_told(wiring.notifier(configuration), run.job, run.run_id, what="verification"):
            raise next((error for error in errors if isinstance(error, VerificationError)), errors[0])


def _verify(source: "Source", catalogue: "Catalogue", share: float | None) -> "Verified":
    """The answer is in the catalogue, too; a sample that was good proves nothing of the rest."""
    from backupd.cli.progress import share_done
    from backupd.verify import verify_backup

    try:
        with share_done(f"reading {source.run_id} on {source.target.name}") as read:
            found = verify_backup(source, share=share, read=read)
    except VerificationError as error:
        catalogue.found_broken(source.run_id, source.target.name, error.message)
        raise
    if found.whole:
        catalogue.verified(source.run_id, source.target.name, datetime.now(UTC))
    return found


def _sentence(source: "Source", found: "Verified") -> str:
    from backupd.report.words import duration, size

    read = "all of it" if found.whole else f"{found.share:.1%} of it, {found.frames} frames,"
    return (
        f"run {source.run_id} on target {source.target.name}: {read} read back and as it was stored"
        f" ({size(found.bytes_read)} of {size(found.bytes_stored)}, {found.objects} objects, {duration(found.seconds)})"
    )


def _good(source: "Source", found: "Verified") -> dict[str, Any]:
    return {
        "target": source.target.name,
        "status": "verified" if found.whole else "sampled",
        "objects": found.objects,
        "frames_read": found.frames,
        "bytes_read": found.bytes_read,
        "bytes_stored": found.bytes_stored,
        "seconds": round(found.seconds, 3),
        "error": None,
    }


def _failed(source: "Source", error: BackupdError) -> dict[str, Any]:
    status = "broken" if isinstance(error, VerificationError) else "unreachable"
    return {
        "target": source.target.name,
        "status": status,
        "error": {"code": error.code, "message": error.message, "hint": error.hint},
    }
