"""`backupd serve`: the loop that decides, and everything around it that must not stop it.

Knows: the order in which things begin and end, and what may go wrong without ending it. One thread decides: it alone
touches `Dispatch`, and it alone tells systemd's watchdog that all is well. The clock and the telling have threads of
their own, the pages a process.
"""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

from backupd.catalogue.store import Catalogue
from backupd.config import Configuration
from backupd.host.claims import Claims
from backupd.notifications import Notifier
from backupd.operations.upkeep.failure_answers import FailureAnswers
from backupd.service import reminders
from backupd.service.clock import Clock
from backupd.service.dispatch import Dispatch
from backupd.service.launch import Launcher
from backupd.service.listening import WebProcess
from backupd.service.machine_view import LiveHere
from backupd.service.notification_thread import Telling, told_by_a_thread
from backupd.service.proof_readers import ProofReaders
from backupd.service.receivers import Receivers
from backupd.service.running_slots import Going
from backupd.service.site import Site
from backupd.service.systemd import Notify
from backupd.service.target_rooms import TargetRooms
from backupd.service.timetables import marks_of_machine, timetables
from backupd.service.trouble import CATALOGUE, WEB_PORT, DaemonTrouble
from backupd.service.wakeup import Bell, Signals, signals
from backupd.vocabulary.errors import BackupdError, CatalogueError, CatalogueUnavailable, ConfigurationError

log = logging.getLogger(__name__)

_LOOK_SECONDS = 30.0  # at least so often, whatever rings
_RESTLESS_SECONDS = 2.0  # while something waits or goes on
_LOCKED_SECONDS = 1.0  # that a write waits for another's: whoever stops us must not wait long
_LAST_NOTICES_SECONDS = 60.0  # that a daemon which drains waits for a mail server that hangs
_JUMP_SECONDS = 5.0  # more than any clock drifts between two looks


@dataclass(frozen=True, slots=True)
class DaemonSurroundings:
    """What the daemon is given; nothing of it is started yet."""

    load: Callable[[], Configuration]  # reads the file anew; raises ConfigurationError
    launcher: Launcher
    notifier: Callable[[Configuration], Notifier]
    answers: Callable[[Configuration], FailureAnswers]  # what a notice of a failure says beside it
    web: Callable[[Configuration], WebProcess] | None  # which listens as soon as it can; None: no pages
    new_run_id: Callable[[], str]
    notify: Notify
    now: Callable[[], datetime] = lambda: datetime.now(UTC)


def serve(configuration: Configuration, given: DaemonSurroundings) -> None:
    """Go by the schedules until SIGTERM or SIGINT. Whether this returns or raises, runs that were started go on.

    From SIGUSR1 on nothing is started, receivers of binlogs are ended, and it returns as soon as what was started has
    ended.

    A catalogue that is locked, or whose disk is full, is waited for, at the start as well as later. Later, one that
    cannot be used at all is waited for too: nothing can be started meanwhile, and people are told so. They are told too
    where there are no pages, as the port is another program's; nothing ends for that.

    Raises:
        Busy: another daemon runs this machine's scheduled jobs.
        CatalogueError: at the start, a catalogue that is damaged, newer or not ours.
        ConfigurationError: the lock file or a time zone cannot be had.
    """
    bell = Bell()
    with ExitStack() as owed:
        owed.callback(bell.close)
        asked = owed.enter_context(signals(bell))
        owed.enter_context(Claims(configuration.paths.run).daemon())
        tell = owed.enter_context(told_by_a_thread(given.notifier(configuration)))
        trouble = DaemonTrouble(CATALOGUE, tell, given.now)
        opened = _catalogue(configuration, given, bell, asked, trouble)
        if opened is None:
            return
        catalogue = owed.enter_context(opened)
        site = Site(configuration, catalogue, given.now)
        clock = Clock(bell.ring)
        clock.start()
        owed.callback(clock.stop)
        daemon = _Daemon(given, site, bell, asked, clock, tell, trouble)
        with daemon.pages():
            try:
                daemon.go_on()
            finally:
                given.notify.stopping()
                log.info("backupd serve stops; started runs continue")


