"""A server recovers from a cut redo log exactly as from the whole one, wherever in the ring the log begins and ends."""

import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import pytest

from backupd.archive.redo import HEAD_BYTES, NotCut, RedoCut, RedoLog, redo_cut, redo_log
from backupd.archive.sources import Exclusions, list_members
from backupd.archive.stream import store_tree
from backupd.config import LockConfig
from backupd.lab.images import cache_folder
from backupd.lab.options import ServerKind
from backupd.lab.roots import server_usr
from backupd.mysql.locks import ServerLock
from backupd.vocabulary.servers import Flavour
from tests.contract.mariadb import MariadbServer, mariadb, wait_until
from tests.docker.programs_here import make_startable
from tests.manners import usual_manner
from tests.share import seeded

pytestmark = pytest.mark.thorough

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MIB = 1 << 20
MUCH = 8 * MIB  # of a log of 24 MiB
LOG = "ib_logfile0"
OPTIONS = ("--innodb-log-file-size=24M", "--innodb-buffer-pool-size=64M", "--skip-log-bin")
ROWS = 1000
SEEDS = (4, 5, 2, 3, 0, 1, 6, 7)  # the first four have every place, and two logs of which much can be left out
_SAID = re.compile(
    r"InnoDB: (Starting crash recovery from checkpoint LSN=\d+|End of log at LSN=\d+|log sequence number \d+)"
)


@dataclass
class Image:
    """What a snapshot shows, and an LSN that was told after it."""

    datadir: Path
    told: int
    program: str  # of the server

    def head(self) -> bytes:
        return (self.datadir / LOG).read_bytes()[:HEAD_BYTES]


@pytest.fixture(scope="module", params=["10.11", pytest.param("11.8", marks=pytest.mark.matrix)])
def program(request: pytest.FixtureRequest) -> Iterator[str]:
    """Of each series whose logs are cut: the installed server, and the one that the lab has from Debian 13."""
    if request.param == "10.11":
        yield "mariadbd"
        return
    with server_usr(ServerKind.MARIADB_11, cache_folder()) as usr, tempfile.TemporaryDirectory(prefix="bk-") as name:
        assert usr is not None
        (base := Path(name)).chmod(0o755)
        (base / "usr").symlink_to(usr)
        make_startable(base, Flavour.MARIADB)
        yield str(base / "mariadbd")


@pytest.fixture(scope="module")
def server(program: str) -> Iterator[MariadbServer]:
    with mariadb(*OPTIONS, program=program) as server:
        with server.session() as session:
            session.execute("CREATE TABLE t.redo (id INT PRIMARY KEY, v MEDIUMTEXT) ENGINE = InnoDB")
            session.execute(f"INSERT INTO t.redo SELECT seq, REPEAT('a', 4000) FROM t.seq_1_to_{ROWS}")
            session.execute("SET GLOBAL innodb_flush_log_at_trx_commit = 2")
        yield server


def lsn(server: MariadbServer) -> int:
    with server.session() as session:
        return int(session.status("Innodb_lsn_current") or 0)


@contextmanager
def load(server: MariadbServer) -> Iterator[None]:
    """Some MiB of redo a second, for the length of the block."""
    over = threading.Event()

    def write(seed: int) -> None:
        dice = random.Random(seed)
        with server.session() as session:
            while not over.is_set():
                begin, letter = dice.randrange(ROWS), dice.choice("bcdefgh")
                session.execute(
                    f"UPDATE t.redo SET v = REPEAT('{letter}', {dice.randrange(1000, 5000)})"
                    f" WHERE id BETWEEN {begin} AND {begin + dice.randrange(30)}"
                )

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(2)]
    for writer in writers:
        writer.start()
    try:
        yield
    finally:
        over.set()
        for writer in writers:
            writer.join()


def live_log(server: MariadbServer) -> RedoLog:
    """While nobody writes it: a checkpoint that is half there is none."""
    with server.frozen():
        return redo_log((server.datadir / LOG).read_bytes()[:HEAD_BYTES], (server.datadir / LOG).stat().st_size)


