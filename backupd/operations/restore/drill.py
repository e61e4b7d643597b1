"""The proof: restore a backup, start a server on it, and compare what came back with what was recorded."""

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.config import DrillCheckConfig
from backupd.host.filesystem import remove_tree
from backupd.host.signals import shielded
from backupd.mysql.derivation import derive
from backupd.mysql.own_checks import own_checks
from backupd.mysql.proof import prove, with_its_end
from backupd.mysql.scratch import RunningServer, ScratchServer
from backupd.operations.restore.as_recorded import open_as_recorded
from backupd.operations.restore.into_folder import require_room, unpack_objects
from backupd.operations.restore.next_copy import agreed
from backupd.operations.restore.unfinished import filling
from backupd.operations.tools import HostTools
from backupd.targets import BackupSource
from backupd.vocabulary.errors import (
    BackupdError,
    Cancelled,
    CleanupIncomplete,
    HostExhausted,
    NotAsRecorded,
    NotHeld,
    Undecided,
    UsageError,
    VerificationError,
)
from backupd.vocabulary.records import Check, Drill, snapshot_by
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

_Answer = tuple[tuple[Check, ...], Position | None, str]  # a position where one had to be found; why it is undecided

log = logging.getLogger(__name__)


def drill(
    sources: Sequence[BackupSource],
    tools: HostTools,
    *,
    identities: "Identities | None" = None,
    confined: bool = True,
    checks: Sequence[DrillCheckConfig] = (),
    servers: Sequence[Path] = (),
    telling: Callable[[str], None] = lambda _step: None,
) -> Drill:
    """Restore into the staging folder, start the matching server there, check, shut down, remove.

    `checks` are the job's own, beside those of every drill; `servers` are folders with server programs.
    `sources` are copies of one run, the first of them preferred. Returns the drill's result whether or not its checks
    agree; nothing is left in the staging folder either way.

    Raises:
        UsageError: no room in the staging folder; the backup is encrypted, and no identity opens it; nothing here can
            keep a server within its bounds.
        TargetError: the backup cannot be read.
        VerificationError: no copy has a manifest that can be understood, or it names what no server has.
        ServerError: no matching server is here, or not its keys, or they cannot be given to a second one.
    """
    began = time.monotonic()
    run_id = sources[0].run_id
    folder = tools.places.drill_folder(run_id)
    with tools.claims.run(folder.name):
        remove_tree(folder)
        manifest, readable = agreed(sources, identities)
        server = ScratchServer(folder, manifest, confined=confined, servers=servers)
        server.require_startable()  # what this host lacks says nothing of the backup
        require_room(folder, manifest, staging=True)
        try:
            copy = _Copy(readable, manifest, identities, confined, server, tuple(checks))
            found, position, undecided = _checks(copy, folder, telling)
        finally:
            with shielded():
                remove_tree(folder)
    seconds = time.monotonic() - began
    ok = not undecided and all(check.ok for check in found)
    at = datetime.now(UTC)
    return Drill(run_id, ok=ok, checks=found, seconds=seconds, at=at, position=position, undecided=undecided)


@dataclass(frozen=True, slots=True)
class _Copy:
    """What is to be proven, and what opens it."""

    sources: Sequence[BackupSource]
    manifest: Manifest
    identities: "Identities | None"
    confined: bool
    server: ScratchServer
    own: tuple[DrillCheckConfig, ...]


def _checks(copy: _Copy, folder: Path, telling: Callable[[str], None]) -> _Answer:
    """Each step that fails is a failed check, but for a limit of the drill's own: that is no answer."""
    telling("restoring")
    manifest = copy.manifest
    try:
        with filling(folder, {"run": manifest.run_id, "job": manifest.job}):
            itself = unpack_objects(
                copy.sources, manifest, to=folder, identities=copy.identities, confined=copy.confined
            )
            open_as_recorded(folder, itself)
    except HostExhausted as error:
        log.warning("drill: %s", error.message)
        return (), None, error.message
    except NotHeld as error:
        log.warning("drill: %s", error.message)
        return (), None, f"the staging folder cannot store the backup as recorded: {error.message}"
    except NotAsRecorded as error:
        return (Check("restore", ok=False, expected="every file as recorded", found=error.message),), None, ""
    except VerificationError as error:
        return (Check("restore", ok=False, expected="every digest as recorded", found=error.message),), None, ""
    restored = Check("restore", ok=True, expected="every digest as recorded", found="every digest as recorded")
    telling("starting a server on the restored files")
    try:
        checks, position = _ask_the_server(copy, telling)
    except (Cancelled, CleanupIncomplete, UsageError):
        raise
    except (HostExhausted, Undecided) as error:
        log.warning("drill: %s", error.message)
        return (restored,), None, error.message
    except BackupdError as error:
        log.warning("drill: %s", error.message)
        return (restored, Check("server", ok=False, expected="starts and answers", found=error.message)), None, ""
    return (restored, *checks), position, ""


def _ask_the_server(copy: _Copy, telling: Callable[[str], None]) -> tuple[tuple[Check, ...], Position | None]:
    manifest = copy.manifest
    with copy.server.running() as server:
        telling("comparing the server's answers with the manifest")
        if manifest.locked:
            return with_its_end(server, chain(prove(server, manifest), _own(server, copy, telling))), None
        derived = derive(server, manifest)
        checks = prove(server, replace(manifest, position=derived.position), found=derived.found)
        return with_its_end(server, chain(checks, _own(server, copy, telling))), derived.position


def _own(server: RunningServer, copy: _Copy, telling: Callable[[str], None]) -> Iterator[Check]:
    if not copy.own:
        return
    manifest = copy.manifest
    telling("running the job's own checks")
    run = manifest.run
    told = None if run.snapshot is None else run.snapshot.taken_at
    taken_at = snapshot_by(manifest.created_at, run.phases, taken_at=told)
    yield from own_checks(server, copy.own, flavour=manifest.server.flavour, taken_at=taken_at)
