"""The machine that faults are tried in: its jobs, its stores, and the commands that come under fire.

Knows: a configuration in which a run passes as many doors as one can in seconds: a plain job, one with a spool, table
locks and a preflush on two targets, one that uploads to a bucket. Everything lies in the machine and goes with it.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from backupd.lab.site import LabSite, guest_site
from tests.servers import s3server

SITE: LabSite = guest_site()
HOLD_BUDGET_SECONDS = 2.0
WAIT_SECONDS = 2.0  # for a lock
KEEP = 3  # backups of each job, by its retention: a run removes what is more, and `prune` finds one beside a proven one
KEEP_LESS = 1  # when it is `prune` that has to find something
RUN_FOLDER = Path("/run/backupd")

# How often each comes under fire, and the words that it is typed with; RUN is an id, KEPT a good backup's.
# FOLDER is one that is not there yet, SCRUB a file with SQL.
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "run": ("run", "nightly", "--json", "--run-id", "RUN"),
    "spooled": ("run", "spooled", "--json", "--run-id", "RUN"),
    "uploaded": ("run", "uploaded", "--json", "--run-id", "RUN"),
    "replica": ("run", "replica", "--json", "--run-id", "RUN"),
    "recover": ("recover",),
    "prune": ("prune", "nightly"),
    "copy": ("copy", "KEPT", "--from", "store", "--to", "second"),
    "rebuild": ("catalogue", "rebuild", "--target", "store"),
    "restore": ("restore", "KEPT", "--to", "FOLDER"),
    "drill": ("drill", "KEPT"),
    "clone": ("clone", "KEPT", "--to", "FOLDER", "--scrub", "SCRUB"),
    "verify": ("verify", "KEPT"),
    "receive": ("binlog", "receive", "archived"),
}
STOPPED_AFTER: Mapping[str, float] = {"receive": 4.0}  # seconds: by a person, or it would never end
SHARES: Mapping[str, int] = {
    **{"run": 22, "spooled": 17, "uploaded": 13, "replica": 10, "recover": 15, "prune": 7, "receive": 6},
    **{"copy": 4, "restore": 3, "drill": 2, "clone": 2, "rebuild": 1, "verify": 1},
}
TAKES = frozenset({"run", "spooled", "uploaded", "replica"})  # a backup
JOBS: Mapping[str, str] = {name: name for name in TAKES} | {"run": "nightly", "prune": "nightly"}  # whose rule acts
AFTER_A_DEATH = frozenset({"recover"})

_PREFLUSH = 'preflush = true\npreflush_wait = "500ms"'
REPLICATES = (  # from a source that is away: its applier runs, and has nothing to apply
    "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = 9, MASTER_USER = 'nobody'; START SLAVE SQL_THREAD"
)
REPLICATES_NOT = "STOP SLAVE; RESET SLAVE ALL"


@dataclass(frozen=True, slots=True)
class World:
    """Where its things lie."""

    folder: Path  # on the disk of the machine's own
    configuration: Path
    keeping_less: Path  # the same configuration, but for its retention
    targets: Mapping[str, Path]  # by name; what is in it lies in MACHINE/JOB/RUN
    metadata: Path  # of the bucket: what is being uploaded is told here
    service: s3server.S3Service

    @property
    def spool(self) -> Path:
        """What was read and not sent yet."""
        return self.folder / "spool"

    @property
    def staging(self) -> Path:
        """Drills."""
        return self.folder / "staging"

    @property
    def restored(self) -> Path:
        """What restores are written to."""
        return self.folder / "restored"

    @property
    def scrub(self) -> Path:
        """What a clone runs on its copy."""
        return self.folder / "scrub.sql"

    @property
    def catalogue(self) -> Path:
        """The record."""
        return self.folder / "catalogue.sqlite"


@contextmanager
def made(folder: Path) -> Iterator[World]:
    """The stores are there, and serve for the length of the block."""
    for name in ("store", "second", "spool", "staging", "restored", "log"):
        (folder / name).mkdir(parents=True)
    with s3server.serving(folder / "s3") as service:
        credentials = folder / "credentials"
        service.write_credentials(credentials)
        bucket = service.folder / s3server.BUCKET
        world = World(
            folder,
            folder / "backupd.toml",
            folder / "keeping-less.toml",
            {"store": folder / "store", "second": folder / "second", "bucket": bucket},
            folder / "s3" / "metadata",
            service,
        )
        text = _text(world, credentials)
        world.configuration.write_text(text, encoding="utf-8")
        less = text.replace(f"keep_last = {KEEP}", f"keep_last = {KEEP_LESS}")
        world.keeping_less.write_text(less, encoding="utf-8")
        world.scrub.write_text("CREATE DATABASE scrubbed;\n", encoding="utf-8")
        yield world


def _text(world: World, credentials: Path) -> str:
    """A complete backupd.toml. Of the last job nothing but the binlog is kept: no run of it is typed."""
    bucket = world.service.configuration("bucket", credentials)
    return f"""[catalogue]
path = "{world.catalogue}"

[paths]
staging = "{world.staging}"
log = "{world.folder}/log"

[hosts.lab]
socket = "{SITE.socket}"
user = "backupd"
password_file = "{SITE.password_file}"

[targets.store]
type = "directory"
path = "{world.targets["store"]}"

[targets.second]
type = "directory"
path = "{world.targets["second"]}"

{bucket}part_size = "5MiB"
timeout = "5s"
outage = "3s"
{_job("nightly", '["store"]')}{_job("spooled", '["store", "second"]', "ftwrl", _PREFLUSH)}
[jobs.spooled.copy]
spool = "{world.spool}"
streams = 2
{_job("uploaded", '["bucket"]')}{_job("replica", '["store"]', more="stop_applier = true")}
{_job("archived", '["store"]')}
[jobs.archived.binlog]
spool = "{world.folder}/binlog"
segment_age = "1s"
"""


def _job(name: str, targets: str, strategy: str = "auto", more: str = "") -> str:
    return f"""
[jobs.{name}]
host = "lab"
targets = {targets}
canary = true

[jobs.{name}.snapshot]
size = "20%"

[jobs.{name}.settle]
enabled = false

[jobs.{name}.retention]
keep_last = {KEEP}

[jobs.{name}.lock]
strategy = "{strategy}"
wait_timeout = "{WAIT_SECONDS:g}s"
tries = 2
pause = "100ms"
hold_budget = "{HOLD_BUDGET_SECONDS:g}s"
{more}
"""