def written_to(server: MariadbServer, place: int) -> None:
    """Wait until the log's end is next at this byte of the ring, or up to a MiB further."""
    log = live_log(server)
    wait_until(lambda: (lsn(server) - log.first_lsn - place) % log.capacity < MIB)


def taken(server: MariadbServer, to: Path) -> Image:
    with server.frozen():
        shutil.copytree(server.datadir, to)
    return Image(to, lsn(server), server.program)


def taken_calmly(server: MariadbServer, to: Path) -> Image:
    """Once almost everything is flushed, and a little more was written: of this one much can be left out."""

    def flushed_and_taken() -> Image:
        with server.session() as session:
            session.execute("SET GLOBAL innodb_max_dirty_pages_pct = 0")
            session.execute("SET GLOBAL innodb_io_capacity = 2000")
            wait_until(lambda: int(session.status("Innodb_checkpoint_age") or 0) < 2 * MIB)
        flushed = lsn(server)
        with load(server):
            wait_until(lambda: lsn(server) > flushed + MIB)
            return taken(server, to)

    while True:  # beside other work the load may get far before the server is stopped
        image = flushed_and_taken()
        with suppress(NotCut):
            if redo_cut(image.datadir, LOG, told_lsn=image.told).left_out > MUCH:
                return image
        shutil.rmtree(to)


def stored(image: Image, cut: RedoCut, to: Path) -> None:
    """As the archive stores it."""

    class Sink(bytearray):
        def write(self, data: bytes) -> None:
            self.extend(data)

    sink = Sink()
    exclusions = Exclusions(datadir=PurePosixPath())
    store_tree(image.datadir, list_members(image.datadir, exclusions, cut), sink, manner=usual_manner(level=1))
    to.mkdir(parents=True)
    subprocess.run(["tar", "-x", f"--directory={to}"], input=zstd.decompress(bytes(sink)), check=True)


def with_noise(cut: RedoCut, log: Path) -> None:
    """Recovery must not look at what is left out."""
    noise = random.Random(cut.kept).randbytes(cut.size)
    with log.open("r+b") as file:
        end = 0
        for begin, size in (*cut.pieces, (cut.size, 0)):
            file.seek(end)
            file.write(noise[end:begin])
            end = begin + size


@contextmanager
def recovering(folder: Path, program: str) -> Iterator[MariadbServer]:
    server = MariadbServer(folder, *OPTIONS, program=program)
    server.start()
    try:
        yield server
    finally:
        server.stop(signal.SIGKILL)


def recovered(folder: Path, program: str) -> tuple[list[str], list[str | None]]:
    """What a server says of its recovery there, and what it has then.

    Not its next transaction id: of one whole image it told 157 at two starts, and 158 at six.
    """
    with recovering(folder, program) as server, server.session() as session:
        tables = [
            session.query(f"CHECKSUM TABLE t.{table} EXTENDED")[0]["Checksum"] for table in ("redo", "innodb", "aria")
        ]
        assert session.query("CHECK TABLE t.redo EXTENDED")[0]["Msg_text"] == "OK"
        return _SAID.findall((folder / "log").read_text()), tables


def recovers_alike(image: Image, folder: Path, *, noise: bool = False) -> RedoCut:
    """Each from a copy of its own: the whole log, the cut one, and, if wanted, the cut one with noise for holes."""
    cut = redo_cut(image.datadir, LOG, told_lsn=image.told)
    stored(image, cut, folder / "cut" / "data")
    if noise:
        shutil.copytree(folder / "cut" / "data", folder / "noise" / "data")
        with_noise(cut, folder / "noise" / "data" / LOG)
    (folder / "whole").mkdir()
    image.datadir.rename(folder / "whole" / "data")
    said, tables = recovered(folder / "whole", image.program)
    # Where everything was flushed, there is nothing to recover.
    assert [line.split()[0] for line in said] in (["Starting", "End", "log"], ["End", "log"]), said
    assert recovered(folder / "cut", image.program) == (said, tables)
    if noise:
        assert recovered(folder / "noise", image.program) == (said, tables)
    return cut


