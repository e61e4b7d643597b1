"""How a preflight answer is put where there is little to say: all is well, or it could not be found out.

Knows: the two commonest findings, and which failures of the host are findings.
"""

from backupd.vocabulary.errors import BackupdError, CommandError, ServerError, SnapshotError, UnexpectedOutput
from backupd.vocabulary.records import Finding, Level

HOST_FAULTS = (ServerError, SnapshotError, CommandError, UnexpectedOutput)  # never `Cancelled`: that ends the run


def ok(name: str, detail: str) -> Finding:
    """Nothing speaks against a run here."""
    return Finding(name, Level.OK, detail)


def refused(name: str, error: BackupdError) -> Finding:
    """What could not be found out forbids a run."""
    return Finding(name, Level.REFUSED, error.message, error.hint)


def reason(error: OSError | BackupdError) -> str:
    """What the operating system, or we, say of it."""
    return str(error.strerror or error) if isinstance(error, OSError) else error.message
