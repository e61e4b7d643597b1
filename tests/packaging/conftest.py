"""What the tests of the packages share: the packages, made once."""

from pathlib import Path

import pytest

from tests.packaging.roots import LONG, ROOT, output


@pytest.fixture(scope="session")
def packages() -> dict[str, Path]:
    """As `make packages` makes them where the umask is strict, by their kind."""
    # Below another make, as in `make packaging-tests`, it would print which directory it enters and leaves.
    made = output("sh", "-c", "umask 077 && exec make --no-print-directory packages", timeout=LONG)
    printed = made.splitlines()[-2:]
    found = {Path(name).suffix: ROOT / name for name in printed}
    assert set(found) == {".deb", ".rpm"}, printed
    return found
