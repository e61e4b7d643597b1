"""What the tests of the packages share: the packages, made once."""

from pathlib import Path

import pytest

from tests.packaging.roots import LONG, ROOT, output


@pytest.fixture(scope="session")
def packages() -> dict[str, Path]:
    """As `make packages` makes them, by their kind."""
    printed = output("make", "packages", timeout=LONG).splitlines()[-2:]
    return {Path(name).suffix: ROOT / name for name in printed}
