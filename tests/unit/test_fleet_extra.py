"""What `pip install '.[fleet]'` brings is imported by the engine, and by nothing else."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

EVERYTHING = """
import importlib, pkgutil, sys
import backupd
for missing in ("dbos", "psycopg"):
    sys.modules[missing] = None  # as where they are not installed
for module in pkgutil.walk_packages(backupd.__path__, "backupd."):
    if module.name not in ("backupd.__main__", "backupd.fleet.dbos_engine"):
        importlib.import_module(module.name)
"""


@pytest.mark.thorough
def test_every_module_but_the_engine_is_imported_without_the_packages_of_the_fleet() -> None:
    ended = subprocess.run([sys.executable, "-c", EVERYTHING], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
