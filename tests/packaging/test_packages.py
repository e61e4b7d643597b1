"""The packages in roots of their own: what they need comes with them, they work, and they go without a trace.

The Debian package is installed by apt into each Debian that it is for; neither has a Python. Debian's archive has no
system that uses rpm: the rpm is installed by rpm into a Debian with what its dependencies stand for there. Needs root,
for chroot, and Debian's archive.
"""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from backupd import __version__
from tests.contract.certificates import certificate
from tests.packaging.roots import RELEASES, ROOT, Root, output, root_of

OLDEST_GLIBC = (2, 36)  # Debian 12's; RHEL 10 has 2.39


@pytest.fixture(scope="module", params=RELEASES)
def debian(request: pytest.FixtureRequest, packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Root:
    """A Debian with this package and what it asks for, installed by apt."""
    install = 'chroot "$1" apt-get install --yes --no-install-recommends /tmp/backupd.deb'
    steps = (f"upload {packages['.deb']} /tmp/backupd.deb", install)
    hooks = [f"--customize-hook={step}" for step in steps]
    return root_of(request.param, tmp_path_factory.mktemp("debian"), *hooks)


@pytest.fixture(scope="module")
def by_rpm(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Root:
    """A Debian into which rpm has installed the package."""
    root = root_of(RELEASES[-1], tmp_path_factory.mktemp("rpm"), "--include=lvm2,passwd,tzdata")
    rpm(root, "--install", "--nodeps", packages[".rpm"])
    return root


def rpm(root: Root, *arguments: str | Path) -> str:
    """With the root's own processes to look at, as on a host that runs."""
    inside = 'mount -t proc proc "$0/proc" && exec rpm --root="$0" "$@"'
    isolated = ("unshare", "--mount", "--pid", "--fork", "--kill-child")
    return output(*isolated, "sh", "-c", inside, root.folder, *arguments, timeout=300)


def test_the_program_is_where_people_look_for_it_and_works(debian: Root) -> None:
    assert debian.run("backupd", "version") == f"backupd {__version__}\n"
    assert "Usage: " in debian.run("backupd", "--help")
    debian.run("backupd", "config", "init")
    assert "/etc/backupd/backupd.toml" in debian.run("backupd", "config", "check")
    assert "nightly" in debian.run("backupd", "config", "show")


def test_it_brings_its_python(debian: Root) -> None:
    assert not list((debian.folder / "usr/bin").glob("python*"))
    where = "import sys, ssl, sqlite3; print(sys.base_prefix, ssl.__file__, sqlite3.sqlite_version)"
    prefix, loaded, _ = debian.run("/opt/backupd/current/bin/python", "-c", where).split()
    assert re.fullmatch(rf"/opt/backupd/versions/{re.escape(__version__)}\.\w{{6}}/python", prefix)
    assert loaded.startswith(f"{prefix}/lib/")


@pytest.mark.parametrize(
    "unit",
    [
        "backupd.service",
        "backupd-binlog@.service",
        "backupd-prove.service",
        "backupd-prove.timer",
        "backupd-recover.service",
        "backupd-run@.service",
        "backupd-run@.service.d/sandbox.conf",
        "backupd-run@.timer",
        "backupd-run-.service.d/sandbox.conf",
    ],
)
def test_the_units_are_where_systemd_looks_for_them(debian: Root, unit: str) -> None:
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
def test_what_goes_with_a_program_is_where_the_system_looks_for_it(debian: Root, path: str) -> None:
    listed = debian.dpkg("--listfiles", "backupd").splitlines()
    assert f"/usr/share/{path}" in listed


def test_a_catalogue_is_made_by_the_migrations_that_came_along(debian: Root) -> None:
    debian.run("backupd", "history")
    assert (debian.folder / "var/lib/backupd/catalogue.sqlite").exists()


def test_the_daemon_starts_shows_its_page_and_ends_when_it_is_told_to(debian: Root) -> None:
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
        /opt/backupd/current/bin/python -c '
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


def test_every_package_that_it_brings_can_be_loaded(debian: Root) -> None:
    """Compiled ones are for one version of Python, and find what they need of the system."""
    names = "apscheduler asyncssh boto3 cryptography fastapi jinja2 prometheus_client pyrage rich sqlalchemy uvicorn"
    imports = "; ".join(f"import {name}" for name in names.split())
    debian.run("/opt/backupd/current/bin/python", "-c", imports)


def test_targets_of_every_kind_can_be_used(debian: Root) -> None:
    imports = "import backupd.targets.azure, backupd.targets.gcs, backupd.targets.s3, backupd.targets.sftp"
    debian.run("/opt/backupd/current/bin/python", "-c", imports)


def test_everybody_may_read_what_is_no_secret(packages: dict[str, Path]) -> None:
    """Among others the process of the pages, which is another user."""
    listed = output("dpkg-deb", "--contents", packages[".deb"], timeout=300).splitlines()
    modes = {line.split()[5].removeprefix("./"): line.split()[0] for line in listed if not line.startswith("l")}
    assert {path for path, mode in modes.items() if mode[7] != "r"} == {"etc/backupd/", "var/lib/backupd/"}


LIBRARY_UPGRADED = """
set -e
cd "$0"
mount -t proc proc proc
# needrestart looks at systemd's own hierarchy where the kernel has one, as beneath an older init
if grep -q :name=systemd: proc/self/cgroup; then
    mount -t cgroup -o none,name=systemd none mnt
else
    mount -t cgroup2 none mnt
fi
mount -t tmpfs none run && mkdir -p run/systemd/system
trap 'kill $(cat mnt/*.service/cgroup.procs); until rmdir mnt/*.service 2>/dev/null; do sleep 0.1; done' EXIT
cp usr/bin/sleep usr/bin/old
for unit in "$@"; do
    mkdir "mnt/$unit"
    chroot . old infinity & echo $! >"mnt/$unit/cgroup.procs"
done
rm usr/bin/old
chroot . needrestart -r a >&2
"""


def test_needrestart_restarts_no_run_in_its_middle(packages: dict[str, Path], tmp_path: Path) -> None:
    """As unattended upgrades have it look for programs that use what was replaced; systemctl notes what it is asked."""
    root = root_of(RELEASES[-1], tmp_path / "root", "--include=needrestart")
    output("dpkg-deb", "--extract", packages[".deb"], root.folder, timeout=300)
    systemctl = root.folder / "usr/bin/systemctl"
    systemctl.write_text("#!/bin/sh\n[ $1 != restart ] || echo $* >>/tmp/asked\n")
    systemctl.chmod(0o755)
    runs = ["backupd-run-r1.service", "backupd-run@nightly.service", "backupd-prove.service", "backupd-recover.service"]
    isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    output(*isolated, "sh", "-c", LIBRARY_UPGRADED, root.folder, "backupd.service", *runs, timeout=300)
    assert (root.folder / "tmp/asked").read_text() == "restart backupd.service\n"


UPGRADED = ["daemon-reload", "try-restart backupd.service", "try-restart backupd-binlog@*.service"]


@pytest.mark.parametrize(
    ("called", "asked"),
    [
        (["configure", ""], ["daemon-reload"]),
        (["configure", "0.0.9"], UPGRADED),
        (["1"], ["daemon-reload"]),  # as rpm calls it
        (["2"], UPGRADED),
    ],
)
def test_an_upgrade_starts_a_daemon_that_runs_anew_and_an_installation_starts_none(
    called: list[str], asked: list[str], tmp_path: Path
) -> None:
    said, systemctl = tmp_path / "said", tmp_path / "systemctl"
    systemctl.write_text(f'#!/bin/sh\necho "$*" >>{said}\n[ "$1" = daemon-reload ]\n')  # and the start may fail
    systemctl.chmod(0o755)
    (tmp_path / "getent").symlink_to("/bin/true")  # the account is there: this machine gets none
    placed = "mount -t tmpfs none /opt && mkdir -p /opt/backupd/package && cd /opt/backupd/package"
    files = "echo 1 >VERSION && echo home = >pyvenv.cfg && echo ./pyvenv.cfg >FILES"
    booted = f"{placed} && {files} && mount -t tmpfs none /run && mkdir -p /run/systemd/system"
    inside = f'{booted} && PATH="{tmp_path}:$PATH" exec sh {ROOT}/.ci/package/postinst "$@"'
    output("unshare", "--mount", "sh", "-c", inside, "sh", *called)
    assert said.read_text().splitlines() == asked


def test_the_rpm_asks_for_no_newer_glibc_than_the_oldest_system_it_is_for(packages: dict[str, Path]) -> None:
    asked = output("rpm", "--query", "--package", "--requires", packages[".rpm"])
    found = re.search(r"^glibc >= (\d+)\.(\d+)$", asked, re.MULTILINE)
    assert found, asked
    assert (int(found[1]), int(found[2])) <= OLDEST_GLIBC
    assert {"lvm2", "util-linux", "shadow-utils"} <= set(asked.splitlines())
    assert "python" not in asked


HANDSHAKE = """
import socket, ssl
from threading import Thread
from backupd.notifications.connection import tls
ours, theirs = socket.socketpair()
server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
server.load_cert_chain("/tmp/chain.pem")
Thread(target=server.wrap_socket, args=(theirs,), kwargs={"server_side": True}).start()
with tls(None).wrap_socket(ours, server_hostname="localhost") as connection:
    print("trusted", connection.getpeercert()["subject"])
"""


def test_whom_rhel_trusts_is_trusted(by_rpm: Root, tmp_path: Path) -> None:
    """Its authorities are elsewhere than Debian's, where the Python that came along looks."""
    shutil.rmtree(by_rpm.folder / "usr/lib/ssl", ignore_errors=True)
    made, bundle = certificate(tmp_path), by_rpm.folder / "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"
    bundle.parent.mkdir(parents=True)
    shutil.copy(made.ca, bundle)
    shutil.copy(made.chain, by_rpm.folder / "tmp/chain.pem")
    assert by_rpm.run("/opt/backupd/current/bin/python", "-c", HANDSHAKE).startswith("trusted ")


def test_what_rpm_has_installed_works_and_goes_but_for_what_is_a_persons(by_rpm: Root) -> None:
    assert by_rpm.run("backupd", "version") == f"backupd {__version__}\n"
    assert by_rpm.run("id", "-un", "backupd-web") == "backupd-web\n"
    by_rpm.run("backupd", "config", "init")
    by_rpm.run("backupd", "history")
    before = by_rpm.files("var/lib/backupd", "etc/backupd")
    assert {"etc/backupd/backupd.toml", "var/lib/backupd/catalogue.sqlite"} <= before
    listed = {line.lstrip("/") for line in rpm(by_rpm, "--query", "--list", "backupd").splitlines()}
    assert {"usr/lib/systemd/system/backupd.service", "usr/share/zsh/site-functions/_backupd"} <= listed
    assert by_rpm.files("opt/backupd/package") - listed == set()
    rpm(by_rpm, "--erase", "--nodeps", "backupd")
    assert by_rpm.files("opt") == set()
    assert by_rpm.files("var/lib/backupd", "etc/backupd") == before


def test_nothing_in_it_remembers_the_machine_that_made_it(debian: Root) -> None:
    texts = [
        path
        for path in (debian.folder / "opt/backupd/package").glob("bin/*")
        if path.is_file() and not path.is_symlink()
    ]
    texts.append(debian.folder / "opt/backupd/package/pyvenv.cfg")
    infos = (debian.folder / "opt/backupd/package").glob("lib/python*/site-packages/backupd-*.dist-info/**/*")
    texts += [path for path in infos if path.is_file()]
    assert len(texts) > 5
    assert [path for path in texts if str(ROOT) in path.read_text(errors="replace")] == []


def test_using_it_adds_nothing_to_its_folder(debian: Root) -> None:
    before = debian.files("opt/backupd")
    debian.run("backupd", "config", "check")
    assert debian.files("opt/backupd") - before == set()


def test_removal_leaves_the_catalogue_and_the_configuration(debian: Root) -> None:
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
        mount -t tmpfs none /run && mount -t tmpfs none /var/log && mount -t tmpfs none /opt
        mkdir -p /run/precious {at} /run/backupd/lock /var/log/backupd
        touch /run/precious/row /run/backupd/lock/x
        mount --bind /run/precious {at}
        sh .ci/package/postrm purge
        ls /run/precious
        [ ! -e /var/log/backupd ]
        umount {at}
        sh .ci/package/postrm purge
        [ ! -e /run/backupd ]
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "row\n"), done.stderr
    assert "is left as it is, for something is mounted there" in done.stderr


def test_purge_takes_no_snapshot_from_under_a_run() -> None:
    """Its mount is seen by the run alone; who removes the folder under it would end it."""
    script = """
        set -e
        mount -t tmpfs none /run && mount -t tmpfs none /var/log && mount -t tmpfs none /opt
        mkdir -p /run/backupd/mnt/r1 && mkfifo /run/begun /run/purged
        unshare --mount sh -c '
            mount -t tmpfs none /run/backupd/mnt/r1 && touch /run/backupd/mnt/r1/row
            echo >/run/begun; read -r _ </run/purged; ls /run/backupd/mnt/r1' &
        read -r _ </run/begun
        sh .ci/package/postrm purge
        echo >/run/purged
        wait
        sh .ci/package/postrm purge
        [ ! -e /run/backupd ]
    """
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "row\n"), done.stderr


