"""What lies in a copy for its server to apply: whole events, with the source's place before and behind them."""

import os
import struct
import zlib
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd.mysql.binlog.relay_logs import LogPiece, RelayLogs, laid_down
from backupd.mysql.relocation import Relocation
from backupd.mysql.startup import RELAY_FOLDER
from backupd.vocabulary.binlogs import BinlogPlace
from backupd.vocabulary.errors import VerificationError
from backupd.vocabulary.servers import Flavour

_START = 500
_NO_CHECKSUM = bytes(5)


def event(start: int, body: bytes, *, time: int = 1_000_000, kind: int = 2) -> bytes:
    length = 19 + len(body)
    return struct.pack("<IBIIIH", time, kind, 7, length, start + length, 0) + body


def events(*bodies: bytes) -> bytes:
    text = b""
    for body in bodies:
        text += event(_START + len(text), body)
    return text


FORMAT = event(4, bytes(57) + _NO_CHECKSUM, kind=15)
SUMMED = event(4, bytes(57) + bytes([1, 0, 0, 0, 0]), kind=15)
EVENTS = events(b"one", b"", b"x" * 300, b"four")


def piece_of(
    chunks: list[bytes], *, start: int = _START, described: bytes = FORMAT, flavour: Flavour = Flavour.MARIADB
) -> LogPiece:
    return LogPiece("bin.000009", start, described, chunks, flavour)


def kinds(text: bytes) -> list[int]:
    """Of the events of a log, in order; each has the checksum that the first one promises, if it does."""
    found, at = [], 4
    while at < len(text):
        length = int.from_bytes(text[at + 9 : at + 13], "little")
        found.append(text[at + 4])
        at += length
    return found


def written(folder: Path, *pieces: LogPiece) -> tuple[RelayLogs, list[bytes]]:
    (folder / "data").mkdir(exist_ok=True)
    with laid_down(pieces, Relocation(folder, "data", Path("/var/lib/mysql"))) as logs:
        names = (folder / RELAY_FOLDER / "relay.index").read_text().splitlines()
        return logs, [(folder / RELAY_FOLDER / name).read_bytes() for name in names]


@given(cuts=st.sets(st.integers(1, len(EVENTS) - 1)))
def test_however_the_bytes_are_divided_they_lie_there_as_they_are(
    cuts: set[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    bounds = [0, *sorted(cuts), len(EVENTS)]
    chunks = [EVENTS[one:other] for one, other in pairwise(bounds)]
    logs, (text,) = written(tmp_path_factory.mktemp("copy"), piece_of(chunks))
    assert text.startswith(b"\xfebin" + FORMAT)
    assert EVENTS in text
    assert text.endswith((_START + len(EVENTS)).to_bytes(8, "little") + b"bin.000009")
    assert (logs.start, logs.end) == (
        BinlogPlace("bin.000009", _START),
        BinlogPlace("bin.000009", _START + len(EVENTS)),
    )
    assert logs.sizes == [len(text)]


@given(cut=st.integers(1, len(EVENTS) - 1))
def test_a_piece_that_ends_within_an_event_is_refused(cut: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    piece = piece_of([EVENTS[:cut]])
    bounds = {len(events(*bodies)) for bodies in ((b"one",), (b"one", b""), (b"one", b"", b"x" * 300))}
    folder = tmp_path_factory.mktemp("copy")
    if cut in bounds:
        written(folder, piece)
        return
    with pytest.raises(VerificationError, match="is not whole"):
        written(folder, piece)
    assert not (folder / RELAY_FOLDER).exists()


@pytest.mark.parametrize("described", [FORMAT, SUMMED])
def test_mysql_is_told_that_no_gtid_came_before_a_log_that_does_not_say_it_itself(
    tmp_path: Path, described: bytes
) -> None:
    from_within = piece_of([EVENTS], described=described, flavour=Flavour.MYSQL)
    from_its_start = piece_of([event(4, b"")], start=4, described=described, flavour=Flavour.MYSQL)
    _, texts = written(tmp_path, from_within, from_its_start)
    assert [kinds(text) for text in texts] == [[15, 35, 4, 2, 2, 2, 2, 4], [15, 4, 2, 4]]
    told = texts[0][4 + len(described) :][: 19 + 8 + (4 if described is SUMMED else 0)]
    assert told[19:27] == bytes(8)  # a list of no source
    assert not told[27:] or zlib.crc32(told[:27]).to_bytes(4, "little") == told[27:]


def test_an_offset_beyond_four_gibibytes_is_written_by_the_server_without_what_is_over(tmp_path: Path) -> None:
    start = (1 << 32) - 10
    text = struct.pack("<IBIIIH", 1, 2, 7, 30, (start + 30) % (1 << 32), 0) + bytes(11)
    logs, _ = written(tmp_path, piece_of([text], start=start))
    assert logs.end == BinlogPlace("bin.000009", start + 30)


def test_a_folder_that_the_restored_files_bring_along_is_not_used(tmp_path: Path) -> None:
    (tmp_path / RELAY_FOLDER).symlink_to("/etc")
    with pytest.raises(VerificationError, match="already have"):
        written(tmp_path, piece_of([EVENTS]))
    assert (tmp_path / RELAY_FOLDER).is_symlink()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_they_are_its_servers_where_the_datadir_is_the_folder_that_is_closed_to_it(tmp_path: Path) -> None:
    (tmp_path / "mysql").mkdir()
    os.chown(tmp_path / "mysql", 61000, 61001)
    with laid_down([piece_of([EVENTS])], Relocation(tmp_path, ".", Path("/var/lib/mysql"))):
        folder = tmp_path / RELAY_FOLDER
        assert {(path.stat().st_uid, path.stat().st_gid) for path in (folder, *folder.iterdir())} == {(61000, 61001)}
    assert tmp_path.stat().st_uid == 0


def test_without_pieces_nothing_is_to_be_applied(tmp_path: Path) -> None:
    logs, texts = written(tmp_path)
    assert (logs.start, logs.end, logs.size, texts) == (None, None, 0, [])


def test_how_much_is_done_and_when_it_was_logged() -> None:
    logs = RelayLogs(sizes=[100, 50], times=[(10, 1000), (120, 2000)])
    assert [logs.done(number, offset) for number, offset in ((1, 4), (2, 30), (3, 4), (9, 99))] == [4, 130, 150, 150]
    assert [logs.time_at(done) for done in (4, 10, 150)] == [
        None,
        datetime.fromtimestamp(1000, UTC),
        datetime.fromtimestamp(2000, UTC),
    ]
