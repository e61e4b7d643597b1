"""An upgrade while backupd runs: what runs keeps its own code, whatever it loads late.

The packages are installed by dpkg and by rpm into a small Debian, one after the other. Needs root, for chroot.
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from backupd import __version__
from tests.packaging.roots import LONG, RELEASES, ROOT, Root, output, root_of

NEWER = "9.9.9"
WAYS = {  # to install, to install over another version, to remove
    ".deb": ('chroot "$0" dpkg --install', 'chroot "$0" dpkg --install', 'chroot "$0" dpkg --purge'),
    ".rpm": (
        'rpm --root="$0" --install --nodeps',
        'rpm --root="$0" --upgrade --nodeps --replacepkgs --oldpackage',
        'rpm --root="$0" --erase --nodeps',
    ),
}
# As /usr/bin/backupd finds it. It has loaded nothing of backupd when the upgrade begins.
PYTHON = '"$(dirname "$(chroot "$0" realpath /usr/bin/backupd)")/python"'
LATE = """
open("/tmp/gate").read()
import wave
import backupd, backupd.archive.packing, cryptography.hazmat.bindings._rust as compiled
print("loaded", backupd.__version__, backupd.__file__, compiled.__file__, wave.__file__)
"""
WHILE_IT_RUNS = f"""
    rm -f "$0/tmp/gate"
    mkfifo "$0/tmp/gate"
    chroot "$0" {PYTHON} -c '{LATE}' >"$0/tmp/said" 2>&1 & running=$!
    exec 3>"$0/tmp/gate" # opens when that process has opened it
    $THEN
    [ ! -L "$0/usr/bin/backupd" ] || echo "now $(chroot "$0" backupd version)"
    exec 3>&-
    wait $running || true # what it has said is judged
    cat "$0/tmp/said"
"""

pytestmark = pytest.mark.timeout(LONG)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    return root_of(RELEASES[-1], tmp_path_factory.mktemp("host"), "--include=lvm2,passwd,tzdata")


@pytest.fixture(scope="module")
def newer(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Packages of another version, which says so."""
    folder = tmp_path_factory.mktemp("newer")
    for name in (".ci", "configs", "CHANGELOG.md"):
        (folder / name).symlink_to(ROOT / name)
    tree = folder / "dist/package"
    tree.parent.mkdir()
    output("dpkg-deb", "--extract", packages[".deb"], tree, timeout=LONG)
    package = tree / "opt/backupd/package"
    (package / "VERSION").write_text(f"{NEWER}\n")
    (source,) = package.glob("lib/python*/site-packages/backupd/__init__.py")
    assert __version__ in source.read_text()
    source.write_text(source.read_text().replace(__version__, NEWER))
    shutil.rmtree(source.parent / "__pycache__")
    list_files(package)
    glibc = output("dpkg-deb", "--field", packages[".deb"], "Depends").split(">= ")[1].split(")")[0]
    said = {"VERSION": NEWER, "GLIBC": glibc, "ARCHITECTURE": packages[".deb"].stem.split("_")[-1]}
    for packager in ("deb", "rpm"):
        nfpm = (
            f'cd {folder} && exec "$0" package --packager {packager} --config .ci/package/nfpm.yaml --target {folder}'
        )
        environment = [f"{name}={value}" for name, value in said.items()]
        output("env", *environment, "sh", "-c", nfpm, ROOT / ".venv/bin/nfpm", timeout=LONG)
    shutil.rmtree(tree)
    return {kind: next(folder.glob(f"backupd*{kind}")) for kind in WAYS}


def as_on_a_host(root: Root, script: str) -> str:
    """What a shell outside the root says, whose processes the package's scripts see."""
    begin = 'set -e; mount -t proc proc "$0/proc"'
    isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
    return output(*isolated, "sh", "-c", f"{begin}\n{script}", root.folder, timeout=LONG)


def placed(root: Root, package: Path, kind: str) -> str:
    """Where the installer of this kind finds the package."""
    shutil.copy(package, root.folder / "tmp")
    return f"/tmp/{package.name}" if kind == ".deb" else str(package)


