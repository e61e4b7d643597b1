"""Mutations of stored backups: verification notices every one, and nothing but what was stored comes back.

The backups are what a run leaves, with frames small enough for each object to have several: one that everybody can
read, one that is encrypted. No key is needed to notice. The only harmless mutations are those of a manifest that mean
the same JSON document: blanks between its tokens, the order of its keys, another way of writing the same number.

The first thousand run here; `test_ten_thousand_mutations` has the others.
"""

import json
from pathlib import Path
from random import Random

import pytest

from backupd.operations.restore.into_folder import restore
from backupd.operations.restore.verify import verify_backup
from backupd.policy import manifest as manifests
from backupd.vocabulary.errors import BackupdError, NotAsRecorded
from backupd.vocabulary.storage import MARKER
from tests.mutations import (
    MANIFEST,
    Stored,
    add_of_tomorrow,
    files_in,
    lie,
    mutated,
    require_noticed,
    sealed,
    stored_backup,
)

RESTORES = 10  # each starts a tar
LIES = 150


@pytest.fixture(scope="module")
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stored:
    """A backup; encrypted where the parameter says so."""
    return stored_backup(tmp_path_factory.mktemp("mutations"), encrypted=request.param)


both = pytest.mark.parametrize("stored", [False, True], indirect=True, ids=["readable", "encrypted"])


@both
def test_the_backups_have_all_that_is_mutated(stored: Stored) -> None:
    manifest = manifests.from_text(stored.manifest)
    names = [each.name.removesuffix(".age") for each in manifest.objects]
    assert names == ["data-1.tar.zst", "data-2.tar.zst", "binlog.tar.zst", "options.tar.zst", "index.jsonl.zst"]
    assert all(each.encrypted == (stored.identities is not None) for each in manifest.objects)
    assert any(len(each.frames) > 1 for each in manifest.objects)
    assert len(stored.files) == 6  # the datadir's four, the binlog and its index
    assert verify_backup(stored.source(stored.objects)).whole


@both
@pytest.mark.parametrize("first", [0, 250])
def test_every_mutation_is_noticed_without_a_key(stored: Stored, first: int) -> None:
    require_noticed(stored, range(first, first + 250))


@both
def test_no_mutation_brings_anything_back_but_what_was_stored(stored: Stored, tmp_path: Path) -> None:
    """Where only the index was harmed, all is there, marked; where the option files were, a restore may succeed."""
    refused = 0
    for seed in range(RESTORES):
        to = tmp_path / str(seed)
        try:
            restore([stored.source(mutated(seed, stored.objects))], to=to, identities=stored.identities)
        except NotAsRecorded:
            (to / MARKER).unlink()
            assert files_in(to) == stored.files
        except BackupdError:
            refused += 1
            assert not to.exists()
        else:
            assert files_in(to) == stored.files
    assert 0 < refused < RESTORES


@both
def test_a_manifest_that_lies_with_a_right_digest_crashes_nothing(stored: Stored, tmp_path: Path) -> None:
    """The digest is no signature: whoever can write the target can make one. What it then says is still only data."""
    for seed in range(LIES):
        body = json.loads(stored.manifest)
        lie(Random(seed), body)
        objects = {**stored.objects, MANIFEST: sealed(body)}
        try:
            verify_backup(stored.source(objects))
            if seed % 30 == 0:
                restore([stored.source(objects)], to=tmp_path / str(seed), identities=stored.identities)
        except BackupdError:
            continue


@both
def test_what_a_later_backupd_adds_to_a_manifest_keeps_nobody_from_verifying_and_restoring(
    stored: Stored, tmp_path: Path
) -> None:
    body = json.loads(stored.manifest)
    add_of_tomorrow(body, lambda: True, lambda: [{"whatever": 1}, None])
    body["schema"]["minor"] = 7
    body["layout"] = body["run"]["snapshot"]["layout"] = "zoned"
    body["run"]["phases"]["siesta"] = 2.0
    source = stored.source({**stored.objects, MANIFEST: sealed(body)})
    assert verify_backup(source).whole
    restore([source], to=tmp_path / "to", identities=stored.identities)
    assert files_in(tmp_path / "to") == stored.files
