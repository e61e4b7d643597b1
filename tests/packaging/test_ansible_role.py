"""The Ansible role, on a Debian in a folder, by the playbook of the documentation.

The tests go on from one another, as the months on a host do. Instead of SSH a command is run in the folder's own
namespaces; instead of systemd there is a stand-in, which starts and ends the real daemon. Of the role's part for an
.rpm only the syntax is checked.
"""

import json
import os
import re
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from backupd import __version__
from tests.docs.places import PAGES
from tests.packaging.roots import LONG, RELEASES, ROOT, Root, output, root_of

PLAYBOOK = ROOT / ".cache/ansible/bin/ansible-playbook"
ROLES = ROOT / "configs/ansible/roles"
SECRET = "correct horse 7f3a"
MAIN = """
[service]
port = 0
[hosts.db1]
socket = "/run/mysqld/mysqld.sock"
user = "backupd"
password_file = "/etc/backupd/db1.password"
[targets.vault]
type = "directory"
path = "/srv/backups"
"""
JOB = """
[jobs.nightly]
host = "db1"
targets = ["vault"]
"""
ARCHIVED = f"{JOB}[jobs.nightly.binlog]\n"
UPGRADED = "9.9.9"

pytestmark = pytest.mark.timeout(LONG)


@dataclass(frozen=True)
class Play:
    """How a playbook ended."""

    status: int
    said: str

    @property
    def changed(self) -> int:
        return int(re.findall(r"changed=(\d+)", self.said)[-1])


@dataclass(frozen=True)
class Fleet:
    """One host, and the folder of a person with the documentation's playbook."""

    root: Root
    init: int  # the first process in the host's namespaces
    folder: Path
    package: Path

    def run(self, *argv: str) -> str:
        return output(self.folder / "ssh", " ".join(argv), timeout=LONG)

    def write(self, *, main: str = MAIN, job: str = JOB) -> None:
        (self.folder / "backupd.toml").write_text(main)
        (self.folder / "nightly.toml").write_text(job)

    def play(self, *options: str, **variables: object) -> Play:
        given = {
            "backupd_package": str(self.package),
            "backupd_companions": {".deb": ["lvm2"], ".rpm": []},
            "vault_backupd_password": SECRET,
        }
        (self.folder / "variables.json").write_text(json.dumps(given | variables))
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "LC_ALL": "C.UTF-8",
            "ANSIBLE_ROLES_PATH": str(ROLES),
            "ANSIBLE_PIPELINING": "1",
        }
        done = subprocess.run(
            [PLAYBOOK, "-i", "hosts.ini", "-e", "@variables.json", *options, "backups.yml"],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=LONG,
            check=False,
        )
        return Play(done.returncode, done.stdout + done.stderr)

    def version(self) -> str:
        return self.run("dpkg-query", "--show", "--showformat='${Version}'", "backupd")

    def daemon(self) -> str:
        """The process of the daemon, which lives."""
        return self.run("systemctl is-active backupd.service && cat /run/daemon.pid").strip()

    def archive(self) -> str:
        """The process of the unit that archives the binlog of job nightly, which lives."""
        return self.run("systemctl is-active backupd-binlog@nightly.service && cat /run/archive.pid").strip()

    def configured(self) -> dict[str, tuple[str, int]]:
        """Every file of the configuration, with its text and its mode."""
        folder = self.root.folder / "etc/backupd"
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path.relative_to(folder)): (path.read_text(), path.stat().st_mode & 0o777) for path in files}


