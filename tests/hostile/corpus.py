"""The corpus: every attack there is, the same ones for the same seed."""

import random
from collections import Counter

from tests.hostile import of_archives, of_manifests, of_objects, of_storage
from tests.hostile.attacks import Attack

SEED = 14


def corpus(seed: int = SEED) -> list[Attack]:
    """In the order in which they are made; no two of a name."""
    chance = random.Random(seed)
    found = [attack for kind in (of_manifests, of_archives, of_objects, of_storage) for attack in kind.attacks(chance)]
    twice = [name for name, count in Counter(attack.name for attack in found).items() if count > 1]
    assert not twice, twice
    return found
