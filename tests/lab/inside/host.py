"""The machine as a person in it sees it: type a command, change the world, look at what is there.

Knows: where the lab's things lie, and everything that a run could leave behind. Refuses to know backupd's insides: it
is started as a program, and what it left is asked of LVM, device-mapper, the kernel, the server and the file systems.
"""

import json
import os
import secrets
import signal
import sqlite3
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from backupd.host.process import start_time
from backupd.lab.options import ServerKind
from backupd.lab.servers import SOFTWARE
from backupd.lab.site import guest_site

SITE = guest_site()
SERVER = ServerKind(os.environ.get("LAB_SERVER", ServerKind.MARIADB_10))
RUN_FOLDER = Path("/run/backupd")
STAGING = SITE.state / "staging"

Changes = Mapping[str, object]  # "jobs.nightly.copy.max_rate" -> value; None takes the key out

GATE_OFF: Changes = {"jobs.nightly.settle.enabled": False}
SLOW_COPY: Changes = {**GATE_OFF, "jobs.nightly.copy.max_rate": "5MiB"}  # ten seconds of it
LONG_SETTLE: Changes = {  # a minute of steady load, until the plateau is seen
    "jobs.nightly.settle.probe": False,
    "jobs.nightly.settle.patience": 100,
}

_PATIENCE_SECONDS = 120.0
_LOOK_SECONDS = 0.01
_BETWEEN_LOOKS = 3  # times as long as a look took: the machine has one processor, and what is waited for needs it
_LOCK_SECONDS = 5.0  # a lock that was left would last for its budget, ten seconds, and more
_LABS_OWN = (
    f"--defaults-file={SITE.server_configuration}",
    "sysbench oltp_write_only",
    "sshd: ",
    "(udev-worker)",
)  # they may be started anew


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that has ended."""

    status: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def document(self) -> dict[str, Any]:
        """The one JSON document on stdout."""
        document: dict[str, Any] = json.loads(self.stdout)
        assert document["schema"] == 1
        return document


@dataclass(frozen=True, slots=True)
class Inventory:
    """What a run could leave on the host, on its target and in the server."""

    volumes: frozenset[str]
    devices: frozenset[str]
    mounts: frozenset[str]
    probe_folders: frozenset[str]
    unfinished: frozenset[str]  # on the targets: what belongs to no published backup
    staging: frozenset[str]
    lock_files: frozenset[str]  # of runs
    holdings: frozenset[str]  # that the catalogue still lists
    sessions: frozenset[str]  # of the backup account
    processes: frozenset[str]

    def beyond(self, other: "Inventory") -> dict[str, list[str]]:
        """What is here and was not there, by kind; empty when there is nothing."""
        here, there = asdict(self), asdict(other)
        return {kind: sorted(here[kind] - there[kind]) for kind in here if here[kind] - there[kind]}


@dataclass(slots=True)
class Running:
    """A `backupd run` that goes on in the background."""

    process: subprocess.Popen[str]
    run_id: str
    began: float = field(default_factory=time.monotonic)

    def until(self, reached: Callable[[str], bool]) -> None:
        """Return as soon as the run has come so far; `reached` is asked with its id."""

        def holds() -> bool:
            if reached(self.run_id):
                return True
            assert self.process.poll() is None, f"it ended before {reached.__name__}: {self.process.communicate()[1]}"
            return False

        until(holds, what=reached.__name__)

    def ended(self, *, expect: int, within_seconds: float = _PATIENCE_SECONDS) -> Ended:
        """Wait for its end."""
        began = time.monotonic()
        out, err = self.process.communicate(timeout=within_seconds)
        assert self.process.returncode == expect, err
        return Ended(expect, out, err, time.monotonic() - began)


class Host:
    """The machine, and what was on it when this object was made."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._targets = {SITE.backups}
        self._before = self.inventory()

    def backupd(self, *words: str, expect: int = 0, changes: Changes | None = None) -> Ended:
        """Type a command and wait for its end."""
        began = time.monotonic()
        done = subprocess.run(
            self._argv(words, changes), capture_output=True, text=True, timeout=5 * _PATIENCE_SECONDS, check=False
        )
        assert done.returncode == expect, f"status {done.returncode}: {done.stderr}"
        return Ended(done.returncode, done.stdout, done.stderr, time.monotonic() - began)

    def fails(self, changes: Changes, *, status: int, says: str) -> dict[str, Any]:
        """A run that must fail: sentence and hint on stderr and in its row, which is the document that it prints."""
        ended = self.backupd("run", "nightly", "--json", changes=changes, expect=status)
        return require_told(ended, status=status, says=says)

    @contextmanager
    def running(self, changes: Changes | None = None, *, job: str = "nightly") -> Iterator[Running]:
        """A run that goes on in the background, for the length of the block."""
        with self.started("run", job, "--json", changes=changes) as run:
            yield run

    @contextmanager
    def started(self, *words: str, changes: Changes | None = None) -> Iterator[Running]:
        """A command that has a run's id, going on in the background for the length of the block."""
        run_id = f"lab-{secrets.token_hex(4)}"
        process = subprocess.Popen(
            self._argv([*words, "--run-id", run_id], changes),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            yield Running(process, run_id)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.terminate()
            process.communicate()

    def configured(self, changes: Changes) -> Path:
        """The lab's own configuration with some keys changed."""
        tables = tomllib.loads(SITE.configuration.read_text())
        for path, value in changes.items():
            *parents, key = path.split(".")
            table = tables
            for parent in parents:
                table = table.setdefault(parent, {})
            if value is None:
                del table[key]
            else:
                table[key] = value
        self._targets |= {Path(target["path"]) for target in tables["targets"].values() if "path" in target}
        file = self._folder / "backupd.toml"
        file.write_text("\n".join(_toml(tables)))
        return file

    def sql(self, statement: str) -> list[list[str]]:
        """Ask the server as root."""
        told = tool("mariadb", "--batch", "--skip-column-names", f"--execute={statement}")
        return [line.split("\t") for line in told.splitlines()]

    def inventory(self) -> Inventory:
        """Everything of ours that there is now."""
        return Inventory(
            volumes=frozenset(tool("lvs", "--noheadings", "--options", "lv_full_name,lv_tags").split("\n")),
            devices=frozenset(path.name for path in Path("/dev/mapper").glob(f"{SITE.volume_group}-*")),
            mounts=frozenset(path for path in mounted() if Path(path).is_relative_to(RUN_FOLDER)),
            probe_folders=_names(SITE.mount_point, ".backupd-*"),
            unfinished=frozenset(name for target in self._targets for name in _unfinished(target)),
            staging=_names(STAGING, "*"),
            lock_files=_names(RUN_FOLDER / "lock", "run-*"),
            holdings=frozenset(_holdings()),
            sessions=frozenset(self._sessions()),
            processes=frozenset(_processes()),
        )

    def left(self) -> dict[str, list[str]]:
        """What is there now and was not when this object was made."""
        return self.inventory().beyond(self._before)

    def nothing_left(self) -> None:
        """Neither a thing nor a lock: the server takes writes."""
        left = self.left()
        assert not left, left
        assert self.seconds_to_write() < _LOCK_SECONDS

    def seconds_to_write(self) -> float:
        """How long a small insert takes."""
        began = time.monotonic()
        self.sql("INSERT INTO sbtest.heartbeat (at) VALUES (0)")
        return time.monotonic() - began

    def clear_up(self) -> None:
        """By hand and without backupd, so that one failed test does not fail the next."""
        for path in sorted(mounted(), reverse=True):
            if Path(path).is_relative_to(RUN_FOLDER):
                subprocess.run(["umount", path], check=False)
        for volume in tool("lvs", "--noheadings", "--options", "lv_full_name", "@backupd").split():
            subprocess.run(["lvremove", "--yes", volume], check=False)

    def kill_server(self) -> None:
        """As a crash would."""
        pid = int((SITE.runtime / "mysqld.pid").read_text())
        born = start_time(pid)
        subprocess.run(["kill", "-KILL", str(pid)], check=True)
        until(lambda: start_time(pid) != born)

    def start_server(self) -> None:
        """It answers again, and the load goes on."""
        argv = [SOFTWARE[SERVER].program, f"--defaults-file={SITE.server_configuration}"]
        subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        until(lambda: subprocess.run(["mariadb", "-e", "SELECT 1"], capture_output=True, check=False).returncode == 0)

    def _argv(self, words: list[str] | tuple[str, ...], changes: Changes | None) -> list[str]:
        chosen = [] if changes is None else ["--config", str(self.configured(changes))]
        return ["backupd", *chosen, *words]

    def _sessions(self) -> list[str]:
        rows = self.sql("SELECT id, user, state FROM information_schema.processlist WHERE user = 'backupd'")
        return [" ".join(row) for row in rows]


def require_told(ended: Ended, *, status: int, says: str) -> dict[str, Any]:
    """The error has a sentence and a hint, on stderr as in the run's row; the run's document is returned."""
    document = ended.document
    error = document["error"]
    assert error["exit_status"] == status
    assert says in error["message"]
    assert error["hint"]
    assert f"error: {error['message'].splitlines()[0]}" in ended.stderr
    assert f"hint: {error['hint']}" in ended.stderr
    return document


def tool(*argv: str, stdin: str | None = None, timeout_seconds: float | None = None) -> str:
    """What a program prints; it must succeed. One that takes longer is killed, and subprocess.TimeoutExpired raised."""
    done = subprocess.run(argv, capture_output=True, text=True, check=False, input=stdin, timeout=timeout_seconds)
    assert done.returncode == 0, f"{argv}: {done.stderr}"
    return done.stdout


def until(holds: Callable[[], bool], *, what: str = "it", within_seconds: float = _PATIENCE_SECONDS) -> None:
    """Wait for something to be so."""
    began = looked = time.monotonic()
    while not holds():
        now = time.monotonic()
        assert now < began + within_seconds, f"{what} never came to be"
        time.sleep(max(_LOOK_SECONDS, _BETWEEN_LOOKS * (now - looked)))
        looked = time.monotonic()


def stored(folder: Path, run_id: str, job: str = "nightly") -> Path:
    """Where this machine's run lies in a store's folder; a path that is not there, where nothing of it does."""
    return next(folder.glob(f"*/{job}/{run_id}"), folder / "nobody" / job / run_id)


def mounted() -> list[str]:
    """Mount points."""
    return [line.split(" ")[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]


def catalogue_rows(statement: str, *values: str) -> list[tuple[Any, ...]]:
    """Ask the record itself, without starting anything; nothing while it is still being made."""
    if not SITE.catalogue.exists():
        return []
    with closing(sqlite3.connect(SITE.catalogue, timeout=10)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'holdings'").fetchall():
            return []
        return connection.execute(statement, values).fetchall()


def _holdings() -> list[str]:
    return [
        " ".join(row) for row in catalogue_rows("SELECT run_id, kind, name FROM holdings WHERE released_at IS NULL")
    ]


def _names(folder: Path, pattern: str) -> frozenset[str]:
    return frozenset(path.name for path in folder.glob(pattern))


def _unfinished(target: Path) -> Iterator[str]:
    """Everything but owner records that is not in a folder with a manifest, and every temporary name."""
    for path in target.rglob("*"):
        published = (path / "manifest.json").exists() or (path.parent / "manifest.json").exists()
        holds_some = path.is_dir() and any(path.glob("*/manifest.json"))
        is_machines = path.parent == target or "owner" in (path.name, path.parent.name)
        if path.name.startswith(".") or not (published or holds_some or is_machines):
            yield str(path)


def _processes() -> Iterator[str]:
    """Programs with their pid; without the kernel's threads, the lab's own server and load, and the zombies."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words and not any(own in words for own in _LABS_OWN):
            yield f"{process.name} {words}"


def _toml(table: Mapping[str, Any], *path: str) -> Iterator[str]:
    if path:
        yield f"[{'.'.join(path)}]"
    for key, value in table.items():
        if not isinstance(value, dict):
            yield f"{key} = {json.dumps(value)}"  # what a configuration holds is written alike in JSON and TOML
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _toml(value, *path, key)
