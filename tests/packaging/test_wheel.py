"""The wheel has everything that is no module as well: migrations, configurations, templates, pictures, styles."""

import subprocess
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
PLACES = {"backupd/": "backupd/", "migrations/": "backupd/_migrations/", "configs/": "backupd/_configs/"}


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of the files in the wheel that is made of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    uv, python = ROOT / ".venv/bin/uv", ROOT / ".venv/bin/python"
    argv = [uv, "build", "--quiet", "--wheel", "--no-build-isolation", "--python", python, "--out-dir", folder, ROOT]
    subprocess.run([str(part) for part in argv], check=True, timeout=120)
    (wheel,) = folder.glob("backupd-*.whl")
    return set(ZipFile(wheel).namelist())


@pytest.mark.parametrize("place", PLACES)
def test_every_file_of_ours_is_in_the_wheel(shipped: set[str], place: str) -> None:
    listed = subprocess.run(
        ["git", "ls-files", place], cwd=ROOT, capture_output=True, text=True, check=True, timeout=30
    )
    wanted = {PLACES[place] + name.removeprefix(place) for name in listed.stdout.splitlines()}
    assert wanted
    assert wanted - shipped == set()


def test_nothing_of_this_checkout_but_the_program_is_in_the_wheel(shipped: set[str]) -> None:
    assert {name.partition("/")[0] for name in shipped if ".dist-info/" not in name} == {"backupd"}
