"""What things are called on every target that has folders or keys: JOB/RUN/OBJECT, and `manifest.json` among them."""

from backupd.errors import TargetError

MANIFEST = "manifest.json"


def part(name: str) -> str:
    """One component of a path, and never one that leads elsewhere.

    Raises:
        TargetError: it would.
    """
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise TargetError(f"{name!r} cannot be a name on a target", hint="names have no slash")
    return name


def is_jobs(folder: str) -> bool:
    """Whether it can be a job's: a file system's own folders and hidden ones lie there as well."""
    return not folder.startswith(".") and folder != "lost+found"


def partial(name: str) -> str:
    """What an object is called while it is being written."""
    return f".{part(name)}.partial"