@contextmanager
def started(root: Root) -> Iterator[int]:
    """The first process in namespaces of this root, which end with the block. It buries orphans, as a shell does."""
    mounts = f'mount -t proc proc "{root.folder}/proc" && mount -t tmpfs tmpfs "{root.folder}/run"'
    inside = f'{mounts} && mkdir -p "{root.folder}/run/systemd/system" && echo ready && cat; exit'
    unshare = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", inside]
    with subprocess.Popen(unshare, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield int(Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text())
        process.stdin.close()


def playbook() -> str:
    """That of the documentation."""
    (text,) = re.findall(r"^```yaml\n(.*?)^```", (PAGES / "ansible.md").read_text(), re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.fixture(scope="module")
def fleet(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A host that has a Python and no backupd."""
    options = ("--include=python3,python3-apt,lvm2,passwd,tzdata", "--dpkgopt=force-unsafe-io")
    root = root_of(RELEASES[-1], tmp_path_factory.mktemp("host"), *options)
    output("install", "--mode=755", ROOT / "tests/packaging/systemctl", root.folder / "usr/bin/systemctl")
    folder = tmp_path_factory.mktemp("person")
    with started(root) as init:
        enter = f'exec nsenter --target {init} --mount --pid chroot "{root.folder}"'
        (folder / "ssh").write_text(f'#!/bin/bash\n{enter} env -i HOME=/root PATH=/usr/sbin:/usr/bin sh -c "${{!#}}"\n')
        (folder / "ssh").chmod(0o755)
        connection = f"ansible_user=root ansible_ssh_executable={folder}/ssh ansible_ssh_transfer_method=piped"
        python = "ansible_python_interpreter=/usr/bin/python3"
        (folder / "hosts.ini").write_text(f"[databases]\ndb1 {connection} {python}\n")
        (folder / "backups.yml").write_text(playbook())
        yield Fleet(root, init, folder, packages[".deb"])


@pytest.fixture(scope="module")
def newer(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same package, as of another version."""
    folder = tmp_path_factory.mktemp("newer")
    output("dpkg-deb", "--raw-extract", packages[".deb"], folder / "tree", timeout=LONG)
    control = folder / "tree/DEBIAN/control"
    control.write_text(control.read_text().replace(f"Version: {__version__}\n", f"Version: {UPGRADED}\n"))
    made = folder / f"backupd_{UPGRADED}_amd64.deb"
    output("dpkg-deb", "-Znone", "--build", folder / "tree", made, timeout=LONG)
    return made


def test_the_playbook_of_the_documentation_is_one(fleet: Fleet) -> None:
    fleet.write()
    checked = fleet.play("--syntax-check")
    assert checked.status == 0, checked.said


def test_check_mode_changes_nothing_on_a_host_without_backupd(fleet: Fleet) -> None:
    fleet.write()
    checked = fleet.play("--check", "--diff")
    assert checked.status == 0, checked.said
    assert checked.changed > 0
    assert SECRET not in checked.said
    assert fleet.root.files("etc/backupd", "var/cache/backupd", "opt") == set()


def test_a_host_gets_the_package_its_configuration_its_secrets_and_the_daemon(fleet: Fleet) -> None:
    fleet.write()
    done = fleet.play("--diff", "-vvv")
    assert done.status == 0, done.said
    assert SECRET not in done.said
    assert fleet.configured() == {
        "backupd.toml": (MAIN, 0o640),
        "conf.d/nightly.toml": (JOB, 0o640),
        "db1.password": (f"{SECRET}\n", 0o600),
    }
    assert fleet.daemon()
    assert fleet.run("systemctl is-enabled backupd.service") == "enabled\n"
    assert "refused  server: cannot connect" in done.said


def test_a_second_time_nothing_changes(fleet: Fleet) -> None:
    fleet.write()
    daemon = fleet.daemon()
    again = fleet.play()
    assert (again.status, again.changed) == (0, 0), again.said
    assert fleet.daemon() == daemon


def test_a_refused_configuration_leaves_the_old_one_its_secrets_and_the_daemon(fleet: Fleet) -> None:
    before, daemon = fleet.configured(), fleet.daemon()
    fleet.write(main=MAIN.replace("vault", "cellar"))
    refused = fleet.play(vault_backupd_password="another")
    assert (refused.status, refused.changed) == (2, 0)
    assert "conf.d/nightly.toml: jobs.nightly.targets" in refused.said
    assert fleet.configured() == before
    assert fleet.daemon() == daemon
    assert fleet.root.files("tmp") == set()


def test_a_drop_in_that_somebody_else_wrote_counts(fleet: Fleet) -> None:
    before = fleet.configured()
    (fleet.root.folder / "etc/backupd/conf.d/own.toml").write_text(JOB)
    fleet.write()
    refused = fleet.play()
    assert refused.status == 2
    assert "jobs.nightly: is in conf.d/nightly.toml and in conf.d/own.toml" in refused.said
    removed = fleet.play(backupd_conf_d_absent=["own.toml"])
    assert (removed.status, removed.changed) == (0, 2), removed.said  # the file, and the daemon
    assert fleet.configured() == before


@pytest.mark.parametrize(
    "variables",
    [
        {"backupd_conf_d": {"../evil.toml": ""}},
        {"backupd_conf_d": {"ignored.txt": ""}},
        {"backupd_secrets": {"backupd.toml": SECRET}},
        {"backupd_secrets": SECRET},
        {"backupd_package": "backupd.tar"},
    ],
)
def test_a_variable_that_is_none_is_refused_without_showing_a_secret(
    fleet: Fleet, variables: dict[str, object]
) -> None:
    before = fleet.configured()
    refused = fleet.play("-vvv", **variables)
    assert refused.status == 2, refused.said
    assert SECRET not in refused.said
    assert fleet.configured() == before


def test_an_upgrade_waits_for_who_uses_backupd_and_changes_nothing_if_that_takes_too_long(
    fleet: Fleet, newer: Path
) -> None:
    fleet.write()
    gate = fleet.root.folder / "tmp/gate"
    os.mkfifo(gate)
    restore = "exec /opt/backupd/current/bin/python -c 'open(\"/tmp/gate\").read()'"
    with subprocess.Popen([fleet.folder / "ssh", restore]) as process:
        with gate.open("w"):  # opens when that process has opened it
            refused = fleet.play(backupd_package=str(newer), backupd_drain_timeout=5)
            assert process.poll() is None
        assert process.wait(timeout=60) == 0
    gate.unlink()
    assert refused.status == 2
    assert "backupd is still in use after 5 s, and was not upgraded" in refused.said
    assert fleet.version() == __version__
    assert fleet.daemon()


def test_an_upgrade_ends_the_daemon_by_draining_it_and_starts_the_new_one(fleet: Fleet, newer: Path) -> None:
    fleet.write()
    daemon = fleet.daemon()
    fleet.run("rm /run/daemon.said.before")
    upgraded = fleet.play(backupd_package=str(newer))
    assert upgraded.status == 0, upgraded.said
    assert fleet.version() == UPGRADED
    assert fleet.daemon() != daemon
    assert "draining: no new runs are started" in fleet.run("cat /run/daemon.said.before")


def test_an_older_package_is_refused_before_anything_is_stopped(fleet: Fleet) -> None:
    fleet.write()
    daemon = fleet.daemon()
    refused = fleet.play()
    assert (refused.status, refused.changed) == (2, 0)
    assert "A later version is already installed" in refused.said
    assert fleet.version() == UPGRADED
    assert fleet.daemon() == daemon


def test_an_upgrade_ends_the_archives_that_are_units_and_starts_them_again(fleet: Fleet, newer: Path) -> None:
    """They never end by themselves, and would be waited for as long as it may take."""
    fleet.run("systemctl stop backupd.service && rm /etc/systemd/system/multi-user.target.wants/backupd.service")
    fleet.run(f"dpkg --install /var/cache/backupd/{fleet.package.name} && mkdir -p /srv/backups")
    fleet.write(job=ARCHIVED)
    configured = fleet.play(backupd_service=False)
    assert configured.status == 0, configured.said
    fleet.run("systemctl start backupd-binlog@nightly.service")
    archive = fleet.archive()
    upgraded = fleet.play(backupd_package=str(newer), backupd_service=False, backupd_drain_timeout=60)
    assert upgraded.status == 0, upgraded.said
    assert fleet.version() == UPGRADED
    assert fleet.archive() != archive


def test_an_archive_that_is_a_unit_is_restarted_when_its_configuration_has_changed(fleet: Fleet, newer: Path) -> None:
    archive = fleet.archive()
    fleet.write(job=f'{ARCHIVED}spool_limit = "2GiB"\n')
    changed = fleet.play(backupd_package=str(newer), backupd_service=False)
    assert changed.status == 0, changed.said
    assert fleet.archive() != archive
