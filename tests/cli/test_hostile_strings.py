"""Whatever a stranger calls things, no command prints a character that acts, or a line that passes for ours.

Every command of the tree is walked: with hostile words as each of its arguments and options, and over a host whose
catalogue, backups, files and errors are hostile. A command that is new fails here until it is among them.
"""

import io
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperArgument, TyperGroup
from typer.main import get_command

from backupd import wiring
from backupd.catalogue.store import Catalogue
from backupd.cli import main
from backupd.policy import manifest as manifests
from backupd.service.systemd import Notify
from backupd.vocabulary.errors import ExitStatus, TargetError
from backupd.vocabulary.records import RunKind
from tests.cli.terminal import Ended, Terminal
from tests.hostile_words import ARGUMENT, FORGED, HOSTILE, MARKUP, faults, make_hostile_catalogue
from tests.story.world import World

ELSEWHERE = {"demo", "lab"}  # they begin virtual machines of their own, on developers' hosts

AS_FILE = HOSTILE.translate({0: None, ord("/"): None})
SQL = {"SCRUB": f"{AS_FILE}.sql", "BROKEN": f"{AS_FILE}-broken.sql"}  # files with such names

OVER_A_HOSTILE_HOST: dict[str, list[list[str]]] = {  # RUN, PROBE and BENCH stand for runs, STORED for one with a backup
    "run": [["nightly"], ["nightly", "--json"]],
    "cancel": [["RUN"], ["latest"]],
    "check": [["nightly"], ["nightly", "--json"]],
    "probe": [["nightly", "--seconds", "1"], ["--compare", "PROBE", "PROBE"], ["nightly", "--html", "p.html"]],
    "status": [[], ["--json"], ["--nagios"]],
    "history": [[*of, *how] for of in ([], ["--probes"], ["--benches"]) for how in ([], ["--json"])] + [["--csv"]],
    "show": [[kind, *json] for kind in ("RUN", "PROBE", "BENCH", "latest") for json in ([], ["--json"])],
    "verify": [["STORED"], ["STORED", "--json"], ["--job", "nightly"], ["RUN"]],
    "restore": [
        *(["STORED", "--to", "a"], ["STORED", "--to", "b", "--json"], ["STORED", "--to", "c", "--tables", "a.b"]),
        ["STORED", "--tables", "a.b", "--into", "db1", "--as", "restored"],
    ],
    "drill": [["STORED"], ["STORED", "--json"], ["--job", "nightly"]],
    "prove": [[], ["--all"], ["--limit", "2", "--target", "vault"]],
    "clone": [["STORED", "--to", "cloned", "--as-replica"], ["STORED", "--to", "other", "--as-replica", "--json"],
        *(["STORED", "--to", "dev", "--scrub", sql] for sql in ("SCRUB", "BROKEN")),
    ],
    "prune": [["--dry-run"], ["--dry-run", "--json"], ["nightly"]],
    "pin": [["STORED", "--note", ARGUMENT]],
    "unpin": [["STORED"]],
    "recover": [[], ["--json"]],
    "serve": [["--no-web"]],
    "fleet check": [[], ["--json"]],  # over hostile hosts: tests/cli/test_fleet_commands.py
    "fleet plan": [[], ["--json"]],
    "fleet serve": [[]],  # of a fleet, these too: tests/cli/test_fleet_orders.py
    "fleet run": [["shop"], [ARGUMENT, "--job", ARGUMENT]],
    "fleet cancel": [["shop"], [ARGUMENT, "--note", ARGUMENT]],
    "fleet pause": [["shop"], [ARGUMENT, "--note", ARGUMENT], ["--all"]],
    "fleet resume": [["shop"], [ARGUMENT], ["--all"]],
    "fleet status": [[], ["--json"], ["--nagios"]],  # over hostile records: tests/cli/test_fleet_view.py
    "fleet history": [[], ["--json"], ["--csv"]],
    "fleet report": [[], ["--json"], ["--month", "2026-11"], ["--html", "night.html"]],
    "fleet pages": [[]],
    "metrics": [[], ["--textfile", "backupd.prom"]],
    "manual": [[]],
    "completion": [["bash"]],
    "report": [
        *([], ["--json"], ["--html", "report.html"], ["nightly"], ["--evidence"], ["--evidence", "--json"]),
        ["--evidence", "--html", "evidence.html", "--csv", "evidence.csv", "--output", "evidence.log"],
    ],
    "compare": [["RUN", "RUN"], ["latest", "RUN"], ["latest", "RUN", "--json"]],
    "log": [["STORED"], ["RUN"]],
    "volumes": [[], ["--json"]],
    "version": [[]],
    "agent": [[]],
    "copy": [
        ["STORED", "--from", "vault", "--to", "offsite"],
        ["RUN", "--from", "vault", "--to", "offsite"],
        ["--missing", "--from", "vault", "--to", "offsite"],
    ],
    "config init": [["--path", "new.toml"]],
    "config check": [[]],
    "config show": [[], ["--json"]],
    "config schema": [[]],
    "binlog receive": [["nightly"]],
    "binlog verify": [["nightly"], ["nightly", "--json"]],
    "catalogue check": [[]],
    "catalogue rebuild": [["--target", "vault"], ["--target", "vault", "--json"]],
    "catalogue proofs": [[]],
    "identity show": [[], ["--json"]],
    "identity new": [["--yes"]],
    "identity adopt": [["db9-0123abcd", "--yes"]],
    "schedule list": [[], ["--json"]],
    "schedule next": [["nightly"], ["--cron", "0 3 * * *"]],
    "schedule pause": [["nightly", "--note", ARGUMENT]],
    "schedule resume": [["nightly"]],
    "notify test": [[]],
    "notify digest": [[], ["--json"], ["--send"]],
    "binlog list": [["nightly"], ["nightly", "--json"]],
    "binlog status": [[], ["--json"]],
    "binlog search": [["nightly"], ["nightly", "--json"]],
    "audit list": [[], ["--json"]],
    "audit verify": [[], ["--json"]],
    "bench layouts": [["--vg", "vg0", "--yes"]],
    "bench show": [["BENCH"], ["BENCH", "--json"], ["BENCH", "--csv"], ["BENCH", "--html", "bench.html"]],
    "bench compare": [["BENCH", "BENCH"]],
}  # fmt: skip


