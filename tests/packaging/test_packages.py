"""The Debian package in a Debian of its own: what it needs comes with it, it works, and it goes without a trace.

Needs root, for chroot, and Debian's archive, for the root that it is installed into.
"""

import platform
import subprocess
from pathlib import Path

import pytest

from backupd import __version__

ROOT = Path(__file__).resolve().parents[2]
LONG = 900  # seconds


def output(*argv: str | Path, timeout: int = 60) -> str:
    done = subprocess.run(
        [str(part) for part in argv], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}\n{done.stderr}"
    return done.stdout


class Debian:
    """A small Debian in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *argv: str) -> str:
        """A command in it, with processes of its own that end with it."""
        root = self.folder
        inside = f'mount -t proc proc "{root}/proc" && exec chroot "{root}" env -i PATH=/usr/sbin:/usr/bin "$@"'
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return output(*isolated, "sh", "-c", inside, "sh", *argv, timeout=300)

    def dpkg(self, *arguments: str) -> str:
        return self.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", *arguments)

    def files(self, *below: str) -> set[str]:
        """Whatever there is below these folders."""
        return {str(path.relative_to(self.folder)) for place in below for path in (self.folder / place).rglob("*")}


@pytest.fixture(scope="module")
def package() -> Path:
    """As `make deb` makes it."""
    output("make", "wheel", timeout=LONG)
    return ROOT / output(".ci/make-deb", timeout=LONG).splitlines()[-1]


@pytest.fixture(scope="module")
def debian(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Debian:
    """The Debian that this machine has, with this package and what it asks for, installed by apt."""
    folder = tmp_path_factory.mktemp("debian")
    folder.chmod(0o755)
    install = 'chroot "$1" apt-get install --yes --no-install-recommends /tmp/backupd.deb'
    hooks = [f"--customize-hook={step}" for step in (f"upload {package} /tmp/backupd.deb", install)]
    release = platform.freedesktop_os_release()["VERSION_CODENAME"]
    # An archive may be a frozen one, whose Release file has expired.
    options = ["--mode=root", "--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"']
    output("mmdebstrap", "--quiet", *options, *hooks, release, folder, timeout=LONG)
    return Debian(folder)


def test_the_program_is_where_people_look_for_it_and_works(debian: Debian) -> None:
    assert debian.run("backupd", "version") == f"backupd {__version__}\n"
    assert "Usage: " in debian.run("backupd", "--help")
    debian.run("backupd", "config", "init")
    assert "/etc/backupd/backupd.toml" in debian.run("backupd", "config", "check")
    assert "nightly" in debian.run("backupd", "config", "show")


@pytest.mark.parametrize(
    "unit",
    [
        "backupd.service",
        "backupd-recover.service",
        "backupd-run@.service",
        "backupd-run@.service.d/sandbox.conf",
        "backupd-run@.timer",
        "backupd-run-.service.d/sandbox.conf",
    ],
)
def test_the_units_are_where_systemd_looks_for_them(debian: Debian, unit: str) -> None:
    assert f"/usr/lib/systemd/system/{unit}" in debian.dpkg("--listfiles", "backupd").splitlines()


@pytest.mark.parametrize(
    "path",
    [
        "man/man1/backupd.1.gz",
        "bash-completion/completions/backupd",
        "zsh/vendor-completions/_backupd",
        "fish/vendor_completions.d/backupd.fish",
        "doc/backupd/examples/backupd.toml",
    ],
)
def test_what_goes_with_a_program_is_where_the_system_looks_for_it(debian: Debian, path: str) -> None:
    listed = debian.dpkg("--listfiles", "backupd").splitlines()
    assert f"/usr/share/{path}" in listed


def test_a_catalogue_is_made_by_the_migrations_that_came_along(debian: Debian) -> None:
    debian.run("backupd", "history")
    assert (debian.folder / "var/lib/backupd/catalogue.sqlite").exists()


def test_the_daemon_starts_shows_its_page_and_ends_when_it_is_told_to(debian: Debian) -> None:
    (debian.folder / "tmp/backupd.toml").write_text(
        (debian.folder / "usr/share/doc/backupd/examples/backupd.toml")
        .read_text()
        .replace("#port = 9476", "port = 0")
        .replace('# token_file = "/etc/backupd/token"', 'token_file = "/tmp/token"')
    )
    program = """
        umask 077
        echo open-sesame >/tmp/token
        backupd --config /tmp/backupd.toml serve 2>/tmp/said & daemon=$!
        until url=$(sed -n 's/^pages and metrics: //p' /tmp/said) && [ -n "$url" ]; do
            kill -0 $daemon || { cat /tmp/said; exit 1; }
            sleep 0.1
        done
        python3 -c '
