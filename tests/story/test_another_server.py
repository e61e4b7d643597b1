"""A server in whose place another one answers by the time of the lock: an address that has moved, a proxy."""

from dataclasses import replace
from pathlib import Path

from backupd.vocabulary.errors import ServerError
from backupd.vocabulary.records import RunStatus
from tests.story.world import World


def test_no_other_server_is_locked_than_the_one_that_was_looked_at(world: World) -> None:
    another = replace(world.database.facts, datadir=Path("/srv/another"))
    world.at["host.prepared"] = lambda: setattr(world.database, "facts", another)
    error = world.try_to_back_up()
    assert isinstance(error, ServerError)
    assert "the server that answers is not that of" in error.message
    assert error.hint
    assert world.row().status is RunStatus.FAILED
    assert (world.host.calls["create"], world.stored(), world.left()) == (0, [], [])
