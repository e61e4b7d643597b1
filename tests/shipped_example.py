"""The example configurations that are shipped, as they are and with more of it in force.

Knows: their marks. A table whose lines begin with `##` is disabled, a line that begins with `#key =` shows a default.
"""

import re
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "configs" / "backupd.toml"
FLEET = EXAMPLE.with_name("fleet.toml")
_NOT_IN_FORCE = re.compile(r"^##", re.MULTILINE)
_DEFAULT_LINE = re.compile(r"^#(?=[a-z_]+ = )", re.MULTILINE)


def everything(example: Path = EXAMPLE) -> str:
    """With all its tables in force."""
    return _NOT_IN_FORCE.sub("", example.read_text())


def spelt_out(example: Path = EXAMPLE) -> str:
    """With every default written out as well, but for those of what excludes something else."""
    return _DEFAULT_LINE.sub("", everything(example)).replace("port = 3306\n", "")
