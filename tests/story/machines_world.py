"""Machines with equal configurations on shared storage, and histories of them: what happens is chosen by a seed.

Knows: which physical machine took which backup, whatever names and catalogues the machines have by now, and what lies
on the storage, by looking at it. Refuses to believe what backupd says of either.

What is in a machine's folder on a target may be changed by those alone who have its name and its ids: the one that the
name was given to, its clones, and once a person has said so (`identity adopt`) nobody but the one that has adopted it.
A published backup may be changed by fewer: its taker, each clone with all of its ids made after it was published, the
machine that has finished a dead run's copy. No program can tell original and clone apart before both have written, and
whoever writes first goes on with what both had. Only `prune` may remove a whole one, and never the last in its folder.

What passes all the same, and why it hides nothing:
- A live run's copy is nobody else's, until that run has heard of another owner: it has then left the copy to that one,
  and must not count it (`_require_bytes`).
- What a dead run left unpublished goes with the folder, so that a clone may remove it that was made before it began.
- Changed bytes count as whole until `verify` has told this machine of them: no listing shows them.
- A damaged backup is nobody's last one: it may go with the others.

Processes are killed by freezing them: from that call on no target does anything for them, and afterwards their
catalogue is what it was then. The steps of a run before its first object are a fake's: `_snapshot_and_copy` stores what
it is told.
"""

import hashlib
import random
import secrets
import shutil
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Protocol, cast

import pytest

from backupd.catalogue.audit import Event
from backupd.catalogue.store import Catalogue
from backupd.config import JobConfig, RetentionConfig
from backupd.operations import ownership as owner_chains
from backupd.operations.backup import run as backup_run
from backupd.operations.backup.copying import Copied
from backupd.operations.backup.run import run_backup
from backupd.operations.backup.storing import StoredContents
from backupd.operations.ownership import Ownership, Renewal
from backupd.operations.restore.verify import verify_backup
from backupd.operations.tools import HostTools, Tools
from backupd.operations.upkeep import recover
from backupd.operations.upkeep.prune import prune
from backupd.operations.upkeep.rebuild import rebuild
from backupd.policy import manifest as manifests
from backupd.targets import BackupSource, Target
from backupd.vocabulary.errors import BackupdError, NotOurs, Refused, TargetError, UsageError, VerificationError
from backupd.vocabulary.identity import Identity, Machine
from backupd.vocabulary.records import Holding, HoldingKind, RunStatus
from backupd.vocabulary.servers import Position
from tests.fakes.target import BELIEVED, MemoryTarget
from tests.story.stored import content, stored, tar
from tests.story.world import World

JOB = "nightly"
COUNTED = "counted in histories"  # the property of a test's report
TARGETS = ("vault", "offsite")
INTERVALS_SECONDS = 2 * owner_chains.RENEWAL_SECONDS + 1

Key = tuple[str, str, str, str, str]  # target, machine, job, backup, name
Step = tuple[str, int, int, int]  # a rule, and three numbers that it takes what it needs from


class Violation(AssertionError):
    """A promise was broken; the history that did it is in the text."""


# --- storage ---------------------------------------------------------------------------------------------------------


class Storage(Protocol):
    """Where a target's objects really lie."""

    def bound(self, machine: str) -> Target:
        """The target, as this machine's."""

    def look(self) -> dict[tuple[str, str, str, str], bytes]:
        """Everything but owner records, by machine, job, backup and name."""

    def put(self, key: tuple[str, str, str, str], content: bytes | None) -> None:
        """Somebody writes this there, or removes it."""


class InMemory:
    """The contract's fake; its clock is the storage's own."""

    def __init__(self, name: str) -> None:
        self._any = MemoryTarget(name, "nobody-00000000", now=datetime.now(UTC))

    def bound(self, machine: str) -> Target:
        return self._any.of_machine(machine)

    def look(self) -> dict[tuple[str, str, str, str], bytes]:
        bound = tuple(self._any.storage.items())
        return {(machine, *key): content for machine, target in bound for key, content in tuple(target.stored.items())}

    def put(self, key: tuple[str, str, str, str], content: bytes | None) -> None:
        machine, *rest = key
        target, where = self._any.of_machine(machine), cast(tuple[str, str, str], tuple(rest))
        if content is None:
            target.stored.pop(where, None)
        else:
            target.stored[where] = content
            target.at.setdefault(where, target.now)


