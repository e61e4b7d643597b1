"""The configuration as it was read, not yet checked: where the catalogue is, for who only looks at the record of runs.

Whoever looks is answered sooner without the whole schema, and a fault in another table does not keep them from it.
Refuses to judge: what is not plainly right with `[catalogue]` is told by the check of all tables, with their faults.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from backupd.config.catalogue import CatalogueConfig
from backupd.config.drop_ins import Documents

if TYPE_CHECKING:
    from backupd.config import Configuration


@dataclass(frozen=True, slots=True)
class Unchecked:
    """The tables of the configuration's files, read once: a pipe cannot be read again. Of no file, the defaults."""

    documents: Documents
    path: Path

    @property
    def catalogue(self) -> CatalogueConfig:
        """`[catalogue]`, whatever faults the other tables have.

        Raises:
            ConfigurationError: it has a fault, is in two files, or is in none and the configuration has a fault; all of
                them are told.
        """
        tables = [document["catalogue"] for document in self.documents.values() if "catalogue" in document]
        if len(tables) != 1 and self.documents:  # where there is none, it may be there under a name that is misspelt
            return self.checked().catalogue
        try:
            return TypeAdapter(CatalogueConfig).validate_python(tables[0] if tables else {})
        except ValidationError:
            return self.checked().catalogue

    def checked(self) -> "Configuration":
        """The whole configuration.

        Raises:
            ConfigurationError: listing every fault.
        """
        from backupd.config import Configuration
        from backupd.config.reading import whole

        return Configuration() if not self.documents else whole(self.documents, self.path)
