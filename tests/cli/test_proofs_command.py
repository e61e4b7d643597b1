"""`backupd catalogue proofs`: what proof hosts have left beside this machine's backups."""

from datetime import UTC, datetime

import pytest

from backupd.vocabulary.errors import ExitStatus, TargetAway
from tests.cli.terminal import Terminal
from tests.story.test_proof_hosts import HOST, drilled, leave
from tests.story.world import World


@pytest.fixture
def believing(terminal: Terminal, world: World) -> Terminal:
    """A host with one backup that believes a proof host."""
    world.back_up("r1")
    with terminal.configuration.open("a") as file:
        file.write(f'\n[proofs]\nsigners = ["{HOST.public}"]\n')
    return terminal


def test_what_is_new_is_read_once_and_counts(believing: Terminal) -> None:
    drill = drilled()
    leave(believing.world, drill)
    assert believing.run("catalogue", "proofs").stdout == "1 new\n"
    assert believing.run("catalogue", "proofs", "--target", "vault").stdout == "0 new\n"
    assert believing.world.row("r1").drills == (drill,)
    (job,) = believing.run("status", "--json").document["jobs"]
    assert job["proven_at"] == drill.at.isoformat()


def test_a_target_that_is_away_is_status_8(believing: Terminal) -> None:
    leave(believing.world, drilled())

    def away() -> None:
        raise TargetAway("target vault does not answer")

    believing.world.at["target.reading"] = away
    ended = believing.run("catalogue", "proofs")
    assert (ended.status, ended.stdout) == (ExitStatus.TARGET, "0 new\n")
    assert "error: not all proofs could be read: vault: target vault does not answer" in ended.stderr


def test_where_no_proof_host_is_believed_the_hint_says_how(terminal: Terminal) -> None:
    ended = terminal.run("catalogue", "proofs")
    assert ended.status == ExitStatus.USAGE
    assert "error: no proof host is trusted" in ended.stderr
    assert "proofs.signers" in ended.stderr


def test_of_two_processes_that_read_the_same_proof_one_keeps_it(believing: Terminal) -> None:
    drill = drilled(at=datetime.now(UTC))
    with believing.world.catalogue() as one, believing.world.catalogue() as other:
        told = [catalogue.take_in_drill(drill, proof="proof-1.json", target="vault") for catalogue in (one, other)]
        assert told == [True, False]
        assert len([entry for entry in one.audit_entries() if entry.event == "drilled"]) == 1
    assert believing.world.row("r1").drills == (drill,)
