"""Moments drawn by a seed from a loaded server's history are restored exactly, on other servers than this machine's.

The server is in its container; what receives its binlog, applies it, and starts on what was restored are the programs
of its image, here.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docker.containers import ServerContainer
from tests.docker.programs_here import BINLOG, copied, started_on
from tests.moments.drawn import drawn
from tests.moments.history import Ground, lived
from tests.moments.restoring import differences
from tests.share import seeded

SEED = 17


@pytest.fixture(scope="module")
def programs(server: ServerContainer) -> Iterator[Path]:
    with copied(server) as folder:
        yield folder


@pytest.mark.timeout(1500)  # a hundred of them
@pytest.mark.parametrize(
    "kind", [pytest.param("mariadb-11", marks=pytest.mark.matrix), "mysql-9"], indirect=True, scope="session"
)
def test_moments_drawn_by_a_seed_are_as_a_witness_has_them(
    server: ServerContainer, programs: Path, tmp_path: Path
) -> None:
    ground = Ground(
        server.flavour,
        programs / BINLOG[server.flavour],
        lambda datadir: started_on(datadir, programs, server.flavour),
        programs,
    )
    history = lived(tmp_path, server, ground, seed=SEED)
    assert differences(history, drawn(history, seeded(100, usual=5), seed=SEED), tmp_path) == []
