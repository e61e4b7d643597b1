"""The proof: restore a backup, start a server on it, and compare what came back with what was recorded."""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from backupd.errors import BackupdError, Cancelled, VerificationError
from backupd.filesystem import remove_tree
from backupd.interruption import shielded
from backupd.model import Check, Drill, Manifest, Position
from backupd.mysql.derivation import derive
from backupd.mysql.proof import prove
from backupd.mysql.scratch import ScratchServer
from backupd.restore import require_room, restore
from backupd.targets import Source, Target
from backupd.tools import HostTools

_Answer = tuple[tuple[Check, ...], Position | None]  # a position where one had to be found

log = logging.getLogger(__name__)


def drill(
    job: str,
    run_id: str,
    target: Target,
    tools: HostTools,
    *,
    telling: Callable[[str], None] = lambda _step: None,
) -> Drill:
    """Restore into the staging folder, start the matching server there, check, shut down, remove.

    Returns the drill's result whether or not its checks agree; nothing is left in the staging folder either way.

    Raises:
        UsageError: no room in the staging folder.
        TargetError: the backup cannot be read.
    """
    began = time.monotonic()
    folder = tools.places.drill_folder(run_id)
    with tools.claims.run(folder.name):
        remove_tree(folder)
        manifest = target.manifest(job, run_id)
        require_room(folder, manifest)
        try:
            checks, position = _checks(job, run_id, target, folder, telling)
        finally:
            with shielded():
                remove_tree(folder)
    seconds = time.monotonic() - began
    ok = all(check.ok for check in checks)
    return Drill(run_id, ok=ok, checks=checks, seconds=seconds, at=datetime.now(UTC), position=position)


def _checks(job: str, run_id: str, target: Target, folder: Path, telling: Callable[[str], None]) -> _Answer:
    """Each step that fails is a failed check: a drill that cannot be finished has an answer too."""
    telling("restoring")
    try:
        manifest = restore([Source(target, job, run_id)], to=folder)
    except VerificationError as error:
        return (Check("restore", ok=False, expected="every digest as recorded", found=error.message),), None
    restored = Check("restore", ok=True, expected="every digest as recorded", found="every digest as recorded")
    telling("starting a server on the restored files")
    try:
        checks, position = _ask_the_server(manifest, folder, telling)
    except Cancelled:
        raise
    except BackupdError as error:
        log.warning("drill: %s", error.message)
        return (restored, Check("server", ok=False, expected="starts and answers", found=error.message)), None
    return (restored, *checks), position


def _ask_the_server(manifest: Manifest, folder: Path, telling: Callable[[str], None]) -> _Answer:
    with ScratchServer(folder, manifest).running() as server:
        telling("comparing what it says with what was recorded")
        if manifest.locked:
            return (*prove(server, manifest), server.shut_down()), None
        derived = derive(server, manifest)
        checks = prove(server, replace(manifest, position=derived.position), found=derived.found)
        return (*checks, server.shut_down()), derived.position