class InFolder:
    """A real target, whose objects lie in a folder that we can see: a directory's, an SFTP's or an S3 server's."""

    def __init__(self, folder: Path, bind: Callable[[str], Target]) -> None:
        self._folder, self._bind = folder, bind

    def bound(self, machine: str) -> Target:
        return self._bind(machine)

    def look(self) -> dict[tuple[str, str, str, str], bytes]:
        found = {}
        for path in self._folder.rglob("*"):
            parts = path.relative_to(self._folder).parts
            if len(parts) >= 4 and parts[1] == JOB and path.is_file():
                found[parts[0], parts[1], parts[2], "/".join(parts[3:])] = path.read_bytes()
        return found

    def put(self, key: tuple[str, str, str, str], content: bytes | None) -> None:
        path = self._folder.joinpath(*key)
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)


_OWNING = ("owner", "last_owner_number", "succeed", "backups")  # called where the chain is claimed: nobody could renew


class Tap:
    """Counts one process's calls to its targets, before and after each; at one of them something happens."""

    then: Callable[[], object]

    def __init__(self) -> None:
        self.counting, self.happening = threading.Lock(), threading.RLock()
        self.heal()

    def heal(self) -> None:
        """Nothing happens at any call."""
        self.calls, self.frozen, self.at, self.fails = 0, False, 0, 0
        self.verb, self.anywhere = "", False
        self.then = lambda: None

    def arm(self, at: int, then: Callable[[], object], *, verb: str = "", anywhere: bool = False) -> None:
        """From that call on it is waited for one of `verb`, or for any at which chains can be gone on with."""
        self.heal()
        self.at, self.then, self.verb, self.anywhere = at, then, verb, anywhere

    def tick(self, verb: str) -> None:
        """What happens at a call happens at once: the run's other threads wait at their next one.

        Else a thread that is short of the processor would damage a copy that another has looked at for the last time.
        Who has claimed a chain does not wait: what happens may go on with that chain, and would wait for it in turn.
        """
        with self.counting:
            self.calls += 1
            call = self.calls
        with nullcontext() if verb in _OWNING and not self.anywhere else self.happening:
            if 0 < self.at <= call and self.verb in {"", verb} and (self.anywhere or verb not in _OWNING):
                self.at = 0
                self.then()
        if self.frozen or call == self.fails:
            raise TargetError("told to fail")


class Tapped:
    """A target of one process."""

    def __init__(self, target: Target, tap: Tap) -> None:
        self._target, self._tap = target, tap

    def __getattr__(self, verb: str) -> Any:
        found = getattr(self._target, verb)
        return partial(self._call, found) if callable(found) and verb != "location" else found

    def of_machine(self, machine: str) -> "Tapped":
        return Tapped(self._target.of_machine(machine), self._tap)

    @contextmanager
    def writing(self, *what: Any, **how: Any) -> Iterator[Any]:
        self._tap.tick("writing")
        with self._target.writing(*what, **how) as writer:
            yield writer
            self._tap.tick("writing")
        self._tap.tick("writing")

    @contextmanager
    def reading(self, *what: Any, **how: Any) -> Iterator[Any]:
        self._tap.tick("reading")
        with self._target.reading(*what, **how) as chunks:
            yield chunks
        self._tap.tick("reading")

    def _call(self, verb: Callable[..., Any], *what: Any, **how: Any) -> Any:
        self._tap.tick(verb.__name__)
        found = verb(*what, **how)
        self._tap.tick(verb.__name__)
        return found


# --- machines --------------------------------------------------------------------------------------------------------


@dataclass
class Host(World):
    """One physical machine. Its catalogue can be any machine's."""

    storages: dict[str, Storage] = field(default_factory=dict)
    days: int = 0  # that its clock as wrong
    boot_seconds: float = 1000.0  # since the boot
    renewals: list[Renewal] = field(default_factory=list)  # of its live run
    lost: set[str] = field(default_factory=set)  # targets on which that run knows of another owner
    identity: str = ""  # the name that its catalogue bears
    bound_to: Mapping[str, str] = field(default_factory=dict)  # the ids of the machine that this name was given to
    tap: Tap = field(default_factory=Tap)
    _catalogue: Catalogue | None = None
    opened: ExitStack = field(default_factory=ExitStack)

    @property
    def at_home(self) -> bool:
        """Its catalogue is its own, or that of a machine with the same ids."""
        return self.bound_to == self.machine.marks

    @contextmanager
    def catalogue(self, **how: Any) -> Iterator[Catalogue]:  # type: ignore[override]
        """It stays open until the file is another one: opening it takes as long as most steps."""
        if self._catalogue is None:
            self._catalogue = self.opened.enter_context(super().catalogue(**how))
        yield self._catalogue

    def close(self) -> None:
        self.opened.close()
        self._catalogue = None

    def targets_of(self, machine: str) -> dict[str, Target]:
        return {name: cast(Target, Tapped(one.bound(machine), self.tap)) for name, one in self.storages.items()}

    @property
    def target(self) -> Target:
        return next(iter(self.targets_of(self.identity).values()))

    def target_of(self, holding: Holding) -> Target:
        return self.targets_of(holding.detail["machine"])[holding.detail["target"]]

    @property
    def tools(self) -> Tools:
        return replace(super().tools, targets=tuple(self.targets_of(self.identity).values()))

    def ownership(self, catalogue: Catalogue, tools: HostTools | None = None) -> Ownership:
        """By its own clock."""
        tools = tools or self.tools
        renewing = Renewing(catalogue, tools.machine, tools.claims, tools.renewal_seconds, lambda: self.boot_seconds)
        object.__setattr__(renewing, "host", self)
        return renewing

    def job(self, **changes: Any) -> JobConfig:
        keeps = RetentionConfig(keep_last=1)
        return super().job(**{"targets": tuple(self.storages), "canary": False, "retention": keeps, **changes})

    def boot(self) -> None:
        self.close()
        self.machine = replace(self.machine, boot_id=secrets.token_hex(4))
        self.boot_seconds = 20.0


