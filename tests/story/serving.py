"""What a daemon is given that serves within a test: processes in memory, no pages, and a hearer of every look."""

from collections.abc import Callable
from datetime import UTC, datetime

from backupd.cli.failure_answers import failure_answers
from backupd.config import Configuration
from backupd.notifications import Notifier
from backupd.notifications.fanout import Fanout
from backupd.service.daemon import DaemonSurroundings
from backupd.service.systemd import Notify
from tests.fakes.launcher import FakeLauncher


class Manager(Notify):
    """A service manager that hears the status at every look, and looks often."""

    def __init__(self, hear: Callable[[str], None]) -> None:
        super().__init__({})
        self.watchdog_seconds = 0.03
        self._hear = hear

    def status(self, text: str) -> None:
        """What `systemctl status` would show."""
        self._hear(text)


def surroundings(
    configuration: Configuration,
    hear: Callable[[str], None],
    *,
    launcher: FakeLauncher,
    notifier: Notifier | None = None,
    now: Callable[[], datetime] = lambda: datetime.now(UTC),
) -> DaemonSurroundings:
    """`hear` is called at each look; a reload reads this configuration; without a `notifier` nobody is told."""
    return DaemonSurroundings(
        load=lambda: configuration,
        launcher=launcher,
        notifier=lambda _configuration: notifier or Fanout(()),
        answers=failure_answers,
        web=None,
        new_run_id=lambda: "r1",
        notify=Manager(hear),
        now=now,
    )
