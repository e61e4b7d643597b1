"""`[catalogue]`, the one table that can be read alone: see `backupd.config.unchecked`."""

from pathlib import Path

from pydantic.dataclasses import dataclass

from backupd.config.fields import AbsolutePath
from backupd.config.table import TABLE


@dataclass(frozen=True, slots=True, kw_only=True, config=TABLE)
class CatalogueConfig:
    """`[catalogue]`: the record of all runs."""

    path: AbsolutePath = Path("/var/lib/backupd/catalogue.sqlite")
