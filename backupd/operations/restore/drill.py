"""The proof: restore a backup, start a server on it, and compare what came back with what was recorded."""

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.errors import BackupdError, Cancelled, NotAsRecorded, NotHeld, Undecided, VerificationError
from backupd.filesystem import remove_tree
from backupd.interruption import shielded
from backupd.model import Check, Drill, Manifest, Position
from backupd.mysql.derivation import derive
from backupd.mysql.proof import prove
from backupd.mysql.scratch import ScratchServer
from backupd.restore import agreed, key_of, require_room, unpack_objects
from backupd.targets import Source
from backupd.tools import HostTools
from backupd.unfinished import filling

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

_Answer = tuple[tuple[Check, ...], Position | None, str]  # a position where one had to be found; why it is undecided

log = logging.getLogger(__name__)


def drill(
    sources: Sequence[Source],
    tools: HostTools,
    *,
    identities: "Identities | None" = None,
    telling: Callable[[str], None] = lambda _step: None,
) -> Drill:
    """Restore into the staging folder, start the matching server there, check, shut down, remove.

    `sources` are copies of one run, the first of them preferred. Returns the drill's result whether or not its checks
    agree; nothing is left in the staging folder either way.

    Raises:
        UsageError: no room in the staging folder; the backup is encrypted, and no identity opens it.
        TargetError: the backup cannot be read.
        VerificationError: no copy has a manifest that can be understood.
    """
    began = time.monotonic()
    run_id = sources[0].run_id
    folder = tools.places.drill_folder(run_id)
    with tools.claims.run(folder.name):
        remove_tree(folder)
        manifest, readable = agreed(sources)
        key_of(manifest, identities)
        require_room(folder, manifest)
        try:
            checks, position, undecided = _checks(_Copy(readable, manifest, identities), folder, telling)
        finally:
            with shielded():
                remove_tree(folder)
    seconds = time.monotonic() - began
    ok = not undecided and all(check.ok for check in checks)
    at = datetime.now(UTC)
    return Drill(run_id, ok=ok, checks=checks, seconds=seconds, at=at, position=position, undecided=undecided)


@dataclass(frozen=True, slots=True)
class _Copy:
    """What is to be proven, and what opens it."""

    sources: Sequence[Source]
    manifest: Manifest
    identities: "Identities | None"


def _checks(copy: _Copy, folder: Path, telling: Callable[[str], None]) -> _Answer:
    """Each step that fails is a failed check, but for a limit of the drill's own: that is no answer."""
    telling("restoring")
    manifest = copy.manifest
    try:
        with filling(folder, {"run": manifest.run_id, "job": manifest.job}):
            unpack_objects(copy.sources, manifest, to=folder, identities=copy.identities)
    except NotHeld as error:
        log.warning("drill: %s", error.message)
        return (), None, f"the staging folder cannot hold the backup as it was recorded: {error.message}"
    except NotAsRecorded as error:
        return (Check("restore", ok=False, expected="every file as recorded", found=error.message),), None, ""
    except VerificationError as error:
        return (Check("restore", ok=False, expected="every digest as recorded", found=error.message),), None, ""
    restored = Check("restore", ok=True, expected="every digest as recorded", found="every digest as recorded")
    telling("starting a server on the restored files")
    try:
        checks, position = _ask_the_server(manifest, folder, telling)
    except Cancelled:
        raise
    except Undecided as error:
        log.warning("drill: %s", error.message)
        return (restored,), None, error.message
    except BackupdError as error:
        log.warning("drill: %s", error.message)
        return (restored, Check("server", ok=False, expected="starts and answers", found=error.message)), None, ""
    return (restored, *checks), position, ""


def _ask_the_server(
    manifest: Manifest, folder: Path, telling: Callable[[str], None]
) -> tuple[tuple[Check, ...], Position | None]:
    with ScratchServer(folder, manifest).running() as server:
        telling("comparing what it says with what was recorded")
        if manifest.locked:
            return (*prove(server, manifest), server.shut_down()), None
        derived = derive(server, manifest)
        checks = prove(server, replace(manifest, position=derived.position), found=derived.found)
        return (*checks, server.shut_down()), derived.position
