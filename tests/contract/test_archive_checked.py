"""What `backupd check` finds of an archive on a real MariaDB: by its account, its settings and its program."""

from dataclasses import replace
from pathlib import Path

from backupd.config import BinlogConfig, Configuration, HostConfig
from backupd.mysql.grants import grant_script
from backupd.operations.binlog import archive_preflight
from backupd.vocabulary.records import Level
from tests.contract.mariadb import PASSWORD, MariadbServer, mysql_server  # noqa: F401 - a fixture
from tests.story.daemon_world import job


def warned(server: MariadbServer, folder: Path, *, receiving: bool, server_id: int | None = None) -> set[str]:
    """What is wrong for an account that has what the script of grants gives it."""
    server.account("checker", grant_script("checker", receiving=receiving, canary=False))
    secret = folder / "password"
    secret.write_text(PASSWORD)
    secret.chmod(0o600)
    host = HostConfig(name="db1", socket=server.socket, user="checker", password_file=secret)
    nightly = replace(job("nightly"), binlog=BinlogConfig(server_id=server_id))
    found = archive_preflight.examine(Configuration(hosts={"db1": host}), nightly, "db1-0a1b2c3d")
    return {one.name for one in found if one.level is not Level.OK}


def test_the_script_for_an_archive_is_enough_and_what_is_wrong_is_told(
    mysql_server: MariadbServer,  # noqa: F811
    tmp_path: Path,
) -> None:
    assert warned(mysql_server, tmp_path, receiving=True) == set()
    assert warned(mysql_server, tmp_path, receiving=False, server_id=7) == {"binlog account", "binlog server id"}
    with mysql_server.session() as root:
        before = root.variables()
        root.execute("SET GLOBAL binlog_format = 'STATEMENT', GLOBAL expire_logs_days = 0.5")
        try:
            assert warned(mysql_server, tmp_path, receiving=True) == {"binlog format", "binlog expiry"}
        finally:
            root.execute(
                "SET GLOBAL binlog_format = %s, GLOBAL expire_logs_days = %s",
                *(before["binlog_format"], float(before["expire_logs_days"])),
            )