def _catalogue(
    configuration: Configuration, given: DaemonSurroundings, bell: Bell, asked: Signals, trouble: DaemonTrouble
) -> Catalogue | None:
    """The catalogue; None where we were asked to stop while it could not be had."""
    while not asked.stop:
        try:
            return Catalogue.open(configuration.catalogue.path, busy_timeout_seconds=_LOCKED_SECONDS)
        except CatalogueUnavailable as error:
            if error.message != trouble.said:
                given.notify.status(f"waiting: {error.message}")
                given.notify.ready()
            trouble.stands(error, configuration.jobs)
            given.notify.alive()
            bell.wait(_RESTLESS_SECONDS)
    return None


@dataclass(slots=True)
class _Daemon:
    """The loop and what it looks after."""

    given: DaemonSurroundings
    site: Site
    bell: Bell
    asked: Signals
    clock: Clock
    tell: Telling
    trouble: DaemonTrouble
    _web: WebProcess | None = None
    _draining: str = ""  # what was said of it last
    _done_at: float | None = None  # monotonic: since then only people are left to be told
    _reminded_at: float | None = None
    _machine: tuple[str, ...] = field(default_factory=marks_of_machine)
    _rooms: TargetRooms = field(init=False)
    _without_pages: DaemonTrouble = field(init=False)

    def __post_init__(self) -> None:
        self._without_pages = DaemonTrouble(WEB_PORT, self.tell, self.given.now)
        self._rooms = TargetRooms(self.site.configuration)

    @contextmanager
    def pages(self) -> Iterator[None]:
        """The web pages answer while the block lasts, where there are any, and as soon as they can be had."""
        if self.given.web is None:
            yield
            return
        self._web = self.given.web(self.site.configuration)
        self._keep_up(self._web)
        try:
            yield
        finally:
            self._web.stop()

    def _keep_up(self, web: WebProcess) -> None:
        web.keep_up()
        if web.lacking is None:
            self._without_pages.over(self.site.configuration.jobs)
        else:
            self._without_pages.stands(web.lacking, self.site.configuration.jobs)

    def go_on(self) -> None:
        """Until we are asked to stop."""
        site, given = self.site, self.given
        claims = Claims(site.configuration.paths.run)
        going, receivers = Going(site, given.launcher, claims), Receivers(given.launcher, claims)
        dispatch = Dispatch(site, going, self.tell, given.new_run_id, began=site.now(), answers=given.answers)
        readers = ProofReaders(given.launcher)
        behind = self._behind(given.now)
        scheduled = False
        given.notify.ready()
        log.info("backupd serve runs the scheduled jobs: %s", _jobs(site.configuration))
        while not self.asked.stop:
            if next(behind):
                self.clock.go_by(dispatch.timetables)
            if self._moved():
                scheduled = False
            if self.asked.reload:
                self.asked.reload = False
                scheduled = not self._reload() and scheduled
            receivers.look(self.site.configuration, draining=self.asked.drain)
            with self._survived():
                if not scheduled:
                    dispatch.go_by(self.site)
                    self.clock.go_by(dispatch.timetables)
                    dispatch.adopt()
                    scheduled = True
                dispatch.look(starting=not self.asked.drain)
                readers.look(self.site.configuration, starting=not self.asked.drain)
                self._remind()
            if scheduled and self._is_drained(going, receivers):
                break
            restless = dispatch.restless or receivers.restless or bool(self._draining)
            self._settle(restless=restless, status=dispatch.status)

    def _is_drained(self, going: Going, receivers: Receivers) -> bool:
        """It was asked to drain, nothing that it has started goes on, and people know what became of that."""
        if not self.asked.drain:
            return False
        left = [f"{slot.activity} of {slot.job}" for slot in going.slots()]
        left += [f"the binlog of {job}" for job in receivers.left]
        if not left and not self.tell.is_done:
            self._done_at = self._done_at or time.monotonic()
            left += ["notifications"] if time.monotonic() - self._done_at < _LAST_NOTICES_SECONDS else []
        said = f"draining: no new runs are started; waiting for {', '.join(left) or 'nothing'}"
        if said != self._draining:
            log.info("%s", said)
            self._draining = said
        return not left

    def _settle(self, *, restless: bool, status: str) -> None:
        """Tell the others, and wait until there is a reason to look again."""
        notify = self.given.notify
        if self._web is not None:
            self._keep_up(self._web)
        lacks = self._without_pages.said and f"; no pages: {self._without_pages.said}"
        notify.status(f"{self.trouble.said or self._draining or status}{lacks}")
        if self.clock.alive:
            notify.alive()
        longest = min(_LOOK_SECONDS, notify.watchdog_seconds / 3 or _LOOK_SECONDS)
        waiting = self._web is not None and self._web.pid is None
        restless = restless or bool(self.trouble.said) or waiting
        self.bell.wait(min(longest, _RESTLESS_SECONDS) if restless else longest)

    def _remind(self) -> None:
        passed = time.monotonic()
        if self._reminded_at is None or passed - self._reminded_at > reminders.EVERY_SECONDS:
            try:
                reminders.remind(self.site, LiveHere(self.site.configuration.paths.run), self._rooms, self.tell)
            except ConfigurationError as error:  # the machine's zone cannot be told any more
                log.warning("alarms and digests cannot be sent: %s; hint: %s", error.message, error.hint)
            self._reminded_at = passed

    def _moved(self) -> bool:
        """The machine has another zone or name since the last look, and the schedules can go by it."""
        before, self._machine = self._machine, marks_of_machine()
        if self._machine == before:
            return False
        try:
            timetables(self.site.configuration)
        except ConfigurationError as error:
            log.error("the schedules continue unchanged: %s; hint: %s", error.message, error.hint)
            return False
        log.warning("the machine's time zone or name has changed: schedules that depend on it change now")
        return True

    def _reload(self) -> bool:
        """True when there is a new configuration; a broken one leaves the old one in force, and says so."""
        old = self.site.configuration
        self.given.notify.reloading()
        try:
            new = self.given.load()
            notifier = self.given.notifier(new)
            timetables(new)
        except BackupdError as error:
            log.error("the new configuration is not used, the old one stays in force: %s", error.message)
            self.given.notify.ready()
            return False
        taken = _keeping_what_is_open(old, new)
        if taken != new:
            log.warning("restart the daemon to apply changes of catalogue, paths, address, port and token")
        self.site, self.tell.notifier = replace(self.site, configuration=taken), notifier
        self._rooms = TargetRooms(taken)
        if self._web is not None:
            self._web.show(self.site.configuration)
        log.info("the configuration was reloaded; scheduled jobs: %s", _jobs(new))
        self.given.notify.ready()
        return True

    @contextmanager
    def _survived(self) -> Iterator[None]:
        """A catalogue that cannot be used is no reason to end: it may have recovered at the next look."""
        try:
            yield
        except CatalogueError as error:
            self.trouble.stands(error, self.site.configuration.jobs)
        else:
            self.trouble.over(self.site.configuration.jobs)

    @staticmethod
    def _behind(now: Callable[[], datetime]) -> Iterator[bool]:
        """Whether the machine's clock was set since the last look: it and the monotonic one have parted."""
        wall, passed = now(), time.monotonic()
        while True:
            jumped = (now() - wall).total_seconds() - (time.monotonic() - passed)
            wall, passed = now(), time.monotonic()
            if abs(jumped) > _JUMP_SECONDS:
                log.warning("the machine's clock was set %s by %.0f s", "on" if jumped > 0 else "back", abs(jumped))
            yield abs(jumped) > _JUMP_SECONDS


def _keeping_what_is_open(old: Configuration, new: Configuration) -> Configuration:
    """The new one, but for what the daemon has in its hands."""
    ours = old.service
    service = replace(new.service, address=ours.address, port=ours.port, token_file=ours.token_file)
    return replace(new, catalogue=old.catalogue, paths=old.paths, service=service)


def _jobs(configuration: Configuration) -> str:
    """The first few of those that have one."""
    names = [job.name for job in configuration.jobs.values() if job.schedules.items()]
    return ", ".join([*names[:10], f"and {len(names) - 10} more"] if len(names) > 10 else names) or "no job"