def leaves(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """Every command by its words."""
    for name, command in group.commands.items():
        if not path and name in ELSEWHERE:
            continue
        if isinstance(command, TyperGroup):
            yield from leaves(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


TREE = dict(leaves(get_command(main.app)))


@pytest.fixture(scope="module")
def hostile_catalogue(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """The file, and the runs that words stand for; looked for once, since all of a run is read to know its kind."""
    folder = tmp_path_factory.mktemp("hostile")
    path = folder / "catalogue.sqlite"
    ids = make_hostile_catalogue(path, machine=World(folder / "world").name)
    with Catalogue.open(path) as catalogue:
        with_backup = next(run_id for run_id in ids if catalogue.run(run_id).backups)
        probe, bench = (
            next(run_id for run_id in ids if catalogue.run(run_id).kind is kind)
            for kind in (RunKind.PROBE, RunKind.BENCH)
        )
    return path, {"RUN": with_backup, "PROBE": probe, "BENCH": bench, "STORED": "stored", **SQL}


@pytest.fixture
def terminal(
    world: World,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    hostile_catalogue: tuple[Path, dict[str, str]],
    tmp_path: Path,
) -> Terminal:
    """`backupd` on a host whose catalogue and whose files' names are hostile; a daemon ends as soon as it is ready."""
    (world.datadir / "shop" / f"a{AS_FILE}.ibd").write_bytes(bytes(1000))
    world.places.catalogue.parent.mkdir(exist_ok=True)
    shutil.copy(hostile_catalogue[0], world.places.catalogue)
    (tmp_path / "cwd").mkdir()
    for name, text in zip(SQL.values(), ("SELECT 1", "SELECT '"), strict=True):
        (tmp_path / "cwd" / name).write_text(text)
    monkeypatch.chdir(tmp_path / "cwd")
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    monkeypatch.setattr(Notify, "ready", lambda _notify: os.kill(os.getpid(), signal.SIGTERM))
    configured = wiring.target  # which refuses a target that is not, as the terminal's does not
    made = Terminal(world, monkeypatch, capsys)
    monkeypatch.setattr(
        wiring,
        "target",
        lambda configuration, name, machine: (
            world.target.of_machine(machine) if name == "vault" else configured(configuration, name, machine)
        ),
    )
    with made.configuration.open("a") as file:
        file.write(f'\n[targets.offsite]\ntype = "directory"\npath = "{tmp_path}"\n')
        file.write('\n[jobs.nightly.schedules.backup]\ncron = "0 3 * * *"\n[service]\nzone = "UTC"\nport = 0\n')
    return made


@pytest.fixture
def backed_up(terminal: Terminal, world: World) -> None:
    """The run `stored` has a backup, of which the storage's owner has made the manifest's free texts hostile."""
    ended = terminal.run("run", "nightly", "--run-id", "stored")
    assert ended.status in (ExitStatus.OK, ExitStatus.ATTENTION), ended.stderr
    require_plain(ended)
    (manifest,) = world.vault.glob("*/nightly/stored/manifest.json")
    body = json.loads(manifest.read_text())
    body["run"]["attention"] = [HOSTILE]
    body["server"]["settings"]["version_comment"] = HOSTILE
    body.pop("digest")
    manifest.write_text(json.dumps({**body, "digest": manifests._digest(body)}))


def require_plain(ended: Ended) -> None:
    assert faults(ended.stdout) == []
    assert faults(ended.stderr) == []
    assert ended.status != ExitStatus.INTERNAL, ended.stderr


def require_plain_files(folder: Path) -> None:
    """Pages, logs and metrics; what a restore brings back is as it was."""
    for path in [*folder.rglob("*.html"), *folder.rglob("*.log"), *folder.rglob("*.prom"), *folder.rglob("*.toml")]:
        text = path.read_text()
        assert faults(text) == [], path
        assert path.suffix != ".html" or MARKUP not in text


def test_every_command_is_walked() -> None:
    assert set(TREE) == set(OVER_A_HOSTILE_HOST)


@pytest.mark.parametrize("command", sorted(TREE))
def test_hostile_words_on_a_command_line_are_shown_plain(terminal: Terminal, command: str) -> None:
    params = [param for param in TREE[command].params if param.name not in ("help", "json", "csv")]
    needed: list[str] = []
    for param in params:
        if isinstance(param, TyperArgument):
            needed += [ARGUMENT]
        elif param.required:
            needed += [param.opts[-1], ARGUMENT]
    taken = [param for param in params if not isinstance(param, TyperArgument) and not (param.is_flag or param.count)]
    lines = [needed, *([*needed, param.opts[-1], *[ARGUMENT] * (param.nargs or 1)] for param in taken)]
    for line in lines:
        require_plain(terminal.run(*command.split(), *line))
    require_plain(terminal.run(*command.split(), f"--{ARGUMENT}"))
    require_plain(terminal.run(*command.split(), *[ARGUMENT] * 9))


def test_hostile_words_in_place_of_a_command_are_shown_plain(terminal: Terminal) -> None:
    for words in ([ARGUMENT], [f"--{ARGUMENT}"], ["--config", ARGUMENT, "check", "nightly"], ["config", ARGUMENT]):
        require_plain(terminal.type(*words))


@pytest.mark.parametrize("command", sorted(OVER_A_HOSTILE_HOST))
def test_a_hostile_host_is_shown_plain(
    terminal: Terminal, hostile_catalogue: tuple[Path, dict[str, str]], world: World, backed_up: None, command: str
) -> None:
    for words in OVER_A_HOSTILE_HOST[command]:
        ended = terminal.run(*command.split(), *(hostile_catalogue[1].get(word, word) for word in words))
        require_plain(ended)
        if "--json" in words:
            assert ended.document["schema"] == 1
            assert ended.stdout.isascii()
    require_plain_files(world.base)


@pytest.mark.parametrize("flag", [[], ["-v"], ["-vv"], ["-q"]])
@pytest.mark.parametrize("event", ["target.publish", "lock.asked", "target.reading", "probe.prepare"])
def test_a_hostile_error_is_shown_plain_and_so_is_its_log(
    terminal: Terminal, world: World, event: str, flag: list[str]
) -> None:
    def refuse() -> None:
        logging.getLogger("backupd.targets").warning("the storage said: %s", HOSTILE)
        error = TargetError(f"the storage said: {HOSTILE}", hint=HOSTILE)
        error.add_note(HOSTILE)
        raise error

    world.at[event] = refuse
    ended = terminal.type("--config", str(terminal.configuration), *flag, "run", "nightly", "--run-id", "h1")
    assert ended.status != ExitStatus.OK or event == "probe.prepare"
    require_plain(ended)
    for words in (["show", "h1"], ["log", "h1"], ["history"], ["audit", "list"]):
        require_plain(terminal.run(*words))
    require_plain_files(world.base)


def test_a_bug_is_told_plain(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_words: object) -> None:
        raise ValueError(HOSTILE)

    monkeypatch.setattr("backupd.operations.context.catalogue", fail)
    ended = terminal.run("history")
    assert ended.status == ExitStatus.INTERNAL
    assert faults(ended.stderr) == []
    assert "    ValueError: " in ended.stderr


def test_an_old_log_with_anything_in_it_is_shown_plain(terminal: Terminal, world: World, backed_up: None) -> None:
    log = world.base / "log" / "stored.log"
    log.write_text(log.read_text() + HOSTILE.replace(FORGED, "hint") + "\n")
    require_plain(terminal.run("log", "stored"))


def test_each_part_of_the_hostile_words_would_be_noticed() -> None:
    assert len(faults(HOSTILE)) >= 11
    assert faults(f"fine\n  {FORGED}") == []
