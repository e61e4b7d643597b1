"""The catalogue for a process that reads it and may open nothing: what others write is seen, and nothing is written."""

from pathlib import Path

import pytest

from backupd.catalogue.store import Catalogue
from backupd.vocabulary.errors import CatalogueError


def test_what_others_write_is_seen_and_nothing_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "catalogue?of a#site.sqlite"
    with Catalogue.open(path) as writer:
        writer.pause("nightly", "before")
        with Catalogue.look(path, connections=3) as looker:
            writer.pause("shop", "meanwhile")
            assert looker.pauses().keys() == {"nightly", "shop"}
            with pytest.raises(CatalogueError, match="cannot be written"):
                looker.pause("weekly", "never")
        assert writer.pauses().keys() == {"nightly", "shop"}


def test_no_file_is_opened_later(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    path = tmp_path / "there" / "catalogue.sqlite"
    with Catalogue.open(path) as writer:
        writer.pause("nightly", "before")
        with Catalogue.look(path, connections=2) as looker:
            (tmp_path / "there").rename(tmp_path / "elsewhere")
            assert looker.pauses().keys() == {"nightly"}
            assert looker.unfinished() == []


def test_a_catalogue_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(CatalogueError, match="cannot be opened"):
        Catalogue.look(tmp_path / "catalogue.sqlite", connections=1)
    assert list(tmp_path.iterdir()) == []
