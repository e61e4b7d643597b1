"""`backupd notify`: try the ways in which somebody is told; the digest at once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.output import print_document, print_text, say
from backupd.vocabulary.errors import NotificationError, UsageError

if TYPE_CHECKING:
    from backupd.config import Configuration
    from backupd.notifications.fanout import Delivery
    from backupd.vocabulary.schedule import Notice

app = typer.Typer(help="Test notifications, and show or send the digest.", no_args_is_help=True)


@app.callback()
def notify() -> None:
    """Test notifications, and show or send the digest."""


@app.command("test")
def try_out(
    ctx: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help=("One of [notifications.NAME]; default: all."), show_default=False),
    ] = None,
    *,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Send a test notification, as long as that of a failure, and show the result for each of [notifications.NAME]."""
    from backupd import wiring
    from backupd.operations import context

    configuration = context.configuration(ctx.obj.config)
    notifier = wiring.notifier(configuration)
    chosen = [subscriber for subscriber in notifier.subscribers if name in (None, subscriber.name)]
    if not chosen:
        known = ", ".join(configuration.notifications)
        raise UsageError(
            f"no notification {name!r}" if name else "no notification is configured",
            hint=f"configured notifications: {known}"
            if known
            else "add a table [notifications.NAME] to the configuration",
        )
    job = next(iter(configuration.jobs), "nightly")  # a proof host has none
    _tell_deliveries(notifier.deliver(chosen, _notice(job)), json=json)


@app.command("digest")
def digest_now(
    ctx: typer.Context,
    *,
    send: Annotated[
        bool,
        typer.Option("--send", help="Send it by every notification that has digest in `on`, instead of showing it."),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Show the digest as it is now: alarms, copies, runs and costs of the last 7 days, proofs, room on targets.

    The one that `backupd serve` sends at the time of service.digest is sent in any case.
    """
    from backupd import wiring
    from backupd.notifications.words import body, document, title
    from backupd.operations import context
    from backupd.vocabulary.schedule import NoticeKind

    configuration = context.configuration(ctx.obj.config)
    notice = _digest(configuration)
    if send:
        notifier = wiring.notifier(configuration)
        wanted = [subscriber for subscriber in notifier.subscribers if NoticeKind.DIGEST in subscriber.kinds]
        if not wanted:
            raise UsageError(
                "no notification wants the digest", hint='add "digest" to `on` of a table [notifications.NAME]'
            )
        _tell_deliveries(notifier.deliver(wanted, notice), json=json)
    elif json:
        print_document(document(notice))
    else:
        print_text(f"Subject: {title(notice)}\n\n{body(notice)}".rstrip())


def _digest(configuration: "Configuration") -> "Notice":
    from backupd.operations import context
    from backupd.service.digest import digest
    from backupd.service.machine_view import ONCE_SECONDS, own_eyes
    from backupd.service.site import Site
    from backupd.service.site_status import site_status

    seen = own_eyes(configuration)
    with context.catalogue(configuration) as catalogue:
        site = Site(configuration, catalogue)
        return digest(site, site_status(site, seen.live, seen.rooms.seen(within_seconds=ONCE_SECONDS)))


def _tell_deliveries(deliveries: "Sequence[Delivery]", *, json: bool) -> None:
    if json:
        print_document({"notifications": [_as_document(delivery) for delivery in deliveries]})
    else:
        for delivery in deliveries:
            say(_sentence(delivery))
    failed = [delivery.name for delivery in deliveries if delivery.error is not None]
    if failed:
        raise NotificationError(f"not delivered: {', '.join(failed)}", hint="backups still run, but nobody is notified")


def _notice(job: str) -> "Notice":
    from datetime import UTC, datetime

    from backupd.operations.upkeep.failure_answers import LOG_LINES, LONGEST_LINE
    from backupd.vocabulary.schedule import Notice, NoticeKind

    text = "this is a test of backupd's notifications: there was no backup"
    lines = (f"line {number} of {LOG_LINES}".ljust(LONGEST_LINE, ".") for number in range(1, LOG_LINES + 1))
    detail = {"test": "yes", "as long as the log's end of a failure": "\n".join(lines)}
    return Notice(NoticeKind.SUCCEEDED, job, datetime.now(UTC), "test", text, detail)


def _sentence(delivery: "Delivery") -> str:
    from backupd.report.words import duration

    took = duration(delivery.seconds)
    if delivery.error is None:
        return f"{delivery.name}: delivered in {took}"
    return f"{delivery.name}: not delivered after {took}: {delivery.error.message}; hint: {delivery.error.hint}"


def _as_document(delivery: "Delivery") -> dict[str, object]:
    error = delivery.error
    return {
        "name": delivery.name,
        "delivered": error is None,
        "seconds": round(delivery.seconds, 3),
        "error": None if error is None else {"code": error.code, "message": error.message, "hint": error.hint},
    }