import sys
from urllib.request import Request, urlopen
print(urlopen(Request(sys.argv[1], headers={"Authorization": "Bearer open-sesame"})).read().decode())
' "$url"
        read -r pages rest </proc/$daemon/task/$daemon/children
        id -un "$(sed -n 's/^Uid:[[:space:]]*\\([0-9]*\\).*/\\1/p' "/proc/$pages/status")"
        kill $daemon
        wait $daemon
    """
    said = debian.run("timeout", "60", "sh", "-c", program)
    assert "nightly" in said
    assert said.splitlines()[-1] == "backupd-web"


def test_every_package_that_it_brings_can_be_loaded(debian: Debian) -> None:
    """Compiled ones are for one version of Python, and find what they need of the system."""
    names = "apscheduler asyncssh boto3 cryptography fastapi jinja2 prometheus_client pyrage rich sqlalchemy uvicorn"
    imports = "; ".join(f"import {name}" for name in names.split())
    debian.run("/opt/backupd/bin/python", "-c", imports)


@pytest.mark.parametrize(
    ("called", "asked"),
    [
        (["configure", ""], ["daemon-reload"]),
        (["configure", "0.0.9"], ["daemon-reload", "try-restart backupd.service"]),
    ],
)
def test_an_upgrade_starts_a_daemon_that_runs_anew_and_an_installation_starts_none(
    called: list[str], asked: list[str], tmp_path: Path
) -> None:
    said, systemctl = tmp_path / "said", tmp_path / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$*" >>{said}\n[ "$1" = daemon-reload ]\n')  # and the start may fail
    systemctl.chmod(0o755)
    (tmp_path / "getent").symlink_to("/bin/true")  # the account is there: this machine gets none
    booted = "mount -t tmpfs none /run && mkdir -p /run/systemd/system"
    inside = f'{booted} && PATH="{tmp_path}:$PATH" exec sh .ci/deb/postinst "$@"'
    output("unshare", "--mount", "sh", "-c", inside, "sh", *called)
    assert said.read_text().splitlines() == asked


def test_nothing_in_it_remembers_the_machine_that_made_it(debian: Debian) -> None:
    texts = [path for path in (debian.folder / "opt/backupd").glob("bin/*") if path.is_file() and not path.is_symlink()]
    texts.append(debian.folder / "opt/backupd/pyvenv.cfg")
    texts += (debian.folder / "opt/backupd").glob("lib/python*/site-packages/backupd-*.dist-info/*")
    assert len(texts) > 5
    assert [path for path in texts if str(ROOT) in path.read_text(errors="replace")] == []


def test_using_it_adds_nothing_to_its_folder(debian: Debian) -> None:
    listed = {line.lstrip("/") for line in debian.dpkg("--listfiles", "backupd").splitlines()}
    debian.run("backupd", "config", "check")
    assert debian.files("opt/backupd") - listed == set()


def test_removal_leaves_the_catalogue_and_the_configuration(debian: Debian) -> None:
    assert debian.files("var/lib/backupd", "etc/backupd")
    before = debian.files("var/lib/backupd", "etc/backupd")
    (debian.folder / "var/log/backupd").mkdir()
    debian.dpkg("--remove", "backupd")
    assert debian.files("var/lib/backupd", "etc/backupd") == before
    assert debian.files("opt", "usr/share/doc/backupd") == set()
    assert not (debian.folder / "usr/bin/backupd").is_symlink()
    debian.dpkg("--purge", "backupd")
    assert debian.files("var/lib/backupd", "etc/backupd") == before
    assert not (debian.folder / "var/log/backupd").exists()


@pytest.mark.parametrize("at", ["/run/backupd/mnt/r1", "/run/backupd"])
def test_purge_removes_nothing_of_what_is_mounted(at: str) -> None:
    """A snapshot that nobody has given back, a volume half restored; here it is a folder of the same device."""
    script = f"""
        set -e
        mount -t tmpfs none /run && mount -t tmpfs none /var/log
        mkdir -p /run/precious {at} /run/backupd/lock /var/log/backupd
        touch /run/precious/row /run/backupd/lock/x
        mount --bind /run/precious {at}
        sh .ci/deb/postrm purge
        ls /run/precious
        [ ! -e /var/log/backupd ]
        umount {at}
        sh .ci/deb/postrm purge
        [ ! -e /run/backupd ]
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "row\n"), done.stderr
    assert "is left as it is, for something is mounted there" in done.stderr
