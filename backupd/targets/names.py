"""What things are called on every target that has folders or keys: JOB/RUN/OBJECT, and `manifest.json` among them."""

import re

from backupd.errors import TargetError

MANIFEST = "manifest.json"

_OBJECT = re.compile(
    r"((data(-[0-9]+)?|binlog|options)\.tar|index\.json)\.zst(\.age)?"
)  # `data`: of the first releases


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


def is_objects(name: str) -> bool:
    """Whether backupd calls an object of a backup so, the manifest apart. What is called otherwise is a person's."""
    return _OBJECT.fullmatch(name) is not None


def partial(name: str) -> str:
    """What an object is called while it is being written."""
    return f".{part(name)}.partial"
