"""Whoever owns the storage gets nothing: every attack of the corpus, against the commands that come near it.

Whatever lies on the target, no file outside of the restored folder is changed or read, no program runs that was not
meant to, no other backup is taken for the recorded one, and each command ends within a minute, in 256 MiB, with a
sentence. Each attack is tried against one in eight of its commands, and in `make test-all` against all of them.
"""

import fcntl
import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.hostile.attacks import READERS, Attack, Attacker, Base, Command
from tests.hostile.corpus import corpus
from tests.hostile.ground import Site, Sound, made_once
from tests.hostile.runner import Runner, runner
from tests.share import in_turn

CORPUS = corpus()
ONE_IN = 20  # of the corpus, where not all of it is tried
STRANGERS = [  # and of what lies behind a manifest that nobody takes; what it says is parsed as an insider's is
    *(attack for attack in CORPUS if attack.name.startswith(("storage", "substitution", "cipher"))),
    *[attack for attack in CORPUS if attack.name.startswith("manifest")][::4],
    *[attack for attack in CORPUS if attack.name.startswith(("archive", "frames", "index", "server"))][::ONE_IN],
]
BY_BYTES = frozenset({Command.VERIFY, Command.RESTORE, Command.REBUILD})  # what takes no server

pytestmark = pytest.mark.timeout(500)  # each of a test's commands may take a minute

NOTHING = Attack("nothing", lambda _backup, _ground: None)


@pytest.fixture(scope="session")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Sound:
    """Made by whichever worker comes first."""
    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    with (shared / "hostile.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = shared / "hostile.pickle"
        if not kept.exists():
            kept.write_bytes(pickle.dumps(made_once(shared / "hostile")))
        found: Sound = pickle.loads(kept.read_bytes())
    return found


@pytest.fixture(scope="session")
def warm() -> Iterator[Runner]:
    with runner() as found:
        yield found


def require_nothing_got(site: Site, runner: Runner, commands: frozenset[Command]) -> None:
    """Nothing is wrong after any of these commands, of which a share is tried."""
    site.lay()
    for command in in_turn(commands, site.attack.name, one_in=12):
        site.run(runner, command)
    assert not site.faults, "\n".join(("", *site.faults))


def test_there_are_enough_of_them_and_the_same_seed_makes_the_same() -> None:
    assert len(CORPUS) >= 200
    assert [attack.name for attack in corpus(7)] == [attack.name for attack in corpus(7)]


@pytest.mark.parametrize("command", Command)
def test_a_sound_backup_passes_every_command(command: Command, sound: Sound, warm: Runner, tmp_path: Path) -> None:
    site = Site(tmp_path, sound, replace(NOTHING, base=Base.SERVER), Attacker.INSIDER)
    site.lay()
    ended = site.run(warm, command)
    assert (ended.status, site.faults) == (0, []), ended.stderr


@pytest.mark.parametrize("base", [Base.TREE, Base.SEALED])
def test_a_sound_backup_that_no_server_starts_on_passes_the_others(
    base: Base, sound: Sound, warm: Runner, tmp_path: Path
) -> None:
    site = Site(tmp_path, sound, replace(NOTHING, base=base), Attacker.INSIDER)
    site.lay()
    ended = {command: site.run(warm, command) for command in sorted(BY_BYTES)}
    assert ({command: one.status for command, one in ended.items()}, site.faults) == (dict.fromkeys(ended, 0), [])


@pytest.mark.parametrize("attack", [attack for attack in CORPUS if attack.base is not Base.SERVER][::ONE_IN], ids=str)
def test_some_attacks_by_who_took_the_backup(attack: Attack, sound: Sound, warm: Runner, tmp_path: Path) -> None:
    require_nothing_got(Site(tmp_path, sound, attack, Attacker.INSIDER), warm, attack.concerns & BY_BYTES)


@pytest.mark.exhaustive
@pytest.mark.parametrize("attack", [attack for attack in CORPUS if not attack.substitutes], ids=str)
def test_attacks_by_who_took_the_backup(attack: Attack, sound: Sound, warm: Runner, tmp_path: Path) -> None:
    """His key is known, and the catalogue recorded what he made: nothing but being bound helps."""
    concerns = attack.concerns if attack.base is Base.SERVER else attack.concerns - {Command.CLONE}
    require_nothing_got(Site(tmp_path, sound, attack, Attacker.INSIDER), warm, concerns)


@pytest.mark.exhaustive
@pytest.mark.parametrize("attack", STRANGERS, ids=str)
def test_attacks_by_a_stranger(attack: Attack, sound: Sound, warm: Runner, tmp_path: Path) -> None:
    commands = READERS | {Command.REBUILD} if attack.substitutes else BY_BYTES
    require_nothing_got(Site(tmp_path, sound, attack, Attacker.STRANGER), warm, commands)


@pytest.mark.exhaustive
@pytest.mark.parametrize("attack", [attack for attack in CORPUS if attack.substitutes], ids=str)
def test_attacks_by_who_has_a_known_key(attack: Attack, sound: Sound, warm: Runner, tmp_path: Path) -> None:
    """What he puts in the place of another's backup is signed well, and is not what was recorded."""
    require_nothing_got(Site(tmp_path, sound, attack, Attacker.FORGER), warm, attack.concerns & READERS)