@pytest.mark.parametrize("word", ["remove", "0"])
def test_removal_ends_and_disables_every_instance_of_a_template(word: str, tmp_path: Path) -> None:
    root, said, systemctl = tmp_path / "root", tmp_path / "said", tmp_path / "systemctl"
    units = root / "usr/lib/systemd/system"
    units.mkdir(parents=True)
    for path in (ROOT / "configs/systemd").glob("*.[st]*"):
        if path.is_file():
            (units / path.name).write_text(path.read_text())
    real = f"/usr/bin/systemctl --root={root}"
    output("sh", "-c", f"{real} enable backupd-run@nightly.timer backupd-binlog@nightly.service 2>&1")
    systemctl.write_text(f"""#!/bin/sh
echo "$*" >>{said}
case "$1" in
    disable) shift; [ "$1" != --now ] || shift; exec {real} disable "$@" ;;
    list-unit-files) exec {real} "$@" ;;
esac
""")
    systemctl.chmod(0o755)
    inside = f'mount -t tmpfs none /run && mkdir -p /run/systemd/system && PATH="{tmp_path}:$PATH"'
    output("unshare", "--mount", "sh", "-c", f'{inside} exec sh {ROOT}/.ci/package/prerm "$1"', "sh", word)
    assert [path.name for path in (root / "etc").rglob("*") if path.is_symlink()] == []
    assert "stop backupd-run@*.timer backupd-binlog@*.service" in said.read_text().splitlines()
