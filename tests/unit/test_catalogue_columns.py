"""What a row keeps as JSON comes back as it was, or with a sentence."""

from typing import Any

import pytest
from sqlalchemy.dialects import sqlite

from backupd.catalogue.columns import JsonColumn
from backupd.vocabulary.errors import CatalogueError

TEXTS = JsonColumn(tuple[str, ...])
DIALECT = sqlite.dialect()


@pytest.mark.parametrize("texts", [(), ("a", "b"), ("a file's byte that is no character: \udcff",), ("\n\x1b[31m",)])
def test_texts_come_back_whatever_they_hold(texts: tuple[str, ...]) -> None:
    assert TEXTS.process_result_value(TEXTS.process_bind_param(texts, DIALECT), DIALECT) == texts


@pytest.mark.parametrize("stored", ["[[1]]", '{"a": 1}', "[1]", "nothing", '["', "[" * 100_000])
def test_what_backupd_cannot_have_written_is_called_so(stored: Any) -> None:
    with pytest.raises(CatalogueError, match="invalid value") as raised:
        TEXTS.process_result_value(stored, DIALECT)
    assert "rebuild" in raised.value.hint
    assert len(raised.value.message) < 200
