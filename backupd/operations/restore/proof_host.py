"""What a proof host does: it drills stored copies of any machine and job, and leaves a signed proof beside each.

Knows: what lies on the targets that could be proven, and what keeps a copy from being drilled here. It believes nobody:
a backup that was made up is drilled in the same bounds as every other, and its proof is of that manifest alone; the
machine whose backup it should be has another on record. Refuses to choose: `proof_order` does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.config import ProofCheckConfig
from backupd.mysql.scratch import ScratchServer
from backupd.operations.recorded_copy import copy_on
from backupd.operations.restore.decryption_key import key_of
from backupd.operations.restore.drill import drill
from backupd.operations.restore.into_folder import unpacked_bytes
from backupd.operations.restore.proofs import last_tried, leave_proof_of_host
from backupd.operations.restore.verify import manifest_of
from backupd.operations.tools import HostTools
from backupd.policy.proof_order import ProvableCopy
from backupd.policy.signing import Signer
from backupd.policy.trust import Trust
from backupd.targets import BackupSource, Target
from backupd.vocabulary.errors import TargetError
from backupd.vocabulary.records import Drill
from backupd.vocabulary.storage import Manifest

if TYPE_CHECKING:
    from backupd.archive.encryption import Identities

_ANYBODYS = Trust(unsigned=True)


@dataclass(frozen=True, slots=True)
class ProofHost:
    """This machine as a proof host."""

    name: str
    tools: HostTools
    signer: Signer
    identities: "Identities | None" = None
    servers: Sequence[Path] = ()  # folders with server programs
    max_bytes: int | None = None  # of a restored backup
    checks: Sequence[ProofCheckConfig] = ()  # of one's own, each of one job's copies


@dataclass(frozen=True, slots=True)
class TooLarge:
    """A copy that this host does not drill: bytes that it takes, and that it may take."""

    needed: int
    allowed: int


@dataclass(frozen=True, slots=True)
class Proof:
    """What a drill found, and why nobody else can read it, where that is so."""

    drill: Drill
    server: str  # the version of the server that was started
    unwritten: TargetError | None = None


def provable(target: Target, keys: frozenset[str]) -> list[ProvableCopy]:
    """Every finished backup of every machine there, with what proof hosts of these keys have tried already.

    Raises:
        TargetError: the target cannot be read.
    """
    found = []
    for machine in sorted(target.machines()):
        place = target.of_machine(machine)
        for stored in place.backups():
            if stored.finished:
                source = BackupSource(place, stored.job, stored.backup_id, Trust())
                tried = last_tried(source, keys)
                found.append(ProvableCopy(target.name, machine, stored.job, stored.backup_id, stored.at, tried))
    return found


def prove_copy(host: ProofHost, target: Target, copy: ProvableCopy, telling: Callable[[str], None]) -> Proof | TooLarge:
    """The copy was restored and a server was started on it; the result lies beside it, if that could be written.

    Nothing of it is left on this host. What this host lacks is found before anything is restored, and is no result.

    Raises:
        UsageError: no identity here opens the backup; there is no room; nothing here keeps a server within its bounds.
        ServerError: there is no server program of its series here, or not the server's keys.
        TargetError: the backup cannot be read.
        VerificationError: its manifest cannot be parsed.
        Busy: it is being drilled.
    """
    source = BackupSource(target.of_machine(copy.machine), copy.job, copy.run_id, _ANYBODYS)
    manifest = manifest_of(source)
    needed = unpacked_bytes(manifest)
    if host.max_bytes is not None and needed > host.max_bytes:
        return TooLarge(needed, host.max_bytes)
    key_of(manifest, host.identities)
    server = _server_version(host, manifest)
    # So that what is drilled is this manifest, which the proof names, whatever the storage returns the next time.
    pinned = replace(source, trust=Trust(unsigned=True, recorded=copy_on(source.target, manifest)))
    own = [check for check in host.checks if check.is_of(copy.machine, copy.job)]
    result = drill([pinned], host.tools, identities=host.identities, checks=own, servers=host.servers, telling=telling)
    try:
        leave_proof_of_host(source, result, digest=manifest.digest, by=host.name, server=server, signer=host.signer)
    except TargetError as error:
        return Proof(result, server, error)
    return Proof(result, server)


def _server_version(host: ProofHost, manifest: Manifest) -> str:
    folder = host.tools.places.drill_folder(manifest.run_id)
    return ScratchServer(folder, manifest, servers=host.servers).require_startable()
