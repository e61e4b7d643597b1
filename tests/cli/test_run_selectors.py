"""RUN may be typed in one way for every command, and what cannot be meant is a sentence."""

from datetime import timedelta

import pytest

from backupd.catalogue.columns import InstantColumn
from backupd.catalogue.database import direct
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.records import RunDetails
from tests.cli.terminal import Terminal
from tests.docs.commands import tree
from tests.story.world import World

LOOKING = (["show"], ["log"], ["compare"], ["cancel"])
READING = (
    ["copy", "--from", "vault", "--to", "offsite"],
    ["verify"],
    ["drill"],
    ["restore", "--to", "/nowhere"],
    ["restore", "--tables", "shop.orders", "--into", "db1", "--as", "restored"],
    ["clone", "--to", "/nowhere", "--as-replica"],
)
PINNING = (["pin", "--note", "x"], ["unpin"])
BAD = (
    ("latest-good:other", "there is no backup of job other yet"),
    ("as-of=2999-01-01:other", "there is no backup of job other yet"),
    (
        "as-of=2001-01-01",
        "there is no backup that was taken by 2001-01-01 00:00:00 UTC\nhint: the oldest one is run r1",
    ),
    ("as-of=2001-01-01:nightly", "there is no backup of job nightly that was taken by 2001-01-01 00:00:00 UTC"),
    ("as-of=yesterday", "as-of=yesterday: 'yesterday' is not a time\nhint: write as-of=TIME or as-of=TIME:JOB"),
    ("as-of", "'as-of' is not a run\nhint: write it as one word: as-of=TIME"),
    ("latest:", "latest: names no job\nhint: write latest:JOB"),
)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A host with two good runs, `r1` and `r2`, and one that failed, `r3`."""
    world = World(tmp_path_factory.mktemp("ran"))
    world.back_up("r1")
    world.back_up("r2")
    world.database.refuses_lock = True
    assert world.try_to_back_up("r3") is not None
    return world


@pytest.fixture
def three_runs(terminal: Terminal, world: World, ran: World) -> Terminal:
    """The same with what those runs have left: a copy, to do with as one likes."""
    world.go_on_from(ran)
    with terminal.configuration.open("a") as file:
        file.write(f'\n[targets.offsite]\ntype = "directory"\npath = "{world.vault}"\n')
    return terminal


def with_run(words: list[str], run: str) -> list[str]:
    second = ["r1"] if words == ["compare"] else []
    return [words[0], run, *second, *words[1:]]


def shown(terminal: Terminal, wanted: str) -> str:
    return str(terminal.run("show", wanted, "--json").document["run_id"])


@pytest.mark.parametrize("words", [*LOOKING, *READING, *PINNING], ids=lambda words: words[0])
def test_what_cannot_be_meant_is_status_2_with_a_sentence(three_runs: Terminal, words: list[str]) -> None:
    for wanted, sentence in BAD:
        ended = three_runs.run(*with_run(words, wanted))
        assert (ended.status, ended.stdout) == (ExitStatus.USAGE, ""), wanted
        assert sentence in ended.stderr.replace(" on target vault", "")  # where the command names one


@pytest.mark.parametrize("words", [*LOOKING, *READING, *PINNING], ids=lambda words: words[0])
def test_with_several_jobs_the_job_is_asked_for(three_runs: Terminal, world: World, words: list[str]) -> None:
    with world.catalogue() as catalogue, catalogue.open_run("weekly", "db1", run_id="r4") as run:
        run.complete(())
    for said in ("latest", "latest-good", "as-of=2999-01-01"):
        ended = three_runs.run(*with_run(words, said))
        assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
        assert f"there are backups of several jobs: `{said}` needs a job" in ended.stderr
        assert f"hint: say {said}:nightly or {said}:weekly" in ended.stderr


def test_latest_of_a_failed_night_is_what_failed_to_look_at_and_the_good_one_to_read_and_to_pin(
    three_runs: Terminal, world: World
) -> None:
    for job in ("", ":nightly"):
        assert shown(three_runs, f"latest{job}") == "r3"
        assert shown(three_runs, f"latest-good{job}") == shown(three_runs, f"as-of=2999-01-01{job}") == "r2"
        for wanted in ("latest", "latest-good", "as-of=2999-01-01"):
            assert three_runs.run("verify", f"{wanted}{job}", "--json").document["run_id"] == "r2"
    assert three_runs.run("pin", "latest", "--note", "audit").stdout == "run r2 is pinned: audit\n"
    assert world.row("r2").pin is not None
    assert three_runs.run("unpin", "latest").stdout == "run r2 is no longer pinned\n"


def test_what_a_time_has_found_is_told_before_it_is_read(three_runs: Terminal, world: World) -> None:
    first, second = moved_back(world, "r1", hours=30), world.row("r2")
    assert first.snapshot_by is not None
    assert second.snapshot_by is not None
    at = f"{first.snapshot_by:%Y-%m-%dT%H:%M:%S}"
    for wanted in (f"as-of={at}", f"as-of={at}:nightly", f"as-of={at}+00:00:nightly", "as-of=1d"):
        ended = three_runs.run("restore", wanted, "--to", str(world.base / f"restored-{wanted}"))
        assert ended.status == ExitStatus.OK, ended.stderr
        assert f"run r1 of job nightly: its snapshot was taken by {first.snapshot_by:%Y-%m-%d %H:%M:%S} UTC" in (
            ended.stderr
        )
        assert ended.stdout.startswith("restored run r1 to ")


def moved_back(world: World, run_id: str, *, hours: float) -> RunDetails:
    """As if that run had been taken so much earlier."""
    run = world.row(run_id)
    assert run.ended_at is not None
    assert run.snapshot is not None
    assert run.snapshot.taken_at is not None
    instants = (run.started_at, run.ended_at, run.snapshot.taken_at)
    *earlier, taken_at = [InstantColumn.text(at - timedelta(hours=hours)) for at in instants]
    with direct(world.places.catalogue, busy_timeout_seconds=1) as connection:
        connection.execute("UPDATE runs SET started_at = ?, ended_at = ? WHERE run_id = ?", (*earlier, run_id))
        connection.execute("UPDATE snapshots SET taken_at = ? WHERE run_id = ?", (taken_at, run_id))
    return world.row(run_id)


@pytest.mark.parametrize(
    "words", [["probe", "--compare", "RUN", "latest"], ["bench", "show", "RUN"]], ids=lambda w: w[0]
)
def test_a_measurement_leaves_no_backup(terminal: Terminal, words: list[str]) -> None:
    for said in ("latest-good", "as-of=2026-11-20"):
        ended = terminal.run(*(said if word == "RUN" else word for word in words))
        assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
        assert f"{said} selects a backup, not a {words[0]}" in ended.stderr


def test_every_help_text_of_run_says_what_it_may_be() -> None:
    told = {
        " ".join(path): str(param.help)
        for path, command in tree()
        for param in command.params
        if param.metavar == "RUN" and path[0] != "bench" and param.name != "b"
    }
    assert set(told) == {words[0] for words in (*LOOKING, *READING, *PINNING)}
    for text in told.values():
        for said in ("latest[:JOB]", "latest-good[:JOB]", "as-of=TIME[:JOB]", "With several jobs, `:JOB` is required."):
            assert said in text


def test_a_time_in_two_words_and_a_value_that_is_none_are_refused_in_plain_words(terminal: Terminal) -> None:
    assert "hint: write as-of=TIME as one word\n" in terminal.run("show", "as-of", "2026-11-20").stderr
    assert "as-of=TIME" not in terminal.run("show", "latest", "2026-11-20").stderr
    said = terminal.run("history", "--status", "faild").stderr
    assert "Error: Invalid value for '--status': 'faild' is not one of 'running', 'success'," in said


def test_a_job_that_is_mistyped_is_answered_with_those_that_there_are(three_runs: Terminal) -> None:
    for words in (["show"], ["drill"]):
        ended = three_runs.run(*words, "latest:nigthly")
        assert ended.status == ExitStatus.USAGE
        assert "there are runs of nightly" in ended.stderr