@contextmanager
def short_folder() -> Iterator[Path]:
    """A socket's path has no room for pytest's."""
    with tempfile.TemporaryDirectory(prefix="bk-") as name:
        yield Path(name)


def places(seed: int) -> int:
    """Where a log ends: just before its wrap, just behind it, anywhere."""
    dice = random.Random(seed)
    return (-MIB, 0, MIB, dice.randrange(24 * MIB))[seed % 4]


def one_after_the_other(server: MariadbServer, seeds: Sequence[int]) -> list[RedoCut]:
    cuts = []
    for seed in seeds:
        with server.session() as session:
            session.execute(f"SET GLOBAL innodb_max_dirty_pages_pct = {(0, 90, 5)[seed % 3]}")
            session.execute(f"SET GLOBAL innodb_flush_log_at_trx_commit = {(2, 0)[seed // 2 % 2]}")
        with short_folder() as folder:
            with load(server):
                written_to(server, places(seed))
                image = taken(server, folder / "image") if seed % 8 < 4 else None
            if image is None:  # as on a calm server: there is little behind the checkpoint
                image = taken_calmly(server, folder / "image")
            with suppress(NotCut):
                cuts.append(recovers_alike(image, folder, noise=True))
    return cuts


def wrapped(server: MariadbServer, times: int) -> None:
    size = (server.datadir / LOG).stat().st_size
    with server.session() as session:
        session.execute("SET GLOBAL innodb_max_dirty_pages_pct = 0")
    with load(server):
        began = lsn(server)
        wait_until(lambda: lsn(server) > began + times * size)


@pytest.mark.exhaustive
def test_server_recovers_from_a_cut_log_as_from_the_whole_one(server: MariadbServer) -> None:
    wrapped(server, 1)
    with short_folder() as folder:
        cut = recovers_alike(taken_calmly(server, folder / "image"), folder)
        assert cut.left_out > MUCH


@pytest.mark.exhaustive
@pytest.mark.timeout(300)
def test_it_does_wherever_the_log_begins_and_ends(server: MariadbServer) -> None:
    wrapped(server, 2)
    seeds = SEEDS[: seeded(len(SEEDS), usual=2)]
    cuts = one_after_the_other(server, seeds)
    assert len(cuts) >= len(seeds) / 2
    assert max(cut.left_out for cut in cuts) > MUCH


@pytest.mark.exhaustive
def test_a_server_goes_on_with_a_cut_log_round_and_round(server: MariadbServer) -> None:
    """Its holes are filled, and it recovers once more."""
    wrapped(server, 1)
    with short_folder() as folder:
        image = taken_calmly(server, folder / "image")
        stored(image, redo_cut(image.datadir, LOG, told_lsn=image.told), folder / "data")
        with recovering(folder, image.program) as again:
            wrapped(again, 3)
        with recovering(folder, image.program) as again, again.session() as session:
            assert session.query("CHECK TABLE t.redo EXTENDED")[0]["Msg_text"] == "OK"


def test_header_and_checkpoints_are_where_the_source_says(server: MariadbServer) -> None:
    wrapped(server, 2)  # a checkpoint is never further back than the log is long
    log = live_log(server)
    with server.session() as session:
        last = int(session.status("Innodb_lsn_last_checkpoint") or 0)
    assert max(log.checkpoints) <= last
    assert log.ended <= lsn(server)
    assert max(log.checkpoints) > log.first_lsn + log.capacity


def test_server_tells_an_lsn_that_its_log_has_not_passed(server: MariadbServer) -> None:
    lock = ServerLock(server.connect(), LockConfig())
    with lock.held(server.datadir) as held:
        assert held.reached_lsn is None
    assert held.reached_lsn is not None
    assert held.reached_lsn >= live_log(server).ended
