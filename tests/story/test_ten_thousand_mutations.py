"""Ten thousand mutations of stored backups, of which `test_mutations` has the first thousand.

Three thousand, unless all of what comes from a seed is tried.
"""

from pathlib import Path

import pytest

from tests.mutations import require_noticed, stored_backup
from tests.share import seeded

MUTATIONS = seeded(10_000, usual=3000)


@pytest.mark.exhaustive
@pytest.mark.parametrize("encrypted", [False, True], ids=["readable", "encrypted"])
def test_every_mutation_is_noticed_without_a_key(tmp_path: Path, encrypted: bool) -> None:
    require_noticed(stored_backup(tmp_path, encrypted=encrypted), range(MUTATIONS // 2))
