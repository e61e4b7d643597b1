"""Whose branches are counted, and which tests are to take them.

Knows: the parts of backupd in which a branch that nobody has taken costs a backup: what is done to servers, volumes and
targets, and how the catalogue commits.
"""

from collections.abc import Sequence
from dataclasses import dataclass

TESTS = ("tests/unit", "tests/contract", "tests/story", "tests/cli", "tests/clouds", "tests/fleet")
# Of what is `exhaustive`, which is left out for its time: the failures of stores, and of a dead run's copies.
WALKS = ("tests/contract/test_s3_faults.py", "tests/contract/test_sftp_faults.py", "tests/story/test_finishing.py")


@dataclass(frozen=True, slots=True)
class Area:
    """Files that are counted together."""

    name: str
    within: tuple[str, ...]  # folders or files, from the root of the repository

    def has(self, file: str) -> bool:
        """Whether the file is counted in it."""
        return file.startswith(self.within)

    def of(self, files: Sequence[str]) -> list[str]:
        """Those that are counted in it."""
        return [file for file in files if self.has(file)]


AREAS = (
    Area("operations", ("backupd/operations/",)),
    Area(
        "the catalogue's commits",
        tuple(
            f"backupd/catalogue/{module}.py"
            for module in ("audit", "database", "dead_runs", "endings", "file", "record", "schema", "store")
        ),
    ),
    Area("targets", ("backupd/targets/",)),
)
