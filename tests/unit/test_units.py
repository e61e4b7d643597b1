"""The shipped units agree with the program that they start. What they do under systemd is tried in the lab."""

import shlex
from pathlib import Path

import pytest
import typer

from backupd.cli.main import app
from backupd.config import Configuration
from backupd.host.launching import unit_argv
from backupd.vocabulary.errors import ExitStatus

UNITS = Path(__file__).parents[2] / "configs" / "systemd"
FILES = sorted(path for path in UNITS.rglob("*") if path.is_file())
FOLDERS = {
    "RuntimeDirectory": Configuration().paths.run,
    "StateDirectory": Configuration().catalogue.path.parent,
    "LogsDirectory": Configuration().paths.log,
}
RUN = "backupd-run@.service.d/sandbox.conf"
WITHOUT_VOLUMES = ["backupd-prove.service", "backupd-binlog@.service"]
WITH_FOLDERS = ["backupd.service", *WITHOUT_VOLUMES, RUN]
ROOTS = {"RuntimeDirectory": "/run", "StateDirectory": "/var/lib", "LogsDirectory": "/var/log"}


def settings(file: Path) -> list[tuple[str, str]]:
    """Names and values, in their order: a name may come twice, which is why `configparser` cannot read them."""
    lines = (line for line in file.read_text().splitlines() if "=" in line and line[0] not in "#;[")
    return [(name, value) for name, _, value in (line.partition("=") for line in lines)]


def programs() -> list[tuple[str, list[str]]]:
    """Every command line of ours in them."""
    found = []
    for file in FILES:
        for name, value in settings(file):
            words = shlex.split(value.replace("'", " ").replace("(", " ")) if name.startswith("Exec") else []
            starts = [number for number, word in enumerate(words) if word.lstrip("-+").endswith("/backupd")]
            found += [(f"{file.relative_to(UNITS)} {name}", words[number:]) for number in starts]
    return found


@pytest.mark.parametrize(("where", "words"), programs(), ids=str)
def test_a_unit_starts_a_command_that_there_is(where: str, words: list[str]) -> None:
    assert words[0].lstrip("-+") == "/usr/bin/backupd"
    assert words[1] in typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_the_timer_and_the_daemon_and_the_boot_are_all_provided_for() -> None:
    commands = {words[1] for _, words in programs()}
    assert commands == {"serve", "config", "run", "recover", "prove", "binlog"}


def test_a_proof_host_whose_server_is_killed_for_memory_lives_to_tell_it() -> None:
    """By default systemd then stops the whole unit, and who is asked to stop tells nobody."""
    assert ("OOMPolicy", "continue") in settings(UNITS / "backupd-prove.service")


def test_what_the_daemon_starts_has_the_sandbox_of_the_template() -> None:
    (unit,) = (word.removeprefix("--unit=") for word in unit_argv("ID", "MARK=1", ["backupd"]) if "--unit=" in word)
    transient, template = (
        UNITS / f"{name}.service.d" / "sandbox.conf" for name in (unit.removesuffix("ID"), "backupd-run@")
    )
    assert transient.read_text() == template.read_text()


@pytest.mark.parametrize("name", FOLDERS)
@pytest.mark.parametrize("file", WITH_FOLDERS)
def test_a_unit_makes_the_folders_that_the_configuration_has_by_default(file: str, name: str) -> None:
    made = dict(settings(UNITS / file))[name]
    assert Path(ROOTS[name]) / made == FOLDERS[name]


@pytest.mark.parametrize("file", WITHOUT_VOLUMES)
def test_the_sandbox_of_what_takes_no_snapshot_is_that_of_a_run_without_volumes(file: str) -> None:
    ours, run = (settings(UNITS / name) for name in (file, RUN))
    words = {word for name, value in ours if name == "CapabilityBoundingSet" for word in value.split()}
    allowed = {word for name, value in run if name == "CapabilityBoundingSet" for word in value.split()}
    assert allowed - words == {"CAP_IPC_LOCK", "CAP_MKNOD", "CAP_SYS_RESOURCE"}
    of_lvm = {"Wants", "After", "OnFailure", "CapabilityBoundingSet", "DeviceAllow", "ReadWritePaths"}
    assert [one for one in run if one[0] not in of_lvm and one not in ours] == []


@pytest.mark.parametrize("file", WITH_FOLDERS)
def test_nobody_else_may_enter_the_folder_with_the_locks(file: str) -> None:
    assert dict(settings(UNITS / file))["RuntimeDirectoryMode"] == "0700"


def test_an_archive_that_ends_is_started_again_for_ever_and_sigterm_is_no_failure() -> None:
    unit = dict(settings(UNITS / "backupd-binlog@.service"))
    assert (unit["Restart"], unit["StartLimitIntervalSec"]) == ("always", "0")
    assert unit["SuccessExitStatus"].split() == [str(int(ExitStatus.TERMINATED)), str(int(ExitStatus.CANCELLED))]


def test_a_run_waits_for_what_dead_runs_held_and_not_for_their_copies_to_be_read_back() -> None:
    """systemd waits for a oneshot until its process ends (systemd.service(5)): `recover` reads back for hours."""
    run, recover = settings(UNITS / RUN), dict(settings(UNITS / "backupd-recover.service"))
    assert ("After", "backupd-recover.service") in run
    assert (recover["Type"], recover["TimeoutStartSec"]) == ("notify", "infinity")


def test_the_daemon_goes_by_the_name_that_the_machine_has_now() -> None:
    """`ProtectHostname=` keeps the name from before cloud-init or DHCP gave one for as long as a service is up."""
    assert "ProtectHostname" not in dict(settings(UNITS / "backupd.service"))


@pytest.mark.parametrize("file", ["backupd.service", "backupd-run@.service", "backupd-binlog@.service"])
def test_at_boot_a_server_by_whatever_name_and_a_target_of_the_network_come_first(file: str) -> None:
    after = {word for name, value in settings(UNITS / file) if name == "After" for word in value.split()}
    assert {"remote-fs.target", "mariadb.service", "mysql.service", "mysqld.service"} <= after
