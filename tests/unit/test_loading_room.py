"""Tables are loaded into a running server only as long as its file systems keep a share free for its own clients."""

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from backupd.mysql.loading_schema import LoadingPlace, LoadingServer
from backupd.mysql.table_shape import TableShape
from backupd.operations.restore.table_loading import LoadingPlan, PlannedTable, _require_left, _require_room
from backupd.vocabulary.errors import Refused

GIB = 1 << 30
BY_ROWS = PlannedTable(cast(TableShape, None), 2 * GIB, None, None)
BY_TABLESPACE = replace(BY_ROWS, tablespace=Path("orders.ibd"))
SERVER, PLACE = cast(LoadingServer, None), LoadingPlace("db1", "backupd_loading_x", "restored")


def plan(*tables: PlannedTable, datadir: Path | None = None, binlogs: Path | None = None) -> LoadingPlan:
    return LoadingPlan(SERVER, PLACE, tables, None, (), datadir, binlogs)


@pytest.fixture
def free(monkeypatch: pytest.MonkeyPatch) -> dict[Path, int]:
    """GiB, by folder, of file systems of 100 GiB."""
    found: dict[Path, int] = {}
    monkeypatch.setattr(
        "backupd.operations.restore.table_loading.room", lambda folder: (found[folder] * GIB, 100 * GIB, False)
    )
    return found


def test_a_datadir_keeps_its_share_and_rows_take_it_twice_where_the_log_lies_beside_it(
    tmp_path: Path, free: dict[Path, int]
) -> None:
    free[tmp_path] = 8  # of which 5 have to stay
    _require_room(plan(BY_ROWS, datadir=tmp_path))
    _require_room(plan(BY_TABLESPACE, datadir=tmp_path, binlogs=tmp_path))
    with pytest.raises(Refused, match=r"the datadir of db1 has 8.0 GiB free: .* and their rows in its binary log"):
        _require_room(plan(BY_ROWS, datadir=tmp_path, binlogs=tmp_path))
    with pytest.raises(Refused, match=r"less than 5\.0 GiB would stay free") as told:
        _require_room(plan(BY_ROWS, BY_ROWS, datadir=tmp_path))
    assert "--to DIR" in told.value.hint


def test_a_log_that_is_elsewhere_keeps_its_own_share(tmp_path: Path, free: dict[Path, int]) -> None:
    elsewhere = Path("/proc")
    assert elsewhere.stat().st_dev != tmp_path.stat().st_dev
    free |= {tmp_path: 8, elsewhere: 6}
    _require_room(plan(BY_TABLESPACE, datadir=tmp_path, binlogs=elsewhere))
    for datadir in (tmp_path, None):
        with pytest.raises(Refused, match=r"the binary log of db1 has 6.0 GiB free"):
            _require_room(plan(BY_ROWS, datadir=datadir, binlogs=elsewhere))
    _require_room(plan(BY_ROWS))


def test_what_others_write_meanwhile_ends_the_loading_before_the_server_stands_still(
    tmp_path: Path, free: dict[Path, int]
) -> None:
    free[tmp_path] = 6
    loading = plan(BY_ROWS, datadir=tmp_path)
    _require_left(loading)
    free[tmp_path] = 4
    with pytest.raises(Refused, match=r"the file system of the datadir of db1 has only 4\.0 GiB left"):
        _require_left(loading)
    _require_left(plan(BY_ROWS))
