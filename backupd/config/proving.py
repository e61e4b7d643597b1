"""`[prove]` and `[proofs]`: what a proof host does, and which proof hosts a database host believes."""

from typing import Annotated

from pydantic import AfterValidator, Field
from pydantic.dataclasses import dataclass

from backupd.config.drill_checks import ProofChecks
from backupd.config.fields import Paths, SecretFile, Size, Text
from backupd.config.table import TABLE
from backupd.config.times import Blackouts, Zone
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.faults import BadValue


def _public_key(value: str) -> str:
    from backupd.policy.signing import require_public

    try:
        return require_public(value)
    except UsageError as error:
        raise BadValue(error.message, error.hint) from error


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class ProveConfig:
    """`[prove]`: what `backupd prove` drills on this machine, a proof host, and when it may not."""

    identity_file: SecretFile | None = None  # age's; None: only backups that everybody can read
    servers: Paths = ()  # folders with server programs, beside this host's own
    max_size: Size | None = None  # of a restored backup; None: what the staging folder has room for
    blackout: Blackouts = ()  # in which no drill begins
    zone: Zone | None = None  # of the blackout; None: the service's
    checks: ProofChecks = Field(default_factory=dict)  # each asked of one job's copies


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class ProofsConfig:
    """`[proofs]`: which proof hosts are believed on this machine."""

    signers: tuple[Annotated[Text, AfterValidator(_public_key)], ...] = ()  # as `backupd identity show` prints a key
