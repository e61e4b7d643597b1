"""How tests copy, unless they care: as a job does whose configuration says nothing of it."""

from typing import Any

from backupd.archive import Governor
from backupd.archive.governor import Unhindered
from backupd.archive.packing import CopyManner
from backupd.config import CopyConfig


def usual_manner(governor: Governor | None = None, **changed: Any) -> CopyManner:
    """With these things changed."""
    usual = {"level": CopyConfig().level, "threads": CopyConfig().threads}
    return CopyManner(governor=governor or Unhindered(), **usual | changed)
