"""What a job, a host and a target may be called: the name goes into paths, LVM tags, units and file names."""

import re
from typing import Final

NAME: Final = re.compile(r"[a-z0-9][a-z0-9_-]{0,40}", re.ASCII)
