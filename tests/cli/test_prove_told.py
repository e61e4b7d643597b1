"""What a proof host finds wrong reaches people: its gravest problem, once for each `backupd prove`."""

import json
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from backupd.host.claims import Claims
from backupd.vocabulary.errors import ServerError, TargetAway
from tests.cli.terminal import Terminal
from tests.cli.test_prove_command import STREAMS, Drills, Free, backed_up, drills
from tests.contract.peers import WebPeer, web_server
from tests.story import stored
from tests.story.world import World
from tests.unit.test_remedies import require_known

__all__ = ["backed_up", "drills"]

RECIPIENT = "age1ql3z7hjy54pw3hyww5ayyfg7zqgvc7w3j2elw8zmrj2kg5sfn9aqmcac8p"
Break = Callable[[World, Drills, pytest.MonkeyPatch], object]


@pytest.fixture
def peer() -> Iterator[WebPeer]:
    """Who is told."""
    with web_server(WebPeer()) as peer:
        yield peer


@pytest.fixture
def proof_host(terminal: Terminal, peer: WebPeer) -> Terminal:
    """`backupd` there."""
    with terminal.configuration.open("a") as file:
        file.write(f'\n[notifications.all]\ntype = "webhook"\nurl = "http://127.0.0.1:{peer.port}/"\n')
    return terminal


def told(peer: WebPeer) -> list[dict[str, Any]]:
    return [json.loads(body) for _, _, body in peer.requests]


def raising(error: Exception) -> Callable[..., None]:
    def fail(*_what: object, **_how: object) -> None:
        raise error

    return fail


def no_series(_world: World, _drills: Drills, patch: pytest.MonkeyPatch) -> None:
    error = ServerError("no mariadb 10.11 server is installed here; found: none", hint="install it")
    patch.setattr("backupd.mysql.scratch.ScratchServer.require_startable", raising(error))


def no_key(world: World, _drills: Drills, _patch: pytest.MonkeyPatch) -> None:
    """The backup r1 is encrypted."""
    shutil.rmtree(world.backups / "r1")
    stored.put(world.target, STREAMS, recipients=[RECIPIENT])


def away(_world: World, _drills: Drills, patch: pytest.MonkeyPatch) -> None:
    error = TargetAway("target vault (/mnt/vault) is not there", hint="is its file system mounted?")
    patch.setattr("backupd.targets.directory.DirectoryTarget.machines", raising(error))


def damaged(_world: World, drills: Drills, _patch: pytest.MonkeyPatch) -> None:
    drills.ok = False


def undecided(_world: World, drills: Drills, _patch: pytest.MonkeyPatch) -> None:
    drills.undecided = "the server on the restored files was killed"


@pytest.mark.parametrize(
    ("wrong", "said", "status"),
    [
        (
            no_series,
            "run r2 of job nightly of machine NAME on target vault was not drilled: no mariadb 10.11 server",
            6,
        ),
        (no_key, f"run r1 is encrypted for {RECIPIENT}", 2),
        (away, "target vault: target vault (/mnt/vault) is not there", 8),
        (damaged, "the drill failed: run r2 of job nightly of machine NAME on target vault", 9),
        (undecided, "the drill was undecided: run r2 of job nightly of machine NAME on target vault", 14),
    ],
)
def test_whatever_is_missing_or_wrong_is_told_with_what_to_do(
    proof_host: Terminal,
    peer: WebPeer,
    drills: Drills,
    backed_up: World,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Break,
    said: str,
    status: int,
) -> None:
    wrong(backed_up, drills, monkeypatch)
    ended = proof_host.run("prove", "--all")
    assert ended.status == status
    (notice,) = told(peer)
    assert (notice["kind"], notice["job"]) == ("failed", "")
    assert notice["text"].startswith("backupd prove: ")
    assert said.replace("NAME", backed_up.name) in notice["text"]
    detail = notice["detail"]
    assert detail["exit status"].startswith(f"{status} (")
    assert {"another good copy", "next try", "type now"} <= detail.keys()
    for line in detail["type now"].splitlines():
        if not line.startswith("journalctl "):
            require_known(line)


def test_without_room_is_told(
    proof_host: Terminal, peer: WebPeer, backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.mysql.scratch.ScratchServer.require_startable", lambda self: "10.11.6")
    monkeypatch.setattr("backupd.operations.restore.into_folder.shutil.disk_usage", lambda _path: Free())
    assert proof_host.run("prove").status == 2
    (notice,) = told(peer)
    assert "has 10 B free, and the backup needs" in notice["text"]


def test_the_gravest_is_told_and_the_others_beside_it(
    proof_host: Terminal, peer: WebPeer, drills: Drills, backed_up: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_key(backed_up, drills, monkeypatch)
    drills.ok = False
    assert proof_host.run("prove", "--all").status == 9
    (notice,) = told(peer)
    assert notice["text"].endswith("; 2 problems in all")
    assert notice["text"].startswith("backupd prove: the drill failed: ")
    assert notice["detail"]["all problems"].count("the drill failed: run r2 ") == 1
    assert f"encrypted for {RECIPIENT}" in notice["detail"]["all problems"]


def test_no_backup_anywhere_is_told(proof_host: Terminal, peer: WebPeer) -> None:
    assert proof_host.run("prove").status == 2
    (notice,) = told(peer)
    assert notice["text"] == "backupd prove: there is no backup to prove"


def test_nobody_is_woken_when_all_is_well_nor_by_a_second_one_at_once(
    proof_host: Terminal, peer: WebPeer, drills: Drills, backed_up: World
) -> None:
    assert proof_host.run("prove").status == 0
    with Claims(backed_up.places.run).proving():
        assert proof_host.run("prove").status == 4
    assert proof_host.run("prove", "--all", "--limit", "2").status == 2  # a person's slip
    assert told(peer) == []
