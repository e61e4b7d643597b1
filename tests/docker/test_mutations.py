"""Ten thousand mutations of stored backups, of which `tests/story/test_mutations.py` has the first thousand.

They need no container, but ten seconds of a processor, which `make check` has not.
"""

from pathlib import Path

import pytest

from tests.mutations import require_noticed, stored_backup

MUTATIONS = 10_000


@pytest.mark.parametrize("encrypted", [False, True], ids=["readable", "encrypted"])
def test_every_mutation_is_noticed_without_a_key(tmp_path: Path, encrypted: bool) -> None:
    require_noticed(stored_backup(tmp_path, encrypted=encrypted), range(MUTATIONS // 2))
