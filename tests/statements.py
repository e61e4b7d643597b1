"""SQL is compiled once for all catalogues of a process: a statement's first time costs three times its others."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Engine, create_engine

from backupd.catalogue import database


class _Statements(dict[tuple[Any, ...], Any]):
    """Compiled statements, by all of SQLAlchemy's key but its first part: the dialect, of which every engine makes one.

    Ours differ in nothing but the file that they open.
    """

    def get(self, key: tuple[Any, ...], default: Any = None) -> Any:
        return super().get(key[1:], default)

    def __setitem__(self, key: tuple[Any, ...], compiled: Any) -> None:
        super().__setitem__(key[1:], compiled)


@contextmanager
def compiled_once() -> Iterator[None]:
    """Every catalogue that is opened while the block lasts shares its statements with the others."""
    compiled = _Statements()

    def create(*arguments: Any, **options: Any) -> Engine:
        engine = create_engine(*arguments, **options)
        engine.update_execution_options(compiled_cache=compiled)
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(database, "create_engine", create)
        yield
