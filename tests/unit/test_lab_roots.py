"""Where another distribution's server comes from, and what is said when it cannot come."""

import os
from pathlib import Path

import pytest

from backupd.lab import roots
from backupd.lab.images import clean
from backupd.lab.options import ServerKind
from backupd.lab.servers import SOFTWARE, Distribution
from backupd.vocabulary.errors import LabError

# `apt-get indextargets` on Debian 12 with a mirror, and in an image without package lists.
INDEXES = """\
Google|cloud-sdk-bookworm|main|https://packages.cloud.google.com/apt/
Node|nodistro|main|https://deb.nodesource.com/node_20.x/
Debian|bookworm-updates|main|http://updates.example/debian/
Debian|bookworm|contrib|http://contrib.example/debian/
Debian|bookworm|main|http://mirror.example/debian/
"""
UNKNOWN = """\
$(ORIGIN)|nodistro|main|https://deb.nodesource.com/node_20.x/
$(ORIGIN)|bookworm-security|main|http://security.example/debian-security/
$(ORIGIN)|bookworm|main|http://mirror.example/debian/
"""
# stderr of mmdebstrap 1.3.5 when nobody listened.
UNREACHABLE = """\
I: running apt-get update...
Err:1 http://127.0.0.1:9/debian trixie InRelease
  Could not connect to 127.0.0.1:9 (127.0.0.1). - connect (111: Connection refused)
E: Failed to fetch http://127.0.0.1:9/debian/dists/trixie/InRelease  Could not connect to 127.0.0.1:9
E: Some index files failed to download. They have been ignored, or old ones used instead.
E: mmdebstrap failed to run
"""

ORIGINS = [software.origin for software in SOFTWARE.values() if software.origin]


@pytest.fixture
def mmdebstrap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program of that name, first on PATH: the tests write what it does."""
    program = tmp_path / "bin" / "mmdebstrap"
    program.parent.mkdir()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    return program


def does(program: Path, script: str) -> None:
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)


def test_packages_come_from_where_the_machines_own_come_from() -> None:
    assert roots.archive_of(INDEXES, "bookworm") == "http://mirror.example/debian"


def test_where_apt_knows_no_origins_yet_the_suite_is_the_machines() -> None:
    assert roots.archive_of(UNKNOWN, "bookworm") == "http://mirror.example/debian"


@pytest.mark.parametrize("indexes", ["", INDEXES.replace("Debian|", "Ubuntu|")])
def test_a_machine_without_debians_archive_uses_the_public_one(indexes: str, tmp_path: Path) -> None:
    archive = roots.archive_of(indexes, "noble")
    assert archive is None
    assert roots.fetch_argv(ORIGINS[0], archive, tmp_path / "root", [])[-2:] == [
        ORIGINS[0].suite,
        str(tmp_path / "root"),
    ]


@pytest.mark.parametrize("origin", ORIGINS, ids=str)
def test_nothing_is_installed_and_no_script_runs(origin: Distribution, tmp_path: Path) -> None:
    argv = roots.fetch_argv(origin, "http://mirror.example/debian", tmp_path / "root", [])
    assert {"--variant=extract", "--mode=chrootless"} <= set(argv)
    assert argv[-3:-1] == [origin.suite, str(tmp_path / "root")]
    assert argv[-1].endswith(f"http://mirror.example/debian {origin.suite} main")


def test_the_own_server_is_fetched_from_nowhere(tmp_path: Path, mmdebstrap: Path) -> None:
    does(mmdebstrap, "exit 9")
    with roots.server_usr(ServerKind.MARIADB_10, tmp_path / "cache") as usr:
        assert usr is None


def test_a_distribution_out_of_reach_is_one_sentence_and_leaves_nothing(tmp_path: Path, mmdebstrap: Path) -> None:
    does(mmdebstrap, f"cat >&2 <<'END'\n{UNREACHABLE}END\nexit 25")
    cache = tmp_path / "cache"
    with pytest.raises(LabError) as refused, roots.server_usr(ServerKind.MYSQL_9, cache, "http://127.0.0.1:9/debian"):
        pytest.fail("there is no server")
    expected = (
        "cannot fetch mysql-server-core of Debian sid from http://127.0.0.1:9/debian: Failed to fetch "
        "http://127.0.0.1:9/debian/dists/trixie/InRelease  Could not connect to 127.0.0.1:9"
    )
    assert refused.value.message == expected
    assert "within reach" in refused.value.hint
    assert [path for path in cache.iterdir() if path.is_dir()] == []


def test_only_usr_is_kept_and_fetched_once_and_removed_by_clean(tmp_path: Path, mmdebstrap: Path) -> None:
    does(
        mmdebstrap,
        f'echo x >> {tmp_path}/calls; for last; do root=$before; before=$last; done; mkdir -p "$root/usr" "$root/etc"',
    )
    cache = tmp_path / "cache"
    for _ in range(2):
        with roots.server_usr(ServerKind.MYSQL_9, cache, "http://m.example/debian") as usr:
            assert usr is not None
            assert [path.name for path in usr.parent.iterdir()] == ["usr"]
            assert clean(cache) == []
    assert (tmp_path / "calls").read_text() == "x\n"
    assert len(clean(cache)) == 1
    assert list(cache.iterdir()) == []


def test_a_root_without_a_program_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no program can be started"):
        roots.version(ServerKind.MYSQL_9, tmp_path)


def test_the_version_is_what_the_program_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    does(tmp_path / "mariadbd", 'echo "mariadbd  Ver 10.11.19-MariaDB-0+deb12u1 for debian-linux-gnu on x86_64"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert roots.version(ServerKind.MARIADB_10, None) == "10.11.19-MariaDB-0+deb12u1"
    does(tmp_path / "mariadbd", "echo hello")
    with pytest.raises(LabError, match="the lab's server reported no version"):
        roots.version(ServerKind.MARIADB_10, None)
