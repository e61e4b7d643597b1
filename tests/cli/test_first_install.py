"""The page "Getting started", "The first day", walked by somebody who only reads it: each command, in its order."""

from pathlib import Path

import pytest

from backupd.vocabulary.errors import ExitStatus
from tests.cli.terminal import Ended, Terminal
from tests.cli.test_drill_command import Drills
from tests.docs.places import typed
from tests.story.world import World

DAY = typed("getting-started.md", "The first day")


@pytest.fixture
def newcomer(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """A host without a configuration. What a drill finds, real servers tell: see tests/contract and tests/lab."""
    terminal.configuration.unlink()
    monkeypatch.setattr("backupd.operations.restore.drill.drill", Drills())
    return terminal


def edit(file: Path, world: World) -> None:
    """What the page says is the reader's own; and where this host, which is a folder, has everything else."""
    text = file.read_text()
    offsite, jobs = text.index("[targets.offsite]"), text.index("# --- notifications")
    text = text[:offsite] + text[jobs:]
    for was, became in (
        ('path = "/srv/backups"', f'path = "{world.vault}"'),
        ('socket = "/run/mysqld/mysqld.sock"', f'socket = "{world.base}/mysqld.sock"'),
        ('#path = "/var/lib/backupd/catalogue.sqlite"', f'path = "{world.places.catalogue}"'),
        ('#run = "/run/backupd"', f'run = "{world.places.run}"'),
        ('#staging = "/var/lib/backupd/staging"', f'staging = "{world.places.staging}"'),
        ('#log = "/var/log/backupd"', f'log = "{world.base}/log"'),
        ("#windows = 3", "windows = 1"),
        ("#baseline_windows = 3", "baseline_windows = 1"),
    ):
        assert was in text, was
        text = text.replace(was, became, 1)
    file.write_text(text)


def good(ended: Ended) -> Ended:
    assert ended.status == ExitStatus.OK, ended.stderr
    return ended


@pytest.mark.thorough
def test_the_first_day(newcomer: Terminal, world: World) -> None:
    init, check_file, check_host, run, history, drill, status, schedules, notify = DAY
    missing = newcomer.run(*check_file)
    assert missing.status == ExitStatus.USAGE
    assert f"backupd config init --path {newcomer.configuration} writes a commented one" in missing.stderr

    written = f"{newcomer.configuration}: written; edit it, then run: backupd config check\n"
    assert good(newcomer.run(*init)).stdout == written
    untouched = good(newcomer.run(*check_file))
    assert "warning: this is the example as it was shipped" in untouched.stdout
    edit(newcomer.configuration, world)
    assert f"{newcomer.configuration}: ok, 1 host, 1 job, 1 target\n" in (
        told := good(newcomer.run(*check_file)).stdout
    )
    assert "warning" not in told

    world.database.refuses_lock = True  # the account lacks the grant, or somebody holds the lock
    assert newcomer.run(*run).status == ExitStatus.SERVER
    world.database.refuses_lock = False
    checked = good(newcomer.run(*check_host)).stdout
    assert {line[:8].strip() for line in checked.splitlines()} == {"ok"}
    good(newcomer.run(*run))
    assert [line.split()[2] for line in good(newcomer.run(*history)).stdout.splitlines()[1:]] == ["success", "failed"]
    assert "proven in " in good(newcomer.run(*drill)).stdout
    assert good(newcomer.run(*status)).stdout.startswith("nightly: OK\n")

    due = good(newcomer.run(*schedules)).stdout.splitlines()[1:]
    assert [line.split()[1] for line in due] == ["backup", "verify", "prune", "check"]
    nobody = newcomer.run(*notify)
    assert (nobody.status, "hint: add a table [notifications.NAME]" in nobody.stderr) == (ExitStatus.USAGE, True)


def test_names_that_a_newcomer_mistypes_are_answered_with_those_that_there_are(
    newcomer: Terminal, world: World
) -> None:
    good(newcomer.run(*DAY[0]))
    edit(newcomer.configuration, world)
    for words in (["check", "nightyl"], ["run", "nightyl"], ["status", "nightyl"], ["drill", "--job", "nightyl"]):
        ended = newcomer.run(*words)
        assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
        assert ended.stderr == "error: no job 'nightyl'\nhint: configured jobs: nightly\n"
