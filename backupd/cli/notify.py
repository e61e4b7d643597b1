"""`backupd notify`: try the ways in which somebody is told."""

from typing import TYPE_CHECKING, Annotated

import typer

from backupd.cli.output import print_document, say
from backupd.vocabulary.errors import NotificationError, UsageError

if TYPE_CHECKING:
    from backupd.notifications.fanout import Delivery
    from backupd.vocabulary.schedule import Notice

app = typer.Typer(help="Test notifications.", no_args_is_help=True)


@app.callback()
def notify() -> None:
    """Test notifications."""


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
    """Send a test notification, as for a good backup, and show the result for each channel."""
    from backupd import wiring

    configuration = wiring.configuration(ctx.obj.config)
    notifier = wiring.notifier(configuration)
    chosen = [subscriber for subscriber in notifier.subscribers if name in (None, subscriber.name)]
    if not chosen:
        known = ", ".join(configuration.notifications) or "none: add a table [notifications.NAME]"
        raise UsageError(
            f"no notification {name!r}" if name else "no notification is configured",
            hint=(f"configured notifications: {known}"),
        )
    job = next(iter(configuration.jobs), "nightly")  # a proof host has none
    deliveries = notifier.deliver(chosen, _notice(job))
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

    from backupd.vocabulary.schedule import Notice, NoticeKind

    text = "this is a test of backupd's notifications: there was no backup"
    return Notice(NoticeKind.SUCCEEDED, job, datetime.now(UTC), "test", text, {"test": "yes"})


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
