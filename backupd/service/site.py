"""What the service's faces look at: the configuration, the catalogue and the clock."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from backupd.catalogue.store import Catalogue
from backupd.config import Configuration


@dataclass(frozen=True, slots=True)
class Site:
    """One machine that is backed up. Everything that a page or a metric says follows from it."""

    configuration: Configuration
    catalogue: Catalogue
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
