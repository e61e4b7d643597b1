"""A program that an AppArmor profile keeps out is told apart from files that are damaged."""

from pathlib import Path

import pytest

from backupd.host import apparmor
from backupd.host.apparmor import enforced_profile
from backupd.mysql.kept_out import let_in
from backupd.mysql.server_programs import ServerProgram
from backupd.vocabulary.errors import ServerError, Undecided

# As the kernel lists them: /sys/kernel/security/apparmor/profiles of an Ubuntu with MySQL.
LISTED = """\
snap.lxd.daemon (enforce)
/usr/sbin/mysqld//helper (enforce)
/usr/sbin/mysqld (enforce)
/usr/sbin/cupsd (complain)
mariadbd (unconfined)
named (kill)
"""
MYSQLD = Path("/usr/sbin/mysqld")
DENIED = """\
mysqld: Can't change dir to '/srv/new/data/' (OS errno 13 - Permission denied)
[ERROR] [MY-010119] [Server] Aborting
"""


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(apparmor, "PROFILES", tmp_path / "profiles")
    apparmor.PROFILES.write_text(LISTED)
    return apparmor.PROFILES


def ended(said: str, program: Path = MYSQLD) -> ServerError:
    """What is raised of a server that ended with that in its log."""
    started = ServerProgram(str(program))
    with pytest.raises(ServerError) as raised, let_in(started, lambda: said, [Path("/srv/new")]):
        raise ServerError("the server did not start on the restored files", hint="the backup is suspect")
    return raised.value


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize(
    ("program", "profile"),
    [
        ("/usr/sbin/mysqld", "/usr/sbin/mysqld"),
        ("/usr/sbin/named", "named"),
        ("/usr/sbin/cupsd", None),
        ("/usr/sbin/mariadbd", None),
        ("/opt/mysql/bin/mysqld", None),
    ],
)
def test_a_profile_binds_the_program_that_it_is_called_after_if_it_is_enforced(
    program: str, profile: str | None
) -> None:
    found = enforced_profile(Path(program))
    assert (found and found.name) == profile


def test_where_there_is_no_apparmor_nothing_is_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apparmor, "PROFILES", tmp_path / "securityfs" / "profiles")
    assert enforced_profile(MYSQLD) is None


@pytest.mark.usefixtures("listed")
@pytest.mark.parametrize(
    "said",
    [
        DENIED,
        "[ERROR] [MY-012592] [InnoDB] Operating system error number 13 in a file operation.",
        '[ERROR] mysqld: File "./aria_log_control" not found (Errcode: 13 "Permission denied")',
    ],
)
def test_what_a_profile_denies_the_server_says_nothing_of_the_backup(said: str) -> None:
    error = ended(said)
    assert isinstance(error, Undecided)
    assert "AppArmor's profile /usr/sbin/mysqld" in error.message
    assert "/etc/apparmor.d/local/usr.sbin.mysqld" in error.message, "a drill keeps the message alone"
    assert '"/srv/new/" r, "/srv/new/**" rwk,' in error.hint
    assert "apparmor_parser -r /etc/apparmor.d/usr.sbin.mysqld" in error.hint


def test_what_no_profile_denied_is_the_backups(listed: Path) -> None:
    assert not isinstance(ended("[ERROR] [MY-012592] [InnoDB] Table is corrupted, error 130"), Undecided)
    assert not isinstance(ended(DENIED, Path("/opt/mysql/bin/mysqld")), Undecided)
    listed.write_text(LISTED.replace("(enforce)", "(complain)"))
    assert not isinstance(ended(DENIED), Undecided)