@pytest.mark.parametrize("kind", WAYS)
def test_what_runs_keeps_its_own_code_through_upgrades_and_removal(
    root: Root, packages: dict[str, Path], newer: dict[str, Path], kind: str
) -> None:
    install, upgrade, remove = WAYS[kind]
    old, new = placed(root, packages[kind], kind), placed(root, newer[kind], kind)
    as_on_a_host(root, f"{install} {old}")
    first = runs_from(root)
    said = as_on_a_host(root, WHILE_IT_RUNS.replace("$THEN", f"{upgrade} {new}; {upgrade} {new}"))
    assert_own(said, __version__, first)
    assert f"now backupd {NEWER}\n" in said
    assert len(versions(root)) == 3

    as_on_a_host(root, f"{upgrade} {new}")
    assert Path(first).name not in versions(root)  # nothing runs from it any more
    assert len(versions(root)) == 2

    last = runs_from(root)
    said = as_on_a_host(root, WHILE_IT_RUNS.replace("$THEN", f"{remove} backupd 2>&1"))
    assert f"backupd: {last} is left, for a process may still run from it; later: rm -r {last}\n" in said
    assert_own(said, NEWER, last)
    assert versions(root) == {Path(last).name}
    shutil.rmtree(root.folder / "opt/backupd")

    as_on_a_host(root, f"{install} {new}; {remove} backupd")
    assert root.files("opt") == set()


def test_programs_run_from_no_file_of_the_version_that_rpm_replaces(root: Root, tmp_path: Path) -> None:
    """rpm removes what only that version has after the other one's script. A newer migration would be taken for one's
    own, and a newer backupd's catalogue with it.
    """
    install, other, remove = WAYS[".rpm"]
    newer, older = (small_rpm(tmp_path / version, version) for version in ("2", "1"))
    for do, package, version in ((install, newer, "2"), (other, older, "1"), (other, newer, "2")):
        as_on_a_host(root, f"{do} {package}")
        own = (root.folder / runs_from(root).lstrip("/")).glob("only-*")
        assert [path.name for path in own] == [f"only-{version}.py"]
    as_on_a_host(root, f"{remove} backupd")


def small_rpm(folder: Path, version: str) -> Path:
    """A package of three files, one of which no other version has; its scripts are the real ones."""
    tree, made = folder / "package", folder / "small.rpm"
    tree.mkdir(parents=True)
    for name, text in (("VERSION", version), ("pyvenv.cfg", "home = x"), (f"only-{version}.py", "")):
        (tree / name).write_text(f"{text}\n")
    list_files(tree)
    scripts = {"postinstall": "postinst", "preremove": "prerm", "postremove": "postrm"}
    said = {
        **{"name": "backupd", "arch": "amd64", "version": f"{version}.0.0", "maintainer": "a test <t@localhost>"},
        "contents": [{"src": str(tree), "dst": "/opt/backupd/package", "type": "tree"}],
        "scripts": {when: str(ROOT / ".ci/package" / name) for when, name in scripts.items()},
    }
    (folder / "nfpm.yaml").write_text(json.dumps(said))
    nfpm = ROOT / ".venv/bin/nfpm"
    output(nfpm, "package", "--packager", "rpm", "--config", folder / "nfpm.yaml", "--target", made)
    return made


def list_files(tree: Path) -> None:
    """As .ci/make-packages does."""
    files = (path for path in tree.rglob("*") if path.is_symlink() or not path.is_dir())
    (tree / "FILES").write_text("".join(f"./{path.relative_to(tree)}\n" for path in sorted(files)))


def runs_from(root: Root) -> str:
    return root.run("realpath", "/opt/backupd/current").strip()


def versions(root: Root) -> set[str]:
    return {path.name for path in (root.folder / "opt/backupd/versions").iterdir()}


def assert_own(said: str, version: str, folder: str) -> None:
    """What the process has loaded late is of this version, and from this folder."""
    (loaded,) = re.findall(r"^loaded (.*)", said, re.MULTILINE)
    number, *files = loaded.split()
    assert number == version
    assert len(files) == 3
    assert [path for path in files if not path.startswith(f"{folder}/")] == []
