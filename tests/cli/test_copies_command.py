"""`run` and `show` of a job with several targets: what a person sees of each copy, and of what holds the copying up."""

from pathlib import Path

import pytest

from backupd.vocabulary.errors import ExitStatus, TargetError
from tests.cli.terminal import Terminal
from tests.fakes.target import MemoryTarget
from tests.story.world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A host whose job has a second target."""
    return World(tmp_path, others=[MemoryTarget(name="offsite")])


def test_show_lists_every_copy_and_the_stages_with_their_bottleneck(terminal: Terminal, world: World) -> None:
    assert terminal.run("run", "nightly", "--run-id", "r1").status == ExitStatus.OK
    shown = terminal.run("show", "r1").stdout
    assert f"on vault: {world.backups}/r1 (" in shown
    assert f"on offsite: memory:{world.name}/nightly/r1 (" in shown
    assert shown.count("read back and equal") == 2
    _, _, stages = shown.partition("\nstages of the copy\n")
    lines = stages.splitlines()[:6]
    assert [line.split()[0] for line in lines] == [
        *("read", "digest", "compress", "digest-stored", "write:vault", "write:offsite")
    ]
    assert sum(line.endswith("bottleneck") for line in lines) == 1


def test_a_target_without_a_copy_is_status_3_and_said_clearly(terminal: Terminal, world: World) -> None:
    world.others[0].fail_at_call = 5
    ended = terminal.run("run", "nightly", "--json")
    assert ended.status == ExitStatus.ATTENTION
    assert (
        "attention: target offsite has no copy of this run: target offsite failed at call 5; the backup is on vault"
        in ended.stderr
    )
    assert [backup["target"] for backup in ended.document["backups"]] == ["vault"]
    assert ended.document["backup"]["verified_at"].endswith("+00:00")


def test_json_has_the_figures_of_each_stage(terminal: Terminal) -> None:
    document = terminal.run("run", "nightly", "--json").document
    written = {stage["stage"]: stage["bytes"] for stage in document["throughput"]}
    assert written["write:vault"] == written["write:offsite"] == document["backups"][1]["bytes_stored"]
    assert {"stage", "bytes", "busy_seconds", "bytes_per_second"} == set(document["throughput"][0])


def test_a_pruning_that_fails_after_a_good_run_is_attention_and_no_more(terminal: Terminal, world: World) -> None:
    def fail(job: str | None = None) -> list[object]:
        if job is None:
            return []
        raise TargetError("the listing was denied")

    world.others[0].backups = fail  # type: ignore[method-assign,assignment]
    text = terminal.configuration.read_text().replace('targets = ["vault"]', 'targets = ["vault", "offsite"]')
    terminal.configuration.write_text(f'{text}\n[targets.offsite]\ntype = "directory"\npath = "{world.vault}"\n')
    ended = terminal.run("run", "nightly")
    assert ended.status == ExitStatus.ATTENTION
    assert "the listing was denied" in ended.stderr
    assert len(world.row(terminal.run("show", "latest", "--json").document["run_id"]).backups) == 2
