"""What a log does to accounts and functions by libraries that servers load: done on the copy, or told as what it is."""

import shutil
import tempfile
from pathlib import Path

import pytest

from backupd.mysql.session import Session
from backupd.vocabulary.errors import VerificationError
from tests.contract.mariadb import MariadbServer, mariadb
from tests.contract.test_applying import Witness, applied, place
from tests.contract.test_scratch import taken

pytestmark = pytest.mark.exhaustive


def witnessed(source: MariadbServer, root: Session, to: Path, *logged: str) -> Witness:
    """A copy of the source, which executes these afterwards."""
    image = taken(source, to)
    for statement in logged:
        root.execute(statement)
    return Witness(image.folder, image.manifest, source.datadir)


def test_accounts_are_made_that_need_a_plugin_which_the_source_had(tmp_path: Path, mariadb_with_plugins: str) -> None:
    with mariadb("--binlog-format=ROW", program=mariadb_with_plugins) as source, source.session() as root:
        root.execute("INSTALL SONAME 'auth_ed25519'")
        made = "CREATE USER somebody@localhost IDENTIFIED VIA ed25519 USING PASSWORD('something')"
        witness, end = witnessed(source, root, tmp_path / "image", made), place(root)
        accounts = "CHECKSUM TABLE mysql.global_priv"
        expected, found = root.query(accounts), []
        applied(witness, tmp_path / "to", end, lambda server, _: found.append(server.session.query(accounts)))
    assert found == [expected]


@pytest.mark.parametrize("dropped", [False, True])
def test_a_function_of_a_library_is_named_as_what_no_restored_server_has(tmp_path: Path, dropped: bool) -> None:
    """MariaDB says that it ran out of memory: it was, to our mind, of the host that nothing was learned from."""
    library = next(line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines() if "/libm.so" in line)
    with tempfile.TemporaryDirectory(prefix="bk-plugins-") as folder:
        shutil.copy(library, Path(folder) / "libm.so")
        loading = (f"--plugin-dir={folder}", "--allow-suspicious-udfs")
        with mariadb("--binlog-format=ROW", *loading) as source, source.session() as root:
            made, gone = "CREATE FUNCTION fdim RETURNS REAL SONAME 'libm.so'", "DROP FUNCTION fdim"
            if dropped:
                root.execute(made)
            witness, end = witnessed(source, root, tmp_path / "image", gone if dropped else made), place(root)
            with pytest.raises(VerificationError, match="needs a function that the restored server does not") as told:
                applied(witness, tmp_path / "to", end)
    assert "a backup that was taken after this statement" in told.value.hint