class Renewing(Ownership):
    """Its runs' renewals can be asked to go on now: nothing here waits a minute."""

    host: Host

    def renewal(self, targets: Sequence[Target], lost: Callable[..., None]) -> Renewal:
        def told(target: Target, error: NotOurs) -> None:
            self.host.lost.add(target.name)
            lost(target, error)

        renewal = Renewal(self, targets, told)
        self.host.renewals.append(renewal)
        return renewal


def _snapshot_and_copy(attempt: Any, _owed: ExitStack, _spool: None) -> Copied:
    """What `run._snapshot_and_copy` of a backup does, without a server and a volume: two objects of this run."""
    run_id = attempt.run.run_id
    attempt.run.position(Position("bin.000001", 4))
    objects = []
    for name in ("data-1.tar.zst", "index.jsonl.zst"):
        plain, _ = tar([(run_id, content(run_id + name, 300))])
        data, described = stored(name, plain, 1)
        with attempt.copies.open_object(name) as sink:
            sink.write(data)
        objects.append(described)
    return Copied(StoredContents(tuple(objects)))


@contextmanager
def simulated(hosts: Callable[[], Sequence[Host]]) -> Iterator[None]:
    """Runs store what they are told, and each machine has a clock of its own."""

    def ownership_of(catalogue: Catalogue, tools: HostTools) -> Ownership:
        host = next(one for one in hosts() if one.machine == tools.machine)
        return host.ownership(catalogue, tools)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backup_run, "_snapshot_and_copy", _snapshot_and_copy)
        patch.setattr(backup_run, "ownership_of", ownership_of)
        patch.setattr(recover, "ownership_of", ownership_of)
        yield


# --- histories -------------------------------------------------------------------------------------------------------

WEIGHTS = {
    "run": 8,
    "killed": 5,
    "failing": 3,
    "beset": 4,
    "cloned_in_run": 4,
    "set_back": 3,
    "prune": 5,
    "failing_prune": 2,
    "recover": 4,
    "rebuild": 2,
    "rebuild_from": 3,
    "verify": 3,
    "clone": 3,
    "reboot": 2,
    "wait": 3,
    "lose_catalogue": 1,
    "copy_catalogue": 1,
    "identity_new": 2,
    "identity_adopt": 1,
    "replaced": 3,
    "clock": 2,
    "stray": 2,
    "damage": 2,
    "damaged_newest": 3,
}
MOST_MACHINES = 4
CALLS = 40  # of a whole run, until one has told how many it makes


def history(seed: int, *, steps: int = 6) -> list[Step]:
    """The same for the same seed."""
    chance = random.Random(seed)
    rules = chance.choices(list(WEIGHTS), list(WEIGHTS.values()), k=steps)
    return [(rule, chance.randrange(1 << 16), chance.randrange(1 << 16), chance.randrange(1 << 16)) for rule in rules]


class Machines:
    """Two machines at first, and what happens to them."""

    def __init__(self, base: Path, storages: dict[str, Storage], template: Path) -> None:
        self.base, self.storages, self.template = base, storages, template
        self.hosts: list[Host] = []
        self.owners: dict[tuple[str, str], set[int]] = {}  # by target and run: numbers of hosts
        self.entitled: dict[tuple[str, str], set[int]] = {}  # by target and name: hosts with that name and its ids
        self.live: dict[str, int] = {}  # by run: the host on which it is being taken
        self.violations: list[Violation] = []  # that were found in the middle of a run
        self.corrupt: dict[tuple[str, str, str], set[int]] = {}  # backups with changed bytes; hosts that know of it
        self.counted: Counter[str] = Counter()
        self.runs = 0
        self.strays: set[Key] = set()  # that somebody has put beside
        self.pruned = False  # since it was judged last
        self.calls = CALLS
        self.before: dict[Key, bytes] = {}
        for _ in range(2):
            self._new_host()

    # --- machines ---

    def _new_host(self, like: Host | None = None, *, same_ids: bool = True) -> Host:
        number = len(self.hosts)
        machine = Machine(f"db{number}", {"machine-id": f"id {number}"}, boot_id=secrets.token_hex(4))
        if like is not None:
            marks = like.machine.marks if same_ids else machine.marks
            machine = replace(like.machine, marks=marks, boot_id=machine.boot_id)
        its_own = dict.fromkeys((HoldingKind.CHILD, HoldingKind.MOUNT, HoldingKind.PROBE_FILES), lambda _holding: None)
        host = Host(self.base / str(number), machine=machine, storages=self.storages, also_released=its_own)
        self.hosts.append(host)
        if like is None:
            self._new_catalogue(host)
        else:
            self._copy(like, host)
            host.boot_seconds = 20.0
            host.days = like.days
        return host

    def _new_catalogue(self, host: Host) -> None:
        """Migrations take longer than a history: an empty one is copied, and given a name of its own."""
        _remove_catalogue(host)
        shutil.copy(self.template, host.places.catalogue)
        self._new_name(host)

    def _new_name(self, host: Host) -> None:
        name = f"{host.machine.host}-{secrets.token_hex(4)}"
        self.entitled |= {(target, name): {self.hosts.index(host)} for target in self.storages}
        self._name(host, name, Event.IDENTITY_NEW)

    def _name(self, host: Host, name: str, event: Event) -> None:
        host.identity, host.bound_to = name, host.machine.marks
        with host.catalogue() as catalogue:
            catalogue.take_identity(Identity(name, host.machine.marks, datetime.now(UTC)), event)

    def _copy(self, of: Host, to: Host) -> None:
        """With all that lies on the targets already and was `of`'s, where it is not told from it by its ids."""
        _remove_catalogue(to)
        _copy_catalogue(of.places.catalogue, to.places.catalogue)
        to.identity, to.bound_to = of.identity, of.bound_to
        if to.at_home:
            number, other = self.hosts.index(of), self.hosts.index(to)
            for target in self.storages:
                if number in self.entitled[target, to.identity]:
                    self.entitled[target, to.identity].add(other)
                for copy in self._published(target, to.identity):
                    if number in self.owners[copy]:
                        self.owners[copy].add(other)

    def _published(self, target: str, machine: str) -> set[tuple[str, str]]:
        """Backups in that folder, by target and run."""
        found = {key[3] for key in self._look() if key[:2] == (target, machine) and key[4] == "manifest.json"}
        return self.owners.keys() & {(target, run_id) for run_id in found}

    def _make_clone(self, host: Host, *, same_ids: bool) -> Host:
        self.counted["clones"] += 1
        return self._new_host(like=host, same_ids=same_ids)

    # --- what is looked at after each step ---

    def _look(self) -> dict[Key, bytes]:
        return {(name, *key): content for name, one in self.storages.items() for key, content in one.look().items()}

    def judge(self, actor: Host | None) -> None:
        """Since it was judged last only `actor` has acted; None where it was somebody that is no machine of ours."""
        before, after = self.before, self._look()
        self.before = after
        if actor is None:
            return
        number = self.hosts.index(actor)
        for key, was in before.items():
            if after.get(key) != was:
                self._require_may_change(number, key, published=(*key[:4], "manifest.json") in before)
        had, has = self._whole(before, number), self._whole(after, number)
        if had - has and not self.pruned:
            raise Violation(f"machine {number} has removed whole backups without pruning: {sorted(had - has)}")
        emptied = {copy[:2] for copy in had} - {copy[:2] for copy in has}
        if emptied:
            raise Violation(f"machine {number} has removed its last whole backup in {sorted(emptied)}: {sorted(had)}")
        self.pruned = False

    def _require_may_change(self, number: int, key: Key, *, published: bool) -> None:
        """This machine has changed that, or removed it."""
        target, machine, _, run_id, _ = key
        what = "/".join(key)
        if key in self.strays:
            raise Violation(f"{what} was put there by somebody, and machine {number} changed it")
        if number not in (entitled := self.entitled[target, machine]):
            raise Violation(f"{what} is in the folder of machines {entitled}, and {number} changed it")
        if (published or self._is_live(run_id, target)) and number not in (owners := self.owners[target, run_id]):
            raise Violation(f"{what} is of machines {owners}, and {number} changed it")

    def _is_live(self, run_id: str, target: str) -> bool:
        """What its run goes on with there. A run that has heard of another owner has left its copy to that one."""
        return run_id in self.live and target not in self.hosts[self.live[run_id]].lost

    def _judge_later(self, actor: Host) -> None:
        """In the middle of somebody's run, which would take a violation for an error of its own."""
        try:
            self.judge(actor)
        except Violation as error:
            self.violations.append(error)

    def _whole(self, objects: dict[Key, bytes], number: int) -> set[tuple[str, str, str]]:
        """Backups of this machine that list whole, but for those that it knows to have changed bytes."""
        found = set()
        for target, machine, job, run_id, name in objects:
            if name != "manifest.json" or number not in self.owners.get((target, run_id), ()):
                continue
            sizes = {name: size for name, size, _ in _recorded(objects[target, machine, job, run_id, name])}
            listed = {name: len(objects.get((target, machine, job, run_id, name), b"")) for name in sizes}
            knows = number in self.corrupt.get((target, machine, run_id), ())
            if sizes == listed and not knows:
                found.add((target, machine, run_id))
        return found

    def _require_bytes(self, host: Host, run_id: str) -> bool:
        """Where the row says that there is a backup, all its bytes are there now. Whether it says so."""
        with host.catalogue() as catalogue:
            try:
                row = catalogue.run(run_id)
            except UsageError:
                return False  # it was refused before it had one
        if row.status in (RunStatus.SUCCESS, RunStatus.ATTENTION) and not row.backups:
            raise Violation(f"run {run_id} is {row.status} without a backup")
        objects = self._look()
        for one in row.backups:
            copy = (one.target, row.machine, JOB, run_id)
            for name, _, digest in _recorded(objects.get((*copy, "manifest.json"))):
                if hashlib.sha256(objects.get((*copy, name), b"")).hexdigest() != digest:
                    raise Violation(f"run {run_id} is {row.status}, and its {name} is not there on {one.target}")
        self.counted["good runs"] += bool(row.backups)
        return bool(row.backups)

    # --- what happens ---

    def carry_out(self, step: Step) -> None:
        """One step, and what it must not have done."""
        rule, which, number, more = step
        host = self.hosts[which % len(self.hosts)]
        self.counted[rule] += 1
        getattr(self, f"_{rule}")(host, number, more)
        if self.violations:
            raise self.violations[0]
        self.judge(host)

    def _trying(self, act: Callable[[], object]) -> bool:
        """What is refused is counted; an error that is none of ours goes on."""
        try:
            act()
        except BackupdError as error:
            self.counted["refusals"] += isinstance(error, Refused)
            return False
        return True

    def _run(self, host: Host, _number: int = 0, more: int = 0) -> None:
        host.tap.heal()
        run_id = self._back_up(host)
        if self._require_bytes(host, run_id):
            self.calls = host.tap.calls
        self.judge(host)
        if more % 3:
            self._prune(host)

    def _back_up(self, host: Host) -> str:
        self.runs += 1
        run_id = f"r{self.runs:03}"
        self.owners |= {(target, run_id): {self.hosts.index(host)} for target in self.storages}
        self.live[run_id] = self.hosts.index(host)
        host.renewals.clear()
        host.lost.clear()

        def run() -> None:
            with host.catalogue() as catalogue:
                run_backup(host.job(), host.tools, catalogue, run_id=run_id)

        self._trying(run)
        host.renewals.clear()
        del self.live[run_id]
        return run_id

    def _killed(self, host: Host, number: int, _more: int = 0) -> None:
        kept = host.base / "kept.sqlite"

        def freeze() -> None:
            host.tap.frozen = True
            _copy_catalogue(host.places.catalogue, kept)

        host.tap.arm(number % self.calls + 1, freeze, anywhere=True)
        run_id = self._back_up(host)
        if host.tap.frozen:
            self.counted["kills"] += 1
            _remove_catalogue(host)
            kept.rename(host.places.catalogue)
        host.tap.heal()
        self._require_bytes(host, run_id)

    def _failing(self, host: Host, number: int, _more: int) -> None:
        host.tap.heal()
        host.tap.fails = number % self.calls + 1
        run_id = self._back_up(host)
        host.tap.heal()
        self._require_bytes(host, run_id)

    def _beset(self, host: Host, number: int, more: int) -> None:
        """Somebody removes or shortens an object while its run lives, before the run has looked for the last time."""

        def damage() -> None:
            self._judge_later(host)
            newest = f"r{self.runs:03}"
            finished = {key[:4] for key in self._look() if key[4] == "manifest.json"}
            found = [key for key in self._look() if key[3] == newest and key[4] != "manifest.json"]
            if found := sorted(key for key in found if key[:4] not in finished):
                key = found[more % len(found)]
                self.storages[key[0]].put(key[1:], None if more % 2 else b"short")
                self.counted["damage in a run"] += 1
            self.judge(None)

        at, verb = (number % self.calls + 1, "") if number % 3 else (1, "publish")
        host.tap.arm(at, damage, verb=verb)
        run_id = self._back_up(host)
        host.tap.heal()
        self._require_bytes(host, run_id)

    def _cloned_in_run(self, host: Host, number: int, more: int) -> None:
        if len(self.hosts) >= MOST_MACHINES:
            self._run(host, number, more)
            return

        def clone() -> None:
            self._judge_later(host)
            other = self._make_clone(host, same_ids=more % 4 != 0)
            acts = (self._recover, self._prune, self._run, self._wait)
            goes_on = (self._recover, self._wait, self._recover, self._prune, self._run)
            for act in goes_on if number % 4 else (acts[more // 4 % 4], acts[more // 64 % 4]):
                act(other)
                self._judge_later(other)
            self.counted["clones in a run"] += 1

        host.tap.arm(number % self.calls + 1, clone)
        run_id = self._back_up(host)
        host.tap.heal()
        self._require_bytes(host, run_id)
        self.judge(host)
        if more % 3:
            self._prune(host)

    def _set_back(self, host: Host, number: int, more: int) -> None:
        """A catalogue comes back as it was at some call of a run that has ended since, with its machine or alone."""
        kept = host.base / "kept.sqlite"
        host.tap.arm(number % self.calls + 1, lambda: _copy_catalogue(host.places.catalogue, kept), anywhere=True)
        self._require_bytes(host, self._back_up(host))
        reached = not host.tap.at
        host.tap.heal()
        self.judge(host)
        if not reached:
            return
        self.counted["set back"] += 1
        _remove_catalogue(host)
        kept.rename(host.places.catalogue)
        if more % 4 == 0:
            host.boot()
        for act in (self._recover, (self._wait, self._run, self._prune)[more // 4 % 3], self._recover):
            act(host)
            self.judge(host)

    def _prune(self, host: Host, _number: int = 0, _more: int = 0) -> None:
        self.pruned = True

        def act() -> None:
            with host.catalogue() as catalogue:
                now = datetime.now(UTC) + timedelta(days=host.days)
                targets = host.tools.targets
                pruned = prune(host.job(), targets, catalogue, ownership=host.ownership(catalogue), now=now)
                self.counted["removed"] += len(pruned.removed)
                self.counted["refusals"] += sum(isinstance(error, Refused) for _, error in pruned.failures)

        self._trying(act)

    def _failing_prune(self, host: Host, number: int, _more: int) -> None:
        host.tap.heal()
        host.tap.fails = number % 30 + 1
        self._prune(host)
        host.tap.heal()

    def _recover(self, host: Host, _number: int = 0, _more: int = 0) -> None:
        def act() -> None:
            with host.catalogue() as catalogue:
                for holding in recover.clean_up_dead_runs(catalogue, host.tools, finishing=host.finishing).finished:
                    run_id, target = holding.detail["backup"], holding.detail["target"]
                    if (target, run_id) not in published and self._is_live(run_id, target):
                        self.violations.append(Violation(f"machine {number} has finished run {run_id}, which is alive"))
                    self.owners[target, run_id].add(number)
                    finished.append(run_id)

        number, finished = self.hosts.index(host), list[str]()
        published = {(key[0], key[3]) for key in self._look() if key[4] == "manifest.json"}
        self._trying(act)
        for run_id in finished:
            self.counted["finished"] += 1
            if run_id not in {corrupt for _, _, corrupt in self.corrupt}:  # what was published is not read again
                self._require_bytes(host, run_id)

    def _rebuild(self, host: Host, number: int = 0, _more: int = 0) -> None:
        self._enter(host, host.identity, number)

    def _rebuild_from(self, host: Host, number: int, more: int) -> None:
        names = sorted({key[1] for key in self._look()})
        if names:
            self._enter(host, names[more % len(names)], number)

    def _enter(self, host: Host, machine: str, number: int) -> None:
        def act() -> None:
            with host.catalogue() as catalogue:
                target = tuple(host.targets_of(machine).values())[number % len(self.storages)]
                for run_id in rebuild(target, catalogue, BELIEVED).imported:
                    entered = (target.name, catalogue.run(run_id).machine, JOB, run_id, "manifest.json")
                    if entered not in there:
                        raise Violation(f"{'/'.join(entered)} was entered, and is not there")

        there = self._look()
        self._trying(act)

    def _verify(self, host: Host, _number: int, _more: int) -> None:
        """As `backupd verify --job` enters it."""
        with host.catalogue() as catalogue:
            for run in catalogue.runs(job=JOB, limit=None):
                for one in run.backups:
                    if one.removed_at is None:
                        place, trust = host.targets_of(run.machine)[one.target], catalogue.trust(run.machine, one)
                        self._verify_copy(host, catalogue, BackupSource(place, JOB, run.run_id, trust))

    def _verify_copy(self, host: Host, catalogue: Catalogue, source: BackupSource) -> None:
        try:
            verify_backup(source)
        except VerificationError as error:
            catalogue.found_broken(source.run_id, source.target.name, error.message)
            changed = self.corrupt.get((source.target.name, source.target.machine, source.run_id))
            if changed is not None:
                changed.add(self.hosts.index(host))
        except TargetError:
            return
        else:
            catalogue.verified(source.run_id, source.target.name, datetime.now(UTC))

    def _clone(self, host: Host, _number: int, more: int) -> None:
        if len(self.hosts) < MOST_MACHINES:
            self._act_as_newcomer(self._make_clone(host, same_ids=more % 3 != 0), more // 3)

    def _act_as_newcomer(self, host: Host, which: int) -> None:
        """What it was copied with is believed to be its own, by itself."""
        (self._prune, self._recover, self._run, self._reboot)[which % 4](host)
        self.judge(host)

    def _reboot(self, host: Host, _number: int = 0, _more: int = 0) -> None:
        host.boot()

    def _wait(self, _host: Host, _number: int = 0, _more: int = 0) -> None:
        """Two intervals pass, in which every live run goes on with its chains."""
        for host in self.hosts:
            for renewal in host.renewals:
                renewal.renew()
            host.boot_seconds += INTERVALS_SECONDS

    def _lose_catalogue(self, host: Host, _number: int, _more: int) -> None:
        self._new_catalogue(host)

    def _copy_catalogue(self, host: Host, number: int, more: int) -> None:
        other = self.hosts[number % len(self.hosts)]
        if other is not host:
            self._copy(host, other)
            self._act_as_newcomer(other, more)

    def _identity_new(self, host: Host, _number: int, _more: int) -> None:
        """As `backupd identity new` does it."""
        self._new_name(host)
        with host.catalogue() as catalogue:
            for run_id, holding in catalogue.holdings():
                if holding.kind in (HoldingKind.PARTIAL, HoldingKind.UPLOAD):
                    catalogue.released(run_id, holding)

    def _identity_adopt(self, host: Host, number: int, _more: int) -> None:
        names = sorted({key[1] for key in self._look()} | {host.identity})
        self._adopt(host, names[number % len(names)])

    def _adopt(self, host: Host, name: str) -> None:
        """As `backupd identity adopt` does it: a person says that what is under the name is this one's alone."""
        self._name(host, name, Event.IDENTITY_ADOPTED)
        with host.catalogue() as catalogue:
            for target in host.targets_of(name).values():
                if self._trying(partial(host.ownership(catalogue).adopt, target)):
                    self.entitled[target.name, name] = {self.hosts.index(host)}
                    for copy in self._published(target.name, name):
                        self.owners[copy] = {self.hosts.index(host)}

    def _replaced(self, host: Host, number: int, more: int) -> None:
        """Its run dies, another machine adopts its name, and it comes back."""
        self._killed(host, number)
        self.judge(host)
        other = self.hosts[(self.hosts.index(host) + 1) % len(self.hosts)]
        self._adopt(other, host.identity)
        (self._rebuild, self._prune, self._run, self._wait)[more % 4](other)
        self.judge(other)
        (self._recover, self._run, self._prune)[more // 4 % 3](host)

    def _clock(self, host: Host, number: int, _more: int) -> None:
        host.days = number % 21 - 10

    def _stray(self, host: Host, number: int, more: int) -> None:
        """Beside a backup's objects, in a folder of its own, or among the backups."""
        keys = sorted(key[:4] for key in self._look())
        where = keys[number % len(keys)] if keys else (next(iter(self.storages)), host.identity, JOB, "somebodys")
        target, machine, job, run_id = where
        kind = more % 3
        backup_id = ("somebodys", run_id, run_id)[kind]
        name = ("note.txt", "Thumbs.db", "@eaDir/thumb.jpg")[kind]
        self.storages[target].put((machine, job, backup_id, name), b"not ours")
        self.strays.add((target, machine, job, backup_id, name))
        self.judge(None)

    def _damage(self, _host: Host, number: int, more: int) -> None:
        """Somebody changes, shortens or removes something of a backup, published or not."""
        keys = sorted(key for key in self._look() if (key[0], key[3]) in self.owners)
        if keys:
            self._spoil(keys[number % len(keys)], more)
        self.judge(None)

    def _damaged_newest(self, host: Host, number: int, more: int) -> None:
        """The same to the newest of several, which retention goes by; then it decides."""
        for _ in range(2):
            self._run(host)
        newest = f"r{self.runs:03}"
        keys = sorted(key for key in self._look() if key[3] == newest)
        if keys:
            self._spoil(keys[number % len(keys)], more)
        self.judge(None)
        self._prune(host)

    def _spoil(self, key: Key, how: int) -> None:
        found = self._look()[key]
        changed = bytes([found[0] ^ 1]) + found[1:] if found else b"x"
        self.storages[key[0]].put(key[1:], (None, found[: len(found) // 2], changed)[how % 3])
        if how % 3 == 2:
            self.corrupt.setdefault((key[0], key[1], key[3]), set())


@lru_cache(maxsize=64)
def _recorded(manifest: bytes | None) -> Sequence[tuple[str, int, str]]:
    """What a manifest names, with sizes and digests; of none, and of a damaged one, something that is nowhere."""
    try:
        found = manifests.from_text(manifest or b"")
    except VerificationError:
        return [("manifest.json, whole", -1, "")]
    return [(one.name, one.stored_bytes, one.stored_sha256) for one in found.objects]


def _remove_catalogue(host: Host) -> None:
    host.close()
    for file in host.places.catalogue.parent.glob(f"{host.places.catalogue.name}*"):
        file.unlink()


def _copy_catalogue(of: Path, to: Path) -> None:
    """As it is at this instant, whoever has it open."""
    to.unlink(missing_ok=True)
    with closing(sqlite3.connect(of)) as source, closing(sqlite3.connect(to)) as copy:
        source.backup(copy)


def carry_out(steps: Sequence[Step], base: Path, storages: dict[str, Storage], template: Path) -> Counter[str]:
    """What was counted in this history.

    Raises:
        Violation: of a promise.
    """
    machines: list[Machines] = []
    with simulated(lambda: machines[0].hosts):
        machines.append(Machines(base, storages, template))
        for step in steps:
            machines[0].carry_out(step)
        for host in machines[0].hosts:
            host.close()
    return machines[0].counted


def shortest(steps: list[Step], fails: Callable[[list[Step]], bool]) -> list[Step]:
    """The shortest beginning that fails, without the steps that it fails without."""
    while steps and fails(steps[:-1]):
        steps = steps[:-1]
    for number in reversed(range(len(steps))):
        fewer = steps[:number] + steps[number + 1 :]
        if fails(fewer):
            steps = fewer
    return steps


def template_in(base: Path) -> Path:
    """An empty catalogue."""
    path = base / "template.sqlite"
    with Catalogue.open(base / "made.sqlite", machine=lambda: Machine("nobody")):
        pass
    _copy_catalogue(base / "made.sqlite", path)
    return path


def in_memory(seed: int) -> dict[str, Storage]:
    """One target, so that the same seed is the same history; for each fourth two, which run beside each other."""
    return {name: InMemory(name) for name in TARGETS[: 2 if seed % 4 == 0 else 1]}


def run_histories(
    base: Path,
    seeds: Sequence[int],
    storages: Callable[[int], dict[str, Storage]] = in_memory,
    *,
    broken: list[Violation] | None = None,
) -> Counter[str]:
    """What was counted in them; violations are put into `broken`, where there is such a list.

    Raises:
        Violation: its seed, and the shortest history that does the same.
    """
    counted: Counter[str] = Counter()
    template = template_in(base)

    def violation_of(seed: int, steps: list[Step]) -> Violation | None:
        folder = base / "history"
        try:
            counted.update(carry_out(steps, folder, storages(seed), template))
        except Violation as error:
            return error
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return None

    for seed in seeds:
        steps = history(seed)
        if (violation := violation_of(seed, steps)) is not None:
            least = shortest(steps, lambda fewer, seed=seed: violation_of(seed, fewer) is not None)  # type: ignore[misc]
            told = Violation(f"seed {seed}: {violation}; after {least}")
            if broken is None:
                raise told
            broken.append(told)
            counted["violations"] += 1
        counted["histories"] += 1
    return counted


def figures(counted: Counter[str]) -> str:
    """One line."""
    first = ("histories", "kills", "clones", "refusals", "violations")
    rest = sorted(counted.keys() - set(first))
    return ", ".join(f"{counted[name]} {name}" for name in (*first, *rest))
