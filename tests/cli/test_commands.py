"""What commands end with and where their words go."""

import contextlib
import importlib.util
import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer

from backupd import __version__, wiring
from backupd import cli as backupd_cli
from backupd.catalogue.agent_records import AgentStart
from backupd.catalogue.database import direct
from backupd.catalogue.store import Catalogue
from backupd.cli import tree
from backupd.cli.main import app
from backupd.config import Configuration, PathsConfig
from backupd.host.live_progress import LiveRuns
from backupd.host.signals import cancellable
from backupd.operations import context
from backupd.operations.backup import run_surroundings
from backupd.vocabulary.errors import Cancelled, CatalogueUnavailable, ExitStatus, UsageError
from backupd.vocabulary.records import Holding, HoldingKind, RunError, RunStatus
from tests.cli.terminal import Terminal
from tests.fakes.target import MACHINE
from tests.full_disk import no_room_in_catalogues
from tests.mutations import sealed
from tests.story.stored import damaged, put
from tests.story.world import World
from tests.unit import test_receivers as receivers
from tests.unit.test_catalogue_file import without_root_s_rights

ROOT = Path(__file__).parents[2]


def in_another_process(act: Callable[[], object]) -> None:
    """So that the rows of what it does are not this process's."""
    child = os.fork()
    if child == 0:
        try:
            act()
        finally:
            os._exit(0)
    os.waitpid(child, 0)


# --- the statuses -----------------------------------------------------------------------------------------------------


def test_help_lists_every_exit_status(terminal: Terminal) -> None:
    words = " ".join(terminal.type("--help").stdout.split())
    assert all(f"{status.value} {status.meaning}" in words for status in ExitStatus)


COMMANDS = [
    *(
        ["run"],
        ["cancel"],
        ["check"],
        ["probe"],
        ["status"],
        ["history"],
        ["show"],
        ["compare"],
        ["report"],
        ["log"],
        ["verify"],
        ["copy"],
        ["restore"],
        ["clone"],
        ["drill"],
        ["prove"],
        ["prune"],
        ["pin"],
        ["unpin"],
        ["recover"],
        ["serve"],
        ["metrics"],
        ["volumes"],
        ["demo"],
        ["manual"],
        ["completion"],
        ["version"],
        ["agent"],
    ),
    *(["config"], ["config", "init"], ["config", "check"], ["config", "show"], ["config", "schema"]),
    *(["catalogue"], ["catalogue", "rebuild"]),
    *(["identity"], ["identity", "show"], ["identity", "new"], ["identity", "adopt"]),
    *(["notify"], ["notify", "test"], ["notify", "digest"]),
    *(["schedule"], ["schedule", "list"], ["schedule", "next"], ["schedule", "pause"], ["schedule", "resume"]),
    *(["binlog"], *(["binlog", name] for name in ("receive", "list", "status", "search", "verify"))),
    *(["audit"], ["audit", "list"], ["audit", "verify"]),
    *(["fleet"], *(["fleet", name] for name in ("check", "plan"))),
    *(
        ["fleet", name]
        for name in ("status", "history", "report", "pages", "serve", "run", "cancel", "pause", "resume")
    ),
    *(["bench"], ["bench", "layouts"], ["bench", "show"], ["bench", "compare"]),
    *(["lab"], ["lab", "run"], ["lab", "shell"], ["lab", "clean"]),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_has_a_help_text(terminal: Terminal, command: list[str]) -> None:
    ended = terminal.type(*command, "--help")
    assert ended.status == ExitStatus.OK
    assert "Usage: " in ended.stdout
    assert ended.stderr == ""


def test_the_list_of_commands_is_whole(terminal: Terminal) -> None:
    listed = re.findall(r"^  ([a-z]+)  ", terminal.type("--help").stdout.partition("Commands:")[2], re.MULTILINE)
    assert set(listed) == {command[0] for command in COMMANDS}


def test_the_version_is_told_by_the_option_and_by_the_command(terminal: Terminal, tmp_path: Path) -> None:
    nowhere = tmp_path / "nowhere.toml"  # nobody needs a configuration for it
    for arguments in (["--version"], ["version"]):
        ended = terminal.run(*arguments, configuration=nowhere)
        assert (ended.status, ended.stdout, ended.stderr) == (ExitStatus.OK, f"backupd {__version__}\n", "")


@pytest.mark.parametrize(
    "arguments", [["run"], ["backup"], ["run", "nightly", "--colour"], ["history", "--limit", "0"]]
)
def test_a_command_line_that_cannot_be_is_status_2_and_no_result(terminal: Terminal, arguments: list[str]) -> None:
    ended = terminal.run(*arguments)
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert "Usage: " in ended.stderr


@pytest.mark.parametrize("arguments", [["history", "--limit", "0"], ["check"], ["show", "r1", "--colour"]])
def test_a_command_line_that_cannot_be_is_a_document_where_one_is_asked_for(
    terminal: Terminal, arguments: list[str]
) -> None:
    ended = terminal.run(*arguments, "--json")
    assert ended.status == ExitStatus.USAGE
    assert (set(ended.document), ended.document["error"]["code"]) == ({"schema", "error"}, "usage-error")
    assert ended.document["error"]["message"] in ended.stderr


@pytest.mark.parametrize("arguments", [["history", "--limit"], ["audit", "list", "--limit"]])
def test_a_number_that_is_larger_than_anything_is_refused(terminal: Terminal, arguments: list[str]) -> None:
    for digits in (19, 400):
        ended = terminal.run(*arguments, "9" * digits)
        assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")


@pytest.mark.parametrize("command", ["show", "cancel", "verify", "unpin", "drill", "log"])
def test_a_run_whose_name_is_no_text_is_unknown(terminal: Terminal, command: str) -> None:
    ended = terminal.run(command, os.fsdecode(b"\xff\xfe"))
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert ended.stderr.startswith("error: ")


def test_ctrl_c_is_cancelled_without_a_traceback(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(explicit: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("backupd.operations.context.unchecked", interrupted)
    ended = terminal.run("history")
    assert (ended.status, ended.stdout, ended.stderr) == (ExitStatus.CANCELLED, "", "error: interrupted\n")
    ended = terminal.run("history", "--json")
    assert (ended.status, ended.document["error"]["code"]) == (ExitStatus.CANCELLED, "cancelled")


def test_a_bug_is_a_document_too(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise ValueError("seven")

    monkeypatch.setattr("backupd.operations.context.catalogue", fail)
    ended = terminal.run("history", "--json")
    assert ended.status == ExitStatus.INTERNAL
    assert (ended.document["error"]["code"], ended.document["error"]["message"]) == (
        "internal-error",
        "ValueError: seven",
    )


def test_the_json_of_a_command_in_the_lab_is_not_the_lab_s_own(terminal: Terminal) -> None:
    ended = terminal.type("lab", "run", "--load", "nonsense", "--", "backupd", "run", "nightly", "--json")
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert "no such load" in ended.stderr


# --- errors -----------------------------------------------------------------------------------------------------------


NEED_A_CATALOGUE = [
    *(["run", "nightly"], ["check", "nightly"], ["history"], ["recover"], ["show", "x"]),
    *(["compare", "x", "y"], ["report"], ["audit", "list"], ["audit", "verify"]),
]


@pytest.mark.parametrize("command", ["run", "check", "history", "prune"])
def test_an_unknown_job_is_told_with_those_there_are(terminal: Terminal, command: str) -> None:
    ended = terminal.run(command, "weekly")
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert ended.stderr == "error: no job 'weekly'\nhint: configured jobs: nightly\n"


@pytest.mark.parametrize("command", NEED_A_CATALOGUE, ids=" ".join)
def test_broken_toml_is_status_2_and_names_the_file(terminal: Terminal, command: list[str]) -> None:
    terminal.configuration.write_text("[jobs.nightly\n")
    ended = terminal.run(*command)
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert str(terminal.configuration) in ended.stderr


def test_a_configuration_that_is_not_there_is_status_2(terminal: Terminal, tmp_path: Path) -> None:
    ended = terminal.run("history", configuration=tmp_path / "nowhere.toml")
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert "nowhere.toml" in ended.stderr


def test_whoever_may_not_look_into_the_configuration_s_folder_is_told_to_be_root(tmp_path: Path) -> None:
    """As the package makes it; without that folder these commands do without a configuration."""
    (folder := tmp_path / "etc").mkdir(mode=0o000)
    script = (
        "import sys; from pathlib import Path; from backupd.operations import context\n"
        "context.DEFAULT_PATH = Path(sys.argv.pop(1)); context.locate = lambda *_: context.DEFAULT_PATH\n"
        "from backupd.cli.main import main; main()"
    )
    argv = [sys.executable, "-c", script, str(folder / "backupd.toml")]
    for command in (["history"], ["recover"], ["catalogue", "check"]):
        ended = subprocess.run(
            without_root_s_rights([*argv, *command]), capture_output=True, text=True, check=False, cwd=ROOT
        )
        assert (ended.returncode, ended.stdout) == (ExitStatus.USAGE, "")
        assert ended.stderr.splitlines() == [
            f"error: cannot read {folder / 'backupd.toml'}: permission denied",
            "hint: backupd must be able to read it: run it as root",
        ]


@pytest.mark.parametrize("command", NEED_A_CATALOGUE, ids=" ".join)
def test_an_unusable_catalogue_is_status_13_and_touches_nothing(
    terminal: Terminal, world: World, command: list[str]
) -> None:
    world.places.catalogue.mkdir()  # a folder where the file should be
    ended = terminal.run(*command)
    assert (ended.status, ended.stdout) == (ExitStatus.CATALOGUE, "")
    assert "error: the catalogue " in ended.stderr
    assert "hint: " in ended.stderr
    assert world.host.calls.total() == world.database.calls == 0


@pytest.mark.parametrize(
    "command",
    [
        ["show", "nope"],
        ["restore", "nope", "--to", "to"],
        ["restore", "nope", "--tables", "a.b", "--into", "db1", "--as", "restored"],
        ["verify", "nope"],
        ["clone", "nope", "--to", "to", "--as-replica"],
        ["drill", "nope"],
        ["cancel", "nope"],
    ],
)
def test_an_unknown_run_is_status_2(terminal: Terminal, command: list[str]) -> None:
    ended = terminal.run(*command)
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert "no run nope" in ended.stderr


def test_a_run_without_a_backup_can_be_neither_restored_nor_cloned_nor_drilled(
    terminal: Terminal, world: World
) -> None:
    world.database.refuses_lock = True
    terminal.run("run", "nightly", "--run-id", "r1")
    to = ["r1", "--to", str(world.base / "to")]
    into = ["r1", "--tables", "a.b", "--into", "db1", "--as", "restored"]
    for command in (["restore", *to], ["restore", *into], ["clone", *to, "--as-replica"], ["drill", "r1"]):
        ended = terminal.run(*command)
        assert ended.status == ExitStatus.USAGE
        assert "has no backup (status failed)" in ended.stderr
    assert not (world.base / "to").exists()


@pytest.mark.parametrize("name", ["", "a b", "-x", "../x", "x" * 62, "latest", "latest-good", "as-of", "binlog", "é"])
def test_a_run_id_that_fits_nowhere_is_refused(terminal: Terminal, world: World, name: str) -> None:
    ended = terminal.run("run", "nightly", f"--run-id={name}")
    if not name:  # nothing was asked for
        assert ended.status == ExitStatus.OK
        return
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert "is not a valid run id" in ended.stderr
    assert world.left() == []


def test_a_password_that_cannot_be_had_is_the_error_that_is_told(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the real tools
    terminal.configuration.write_text(
        terminal.configuration.read_text().replace('user = "backupd"', 'user = "backupd"\npassword_env = "NO_SUCH"')
    )
    ended = terminal.run("run", "nightly", "--json")
    assert ended.status == ExitStatus.USAGE
    assert "the environment has no NO_SUCH" in ended.document["error"]["message"]


# --- run --------------------------------------------------------------------------------------------------------------


def test_a_good_run_prints_its_summary_and_nothing_else_on_stdout(terminal: Terminal, world: World) -> None:
    ended = terminal.run("run", "nightly", "--run-id", "r1")
    assert ended.status == ExitStatus.OK
    assert all(re.match(r"[a-zA-Z ]+: ", line) for line in ended.stdout.splitlines())
    assert "status:" in ended.stdout
    assert "success" in ended.stdout
    assert "copied 100 %" in ended.stderr or "copied 90 %" in ended.stderr
    assert world.row("r1").status is RunStatus.SUCCESS


def test_a_run_s_log_lines_bear_its_id(terminal: Terminal) -> None:
    ended = terminal.run("run", "nightly", "--run-id", "r1")
    logged = [line for line in ended.stderr.splitlines() if " INFO " in line]
    assert logged
    assert all("[r1]" in line for line in logged)


def test_a_run_that_wants_attention_is_status_3_and_says_why(terminal: Terminal, world: World) -> None:
    world.host.fail("unmount")
    ended = terminal.run("run", "nightly", "--json")
    assert ended.status == ExitStatus.ATTENTION
    assert ended.document["status"] == "attention"
    assert ended.document["error"] is None
    assert "attention: clean-up incomplete: unmount failed" in ended.stderr


def refuse_lock(world: World) -> None:
    world.database.refuses_lock = True


def fail_mount(world: World) -> None:
    world.host.fail("mount")


def refuse_preflight(world: World) -> None:
    world.host.add_foreign_snapshot("hers")


def lose_bytes(world: World) -> None:
    stored = world.backups / "r1" / "data-1.tar.zst"
    world.at["target.reading"] = lambda: os.truncate(stored, 10)


def lose_target(world: World) -> None:
    world.at["target.reading"] = (world.backups / "r1" / "data-1.tar.zst").unlink


def interrupt(world: World) -> None:
    world.at["host.mount"] = lambda: os.kill(os.getpid(), 15)


@pytest.mark.parametrize(
    ("trouble", "status", "row", "code"),
    [
        (refuse_preflight, ExitStatus.REFUSED, "refused", "refused"),
        (refuse_lock, ExitStatus.SERVER, "failed", "lock-not-granted"),
        (fail_mount, ExitStatus.SNAPSHOT, "failed", "snapshot-error"),
        (lose_target, ExitStatus.TARGET, "failed", "target-error"),
        (lose_bytes, ExitStatus.VERIFICATION, "failed", "verification-error"),
        (interrupt, ExitStatus.TERMINATED, "cancelled", "terminated"),
    ],
)
def test_a_run_that_fails_prints_one_document_with_its_error(
    terminal: Terminal, world: World, trouble: Callable[[World], None], status: ExitStatus, row: str, code: str
) -> None:
    trouble(world)
    ended = terminal.run("run", "nightly", "--run-id", "r1", "--json")
    assert ended.status == status
    document = ended.document
    assert (document["schema"], document["run_id"], document["status"]) == (1, "r1", row)
    assert (document["error"]["code"], document["error"]["exit_status"]) == (code, status)
    assert document["backup"] is None
    first_line = document["error"]["message"].splitlines()[0]
    assert f"error: {first_line}" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("owner", "name"), [(LiveRuns, "forget"), (run_surroundings, "read_proofs"), (run_surroundings, "after_run")]
)
def test_a_stop_signal_once_the_backup_is_complete_changes_nothing_of_it(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch, owner: object, name: str
) -> None:
    known = getattr(owner, name)

    def stopped(*words: object, **more: object) -> object:
        os.kill(os.getpid(), signal.SIGTERM)
        return known(*words, **more)

    monkeypatch.setattr(owner, name, stopped)
    ended = terminal.run("run", "nightly", "--run-id", "r1", "--json")
    assert (ended.status, ended.document["status"], ended.document["error"]) == (ExitStatus.OK, "success", None)
    assert "terminated by SIGTERM once the backup was complete" in ended.stderr
    assert world.row("r1").status is RunStatus.SUCCESS
    assert LiveRuns(world.places.run).told() == ()


def test_a_backup_is_told_as_good_though_the_catalogue_cannot_tell_where_it_leads_to(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    known, opened = context.catalogue, list[Configuration]()

    def catalogue(configuration: Configuration) -> Catalogue:
        opened.append(configuration)
        if len(opened) > 1:
            raise CatalogueUnavailable("the catalogue is locked by another process")
        return known(configuration)

    monkeypatch.setattr(context, "catalogue", catalogue)
    ended = terminal.run("run", "nightly", "--run-id", "r1", "--json")
    assert (ended.status, ended.document["status"], ended.document["archive"]) == (ExitStatus.OK, "success", None)


def test_a_run_that_comes_once_its_control_host_gave_it_up_begins_nothing(terminal: Terminal, world: World) -> None:
    asked = AgentStart("r1", "nightly", None, datetime.now(UTC), 1, 1)
    with world.catalogue() as catalogue:
        catalogue.take_start(asked)
        catalogue.take_start(replace(asked, run_id="r2"))
        catalogue.start_failed("r1", RunError("command", "systemd-run did not end within 10 s", "", 14))
        catalogue.start_cancelled("r2")
    for run_id, why in (("r1", "was told that it could not be started"), ("r2", "cancelled it")):
        ended = terminal.run("run", "nightly", "--run-id", run_id)
        assert (ended.status, ended.stdout) == (ExitStatus.CANCELLED, "")
        assert f"error: run {run_id} does not begin: the control host {why}" in ended.stderr
    with world.catalogue() as catalogue:
        assert (catalogue.runs(), world.left(), world.stored()) == ([], [], [])


def test_a_busy_job_is_status_4(terminal: Terminal, world: World) -> None:
    with world.tools.claims.job("nightly", "another"):
        ended = terminal.run("run", "nightly", "--json")
    assert ended.status == ExitStatus.BUSY
    assert ended.document["status"] == "busy"
    assert "run another of job nightly" in ended.stderr


def test_an_id_that_is_taken_is_refused_and_the_other_run_s_row_is_not_shown(terminal: Terminal, world: World) -> None:
    in_another_process(lambda: world.back_up("r1"))
    ended = terminal.run("run", "nightly", "--run-id", "r1", "--json")
    assert ended.status == ExitStatus.USAGE
    assert set(ended.document) == {"schema", "error"}
    assert "there is a run r1 already" in ended.document["error"]["message"]
    assert world.row("r1").status is RunStatus.SUCCESS


def test_twice_verbose_shows_where_an_error_came_from(terminal: Terminal, world: World) -> None:
    fail_mount(world)
    assert "Traceback" in terminal.run("-vv", "run", "nightly").stderr
    assert "Traceback" not in terminal.run("-v", "run", "nightly").stderr


def test_quiet_leaves_stderr_to_warnings(terminal: Terminal) -> None:
    assert " INFO " not in terminal.run("--quiet", "run", "nightly").stderr


# --- check, history, show, restore, recover ---------------------------------------------------------------------------


def test_check_prints_every_finding_with_its_hint(terminal: Terminal, world: World) -> None:
    world.host.add_foreign_snapshot("hers")
    world.database.missing = ("RELOAD",)
    ended = terminal.run("check", "nightly")
    assert ended.status == ExitStatus.REFUSED
    assert "refused  grants: missing for ftwrl: RELOAD" in ended.stdout
    assert "refused  other snapshots: " in ended.stdout
    assert ended.stdout.count("hint: ") == 2
    assert ended.stderr == ""


def test_check_is_status_0_when_a_run_could_begin(terminal: Terminal, world: World) -> None:
    ended = terminal.run("check", "nightly")
    assert ended.status == ExitStatus.OK
    assert {line.split()[0] for line in ended.stdout.splitlines()} == {"ok"}
    assert (world.left(), world.stored()) == ([], [])


def test_check_tells_of_a_receiver_that_was_started_with_other_settings(terminal: Terminal, world: World) -> None:
    with receivers.World(world.places.run).at_work("nightly/of-before"):
        ended = terminal.run("check", "nightly")
    assert ended.status == ExitStatus.ATTENTION
    assert "warning  binlog receiver: process " in ended.stdout


def test_history_without_a_run_says_so(terminal: Terminal) -> None:
    ended = terminal.run("history")
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "no run yet\n")
    assert terminal.run("history", "--json").document == {"schema": 1, "runs": []}


def test_history_lists_failed_runs_as_well_newest_first(terminal: Terminal, world: World) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    refuse_lock(world)
    terminal.run("run", "nightly", "--run-id", "r2")
    lines = terminal.run("history").stdout.splitlines()
    assert [line.split()[-1] for line in lines] == ["PROVEN", "-", "yet"]  # what has no backup waits for no proof
    assert [line.split()[:3] for line in lines[1:]] == [["r2", "nightly", "failed"], ["r1", "nightly", "success"]]
    assert [run["run_id"] for run in terminal.run("history", "--json").document["runs"]] == ["r2", "r1"]
    assert len(terminal.run("history", "--limit", "1", "--json").document["runs"]) == 1


def test_show_says_what_run_said(terminal: Terminal) -> None:
    ran = terminal.run("run", "nightly", "--json").document
    assert terminal.run("show", "latest", "--json").document == ran
    assert terminal.run("show", ran["run_id"][:-1]).stdout.startswith(f"run:            {ran['run_id']}")


def test_a_full_disk_of_the_catalogue_is_no_usage(terminal: Terminal) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    with no_room_in_catalogues():
        ended = terminal.run("pin", "r1", "--note", "x" * 100_000)
    assert ended.status == ExitStatus.CATALOGUE
    assert "cannot be written: no space left" in ended.stderr
    assert "hint: free space on its file system" in ended.stderr


def test_latest_of_a_job_is_its_newest_run_to_show_and_its_newest_good_one_to_read(
    terminal: Terminal, world: World
) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    refuse_lock(world)
    terminal.run("run", "nightly", "--run-id", "r2")
    for wanted in ("latest", "latest:nightly"):
        assert terminal.run("show", wanted, "--json").document["run_id"] == "r2"
        assert terminal.run("verify", wanted, "--json").document["run_id"] == "r1"
    assert "there is no backup of job other yet" in terminal.run("verify", "latest:other").stderr


def test_restore_prints_where_the_datadir_is(terminal: Terminal, world: World) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    to = world.base / "restored"
    ended = terminal.run("restore", "r1", "--to", str(to))
    assert ended.status == ExitStatus.OK
    assert ended.stdout.startswith(f"restored run r1 to {to}: datadir {to}\n")
    again = terminal.run("restore", "r1", "--to", str(to))
    assert (again.status, again.stdout) == (ExitStatus.USAGE, "")
    assert "is not empty" in again.stderr


def test_restore_of_a_damaged_backup_is_status_9(terminal: Terminal, world: World) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    os.truncate(world.backups / "r1" / "data-1.tar.zst", 1000)
    ended = terminal.run("restore", "r1", "--to", str(world.base / "restored"))
    assert (ended.status, ended.stdout) == (ExitStatus.VERIFICATION, "")
    assert not (world.base / "restored").exists()


def test_restore_of_a_copy_that_was_found_broken_must_be_asked_for(terminal: Terminal, world: World) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    with world.catalogue() as catalogue:
        catalogue.found_broken("r1", "vault", "a bit has fallen over")
    to = ("--to", str(world.base / "restored"))
    refused = terminal.run("restore", "r1", *to)
    assert refused.status == ExitStatus.USAGE
    assert "--target vault" in refused.stderr
    ended = terminal.run("restore", "r1", *to, "--target", "vault")
    assert ended.status == ExitStatus.OK
    assert "a bit has fallen over" in ended.stderr


def test_restore_from_a_target_without_a_copy_names_those_that_have_one(terminal: Terminal, world: World) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    ended = terminal.run("restore", "r1", "--to", str(world.base / "restored"), "--target", "elsewhere")
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert "no copy on target 'elsewhere'\nhint: it has one on vault" in ended.stderr


def test_single_tables_that_no_server_here_can_recover_are_files_and_a_list_of_what_to_do(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.mysql.server_programs._programs", lambda _flavour, _folders: ())
    terminal.run("run", "nightly", "--run-id", "r1")
    shutil.rmtree(world.backups / "r1")
    put(world.vault_target, {"data-1.tar.zst": [("./", b""), ("./shop/", b""), ("./shop/a.ibd", b"a")]})
    digest = world.vault_target.manifest("nightly", "r1").digest
    with direct(world.places.catalogue, busy_timeout_seconds=1) as connection:  # as if that had been taken
        connection.execute("UPDATE backups SET manifest_digest = ?", (digest,))
    to = world.base / "restored"
    ended = terminal.run("restore", "r1", "--to", str(to), "--tables", "shop.a")
    assert ended.status == ExitStatus.ATTENTION
    assert "NOT recovered" in ended.stdout
    assert "FLUSH TABLES `shop`.`a` FOR EXPORT" in ended.stdout
    assert "attention: shop.a could not be recovered here: " in ended.stderr
    assert (to / "shop" / "a.ibd").read_bytes() == b"a"
    refused = terminal.run("restore", "r1", "--to", str(to), "--tables", "shop")
    assert (refused.status, refused.stdout) == (ExitStatus.USAGE, "")
    assert "'shop' is not a list of tables" in refused.stderr


# --- verify -----------------------------------------------------------------------------------------------------------


def test_verify_says_what_it_read_and_the_catalogue_remembers(terminal: Terminal, world: World) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    ended = terminal.run("verify", "latest")
    assert ended.status == ExitStatus.OK
    assert ended.stdout.startswith("run r1 on target vault: all of it read back, equal to what was stored (")
    backup = world.row().backup
    assert backup is not None
    assert backup.verified_at is not None


def test_verify_of_a_damaged_backup_is_status_9_and_the_catalogue_remembers(terminal: Terminal, world: World) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    stored = world.backups / "r1" / "data-1.tar.zst"
    content = stored.read_bytes()
    stored.write_bytes(damaged(content))
    ended = terminal.run("verify", "r1", "--json")
    assert ended.status == ExitStatus.VERIFICATION
    [copy] = ended.document["copies"]
    assert (copy["target"], copy["status"]) == ("vault", "broken")
    assert "data-1.tar.zst" in world.row().backups[0].broken
    assert world.row().backup is None
    stored.write_bytes(content)
    assert terminal.run("verify", "r1").status == ExitStatus.OK  # somebody has mended it
    assert world.row().backup is not None


def test_stray_entries_beside_a_backup_are_an_attention_and_never_cost_it(terminal: Terminal, world: World) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    folder = world.backups / "r1"
    (folder / "@eaDir").mkdir()
    for name in ("@eaDir/data-1.tar.zst@SynoEAStream", "Thumbs.db", ".DS_Store", "note.txt"):
        (folder / name).write_text("mine")
    for _ in range(2):
        ended = terminal.run("verify", "r1", "--json")
        assert (ended.status, ended.document["copies"][0]["status"]) == (ExitStatus.OK, "verified")
        assert ended.document["copies"][0]["unknown"] == [".DS_Store", "@eaDir/", "Thumbs.db", "note.txt"]
    row = world.row()
    assert row.backup is not None
    [told] = row.attention
    assert (
        "there is .DS_Store, @eaDir/, Thumbs.db and 1 more, which backupd did not write: the backup is complete" in told
    )


def test_in_rounds_a_copy_counts_as_read_only_once_all_of_it_was(terminal: Terminal, world: World) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    before = world.row().backups[0].verified_at
    reading_since, frames = None, []
    for _ in range(9):
        ended = terminal.run("verify", "--job", "nightly", "--rounds", "9", "--json")
        assert ended.status == ExitStatus.OK
        frames.append(ended.document["runs"][0]["copies"][0]["frames_read"])
        row = world.row().backups[0]
        if not row.read_frames:
            break
        reading_since = reading_since or row.reading_since
        assert (row.verified_at, row.reading_since, row.read_frames) == (before, reading_since, sum(frames))
    whole = terminal.run("verify", "r1", "--json").document["copies"][0]["frames_read"]
    assert (len(frames) > 1, sum(frames)) == (True, whole)
    assert before is not None
    assert row.verified_at == reading_since
    assert row.reading_since is None


def test_damage_that_a_round_finds_makes_the_next_one_begin_anew(terminal: Terminal, world: World) -> None:
    terminal.configuration.write_text(terminal.configuration.read_text() + "[jobs.nightly.verify]\nrounds = 9\n")
    terminal.run("run", "nightly", "--run-id", "r1")
    assert terminal.run("verify", "--job", "nightly").status == ExitStatus.OK
    assert world.row().backups[0].read_frames > 0
    for each in (world.backups / "r1").glob("*.zst"):
        each.write_bytes(damaged(each.read_bytes()))
    assert terminal.run("verify", "--job", "nightly").status == ExitStatus.VERIFICATION
    row = world.row().backups[0]
    assert (row.read_frames, row.reading_since) == (0, None)
    assert row.broken


def test_verify_of_a_target_that_is_not_there_is_status_8_and_calls_nothing_broken(
    terminal: Terminal, world: World
) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    world.vault.rename(world.base / "away")
    ended = terminal.run("verify", "r1", "--json")
    assert (ended.status, ended.document["copies"][0]["status"]) == (ExitStatus.TARGET, "unreachable")
    assert world.row().backup is not None


def test_verify_of_what_a_newer_backupd_wrote_is_status_9_and_calls_nothing_broken(
    terminal: Terminal, world: World
) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    manifest = world.backups / "r1" / "manifest.json"
    manifest.write_bytes(sealed({**json.loads(manifest.read_text()), "schema": {"major": 2, "minor": 0}}))
    ended = terminal.run("verify", "r1", "--json")
    [copy] = ended.document["copies"]
    assert (ended.status, copy["status"], copy["error"]["code"]) == (
        ExitStatus.VERIFICATION, "unreadable", "unreadable"
    )  # fmt: skip
    assert world.row().backup is not None
    refused = terminal.run("restore", "r1", "--to", str(world.base / "to"))
    assert (refused.status, "written by a newer backupd" in refused.stderr) == (ExitStatus.VERIFICATION, True)


def test_verify_of_a_job_reads_all_of_its_backups_and_a_broken_one_hides_no_other(
    terminal: Terminal, world: World
) -> None:
    assert terminal.run("verify", "--job", "nightly").status == ExitStatus.USAGE  # there is none yet
    for run_id in ("r1", "r2"):
        terminal.run("run", "nightly", "--run-id", run_id)
    stored = world.backups / "r2" / "data-1.tar.zst"
    stored.write_bytes(damaged(stored.read_bytes()))
    ended = terminal.run("verify", "--job", "nightly", "--json")
    assert ended.status == ExitStatus.VERIFICATION
    found = {run["run_id"]: run["copies"][0]["status"] for run in ended.document["runs"]}
    assert found == {"r1": "verified", "r2": "broken"}


def test_verify_of_a_job_reads_no_run_of_which_nothing_is_left(terminal: Terminal, world: World) -> None:
    """Whose row could not even be read: of an hourly job there are tens of thousands."""
    for run_id in ("r1", "r2"):
        terminal.run("run", "nightly", "--run-id", run_id)
    with world.catalogue() as catalogue:
        catalogue.removed("r1", "vault", because="expired")
        catalogue.found_broken("r2", "vault", "flipped")
    with direct(world.places.catalogue, busy_timeout_seconds=1) as connection:
        connection.execute("UPDATE runs SET ended_at = 'no instant' WHERE run_id = 'r1'")
    ended = terminal.run("verify", "--job", "nightly", "--json")
    assert (ended.status, [run["run_id"] for run in ended.document["runs"]]) == (ExitStatus.OK, ["r2"])


def meanwhile(world: World, act: Callable[[Catalogue], object]) -> None:
    """Once something is read there next, another process does this."""

    def at_once() -> None:
        del world.at["target.reading"]
        with world.catalogue() as catalogue:
            act(catalogue)

    world.at["target.reading"] = at_once


@pytest.mark.parametrize("rounds", [1, 9])
def test_what_another_process_finds_broken_meanwhile_is_not_called_whole(
    terminal: Terminal, world: World, rounds: int
) -> None:
    """Such as `backupd copy`, at a frame that this reading has behind it, or that earlier rounds have read."""
    terminal.run("run", "nightly", "--run-id", "r1")
    command = ("verify", "--job", "nightly", "--rounds", str(rounds))
    needed = 1
    while terminal.run(*command).status == ExitStatus.OK and world.row().backups[0].read_frames:
        needed += 1
    for _ in range(needed - 1):  # so that the next one comes to the end
        terminal.run(*command)
    meanwhile(world, lambda catalogue: catalogue.found_broken("r1", "vault", "frame 1 differs"))
    ended = terminal.run(*command, "--json")
    assert (ended.status, ended.document["runs"][0]["copies"][0]["status"]) == (ExitStatus.VERIFICATION, "broken")
    assert "found broken by another process while it was read: frame 1 differs" in ended.stderr
    row = world.row().backups[0]
    assert (row.broken, row.read_frames, row.reading_since) == ("frame 1 differs", 0, None)
    assert terminal.run("verify", "r1").status == ExitStatus.OK
    assert world.row().backup is not None


def test_what_is_pruned_while_a_job_s_backups_are_read_is_passed_over(terminal: Terminal, world: World) -> None:
    """All of them take hours, the newest first; a run may end meanwhile and prune the oldest."""
    for run_id in ("r1", "r2"):
        terminal.run("run", "nightly", "--run-id", run_id)

    def pruned(catalogue: Catalogue) -> None:
        world.target.remove("nightly", "r1")
        catalogue.removed("r1", "vault", because="expired")

    meanwhile(world, pruned)
    ended = terminal.run("verify", "--job", "nightly", "--json")
    assert (ended.status, [run["run_id"] for run in ended.document["runs"]]) == (ExitStatus.OK, ["r2"])


@pytest.mark.parametrize("wrong", [(), ("r1", "--job", "nightly"), ("--job", "no-such-job")])
def test_verify_wants_a_run_or_a_job_that_there_is(terminal: Terminal, wrong: tuple[str, ...]) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    assert terminal.run("verify", *wrong).status == ExitStatus.USAGE


def test_a_sample_does_not_count_as_verified(terminal: Terminal, world: World) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    before = world.row().backups[0].verified_at
    assert terminal.run("verify", "r1", "--sample", "101%").status == ExitStatus.USAGE
    assert terminal.run("verify", "r1", "--sample", "five").status == ExitStatus.USAGE
    assert terminal.run("verify", "r1", "--sample", "0%").status == ExitStatus.USAGE
    assert world.row().backups[0].verified_at == before


def test_a_drill_that_fails_prints_its_checks_and_is_status_9(terminal: Terminal, world: World) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    os.truncate(world.backups / "r1" / "data-1.tar.zst", 1000)
    ended = terminal.run("drill", "r1", "--json")
    assert ended.status == ExitStatus.VERIFICATION
    assert (ended.document["run_id"], ended.document["status"]) == ("r1", "failed")
    assert "do not rely on this backup" in ended.stderr
    assert [drill["status"] for drill in terminal.run("show", "r1", "--json").document["drills"]] == ["failed"]


def test_recover_with_nothing_to_do_says_so(terminal: Terminal) -> None:
    ended = terminal.run("recover")
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "nothing to recover\n")


def test_recover_tells_systemd_when_whoever_waits_for_it_may_go_on(
    terminal: Terminal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(5)
        monkeypatch.setenv("NOTIFY_SOCKET", str(tmp_path / "notify"))
        terminal.run("recover")
        assert manager.recv(100) == b"READY=1"


def test_recover_names_what_it_gave_back_and_what_resists(terminal: Terminal, world: World) -> None:
    world.host.fail("remove")
    terminal.run("run", "nightly", "--run-id", "r1")
    world.host.calls.clear()
    ended = terminal.run("recover")  # `remove` fails at its first call again
    assert ended.status == ExitStatus.CLEANUP
    assert "snapshot labvg/backupd-r1 is left" in ended.stderr
    ended = terminal.run("recover")
    assert ended.status == ExitStatus.OK
    assert "released snapshot labvg/backupd-r1" in ended.stdout
    assert world.left() == []


def test_what_lies_on_a_target_that_was_taken_out_of_the_configuration_waits_for_it(tmp_path: Path) -> None:
    tools = wiring.host_tools(Configuration(paths=PathsConfig(run=tmp_path)), MACHINE)
    copy = Holding(HoldingKind.PARTIAL, "nas/nightly/r1", {"target": "nas", "machine": MACHINE})
    with pytest.raises(UsageError, match="target 'nas' is no longer in the configuration") as refused:
        tools.target_of(copy)
    assert refused.value.hint == "put target nas back until `backupd recover` has done its work there"


def test_a_run_that_has_ended_cannot_be_cancelled(terminal: Terminal) -> None:
    terminal.run("run", "nightly", "--run-id", "r1")
    ended = terminal.run("cancel", "r1")
    assert ended.status == ExitStatus.USAGE
    assert "has ended (status success)" in ended.stderr


@contextlib.contextmanager
def mounting(world: World) -> Iterator[int]:
    """A process whose run r1 mounts its snapshot until it is cancelled."""
    alive, tell = os.pipe()
    child = os.fork()
    if child == 0:

        def wait_for_the_signal() -> None:
            os.write(tell, b"!")
            time.sleep(30)

        world.at["host.mount"] = wait_for_the_signal
        with contextlib.suppress(Cancelled), cancellable():
            world.back_up("r1")
        os._exit(0)
    assert os.read(alive, 1) == b"!"
    yield child
    os.close(alive)
    os.close(tell)


def test_cancel_ends_a_live_run_and_waits_for_its_end(terminal: Terminal, world: World) -> None:
    with mounting(world) as child:
        ended = terminal.run("cancel", "r1")
        os.waitpid(child, 0)
    assert (ended.status, ended.stdout) == (ExitStatus.OK, "run r1 was cancelled\n")
    row = world.row("r1")
    assert (row.status, row.error and row.error.exit_status) == (RunStatus.CANCELLED, ExitStatus.CANCELLED)
    assert (world.left(), world.stored()) == ([], [])


def test_a_run_that_ends_just_before_it_is_cancelled_is_told_to_have_ended(
    terminal: Terminal, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    deliver = os.kill
    with mounting(world) as child:

        def too_late(pid: int, number: int) -> None:
            deliver(child, signal.SIGTERM)
            os.waitpid(child, 0)
            deliver(pid, number)

        monkeypatch.setattr(os, "kill", too_late)
        ended = terminal.run("cancel", "r1")
    assert ended.status == ExitStatus.USAGE
    assert "run r1 has ended (status cancelled)" in ended.stderr


# --- the program itself -----------------------------------------------------------------------------------------------


def backupd(*arguments: str) -> "subprocess.CompletedProcess[str]":
    main = "from backupd.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", main, *arguments], capture_output=True, text=True, cwd=ROOT, check=False
    )


def test_version_is_a_line_or_a_document() -> None:
    assert backupd("version").stdout == f"backupd {__version__}\n"
    assert backupd("version", "--json").stdout == f'{{\n  "schema": 1,\n  "version": "{__version__}"\n}}\n'


def test_the_command_line_starts_without_the_heavy_libraries() -> None:
    heavy = {"sqlalchemy", "alembic", "pydantic", "rich", "pymysql"}
    script = "import sys, backupd.cli.main; print(*{name.partition('.')[0] for name in sys.modules})"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True).stdout
    assert heavy & set(loaded.split()) == set()


def test_a_run_loads_nothing_that_only_other_commands_work_with(tmp_path: Path) -> None:
    """Each millisecond of it is taken from the server, every night: seen at a run that finds no server."""
    configuration = tmp_path / "backupd.toml"
    configuration.write_text(
        f"""
        catalogue.path = "{tmp_path}/catalogue.sqlite"
        paths = {{ run = "{tmp_path}/run", staging = "{tmp_path}/staging", log = "{tmp_path}/log" }}
        hosts.db = {{ socket = "{tmp_path}/none.sock", user = "backup" }}
        targets.disk = {{ type = "directory", path = "{tmp_path}" }}
        jobs.nightly = {{ host = "db", targets = ["disk"], settle.probe = false }}
        """
    )
    lvm = tmp_path / "programs" / "lvm"  # of a host without volumes, whether or not this one has LVM
    lvm.parent.mkdir()
    lvm.write_text('#!/bin/sh\necho \'{"report": [{"seg": [], "pv": []}]}\'\n')
    lvm.chmod(0o755)
    (lvm.parent / "lvs").symlink_to(lvm)
    told = "import atexit, sys; atexit.register(lambda: print(*sys.modules)); from backupd.cli.main import main; main()"
    argv = [sys.executable, "-c", told, "--config", str(configuration), "run", "nightly"]
    environment = os.environ | {"PATH": f"{lvm.parent}:{os.environ['PATH']}"}
    for _ in range(2):  # the first makes the catalogue, which takes more
        ended = subprocess.run(argv, capture_output=True, text=True, cwd=ROOT, check=False, env=environment)
        assert ended.returncode == ExitStatus.REFUSED, ended.stderr
    loaded = set(ended.stdout.split())
    assert {
        "backupd.cli.run",
        "backupd.operations.backup.run",
        "backupd.wiring",
        "backupd.catalogue.store",
        "pymysql",
    } <= loaded
    elsewhere = {"alembic", "asyncssh", "boto3", "botocore", "pyrage", "fastapi", "smtplib", "apprise", "rich"}
    assert loaded & elsewhere == set()
    others = {
        "vocabulary.benches",
        "vocabulary.extents",
        "vocabulary.probes",
        "operations.measure.ground",
        "operations.measure.volume_survey",
        "operations.measure.probe_steps",
        "operations.measure.probe",
        "operations.measure.cow_comparison",
        "operations.measure.bench",
    }
    others |= {"catalogue.benches", "catalogue.costs", "catalogue.imported", "catalogue.probes"}
    others |= {"catalogue.job_status", "report.probe_table", "lvm.fullreport", "lvm.scratch"}
    others |= {"load.fileload", "load.fileprobe", "load.fio", "load.direct_reader", "cli.bench", "cli.probe", "cli.lab"}
    assert [name for name in others if importlib.util.find_spec(f"backupd.{name}") is None] == []
    assert loaded & {f"backupd.{name}" for name in others} == set()
    assert {name for name in loaded if name.startswith(("backupd.service", "backupd.lab"))} == set()


def test_the_tree_has_every_command_that_a_module_of_the_command_line_has() -> None:
    found, of_fleets = set(), set()
    for file in Path(backupd_cli.__file__).parent.glob("*.py"):
        module = importlib.import_module(f"backupd.cli.{file.stem}")
        if isinstance(getattr(module, "app", None), typer.Typer):
            found |= {file.stem} - {"main"}
            continue
        commands = {
            name
            for name, function in inspect.getmembers(module, inspect.isfunction)
            if function.__module__ == module.__name__
            and not name.startswith("_")
            and "ctx" in inspect.signature(function).parameters
        }
        if file.stem.startswith("fleet_"):
            of_fleets |= commands
        else:
            found |= commands
    without_context = {"completion", "demo", "version"}
    tree_of_all = typer.main.get_group(app).commands
    assert found | without_context == set(tree_of_all)
    fleet = tree_of_all["fleet"]
    assert isinstance(fleet, typer.core.TyperGroup)
    assert of_fleets == set(fleet.commands)


def test_a_key_error_within_a_command_is_not_taken_for_a_missing_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_name: str) -> None:
        raise KeyError("within")

    monkeypatch.setattr(tree, "import_module", broken)
    commands = typer.main.get_group(app).commands
    with pytest.raises(KeyError, match="within"):
        commands.get("run")
    assert commands.get("ruin") is None
    assert "run" in commands


def test_an_error_of_the_program_itself_ends_with_its_status(tmp_path: Path) -> None:
    ended = backupd("--config", str(tmp_path / "none.toml"), "history", "--json")
    assert ended.returncode == ExitStatus.USAGE
    assert ended.stderr.startswith("error: ")
    assert '"schema": 1' in ended.stdout


@pytest.mark.parametrize("command", [["restore", "r1", "--to"], ["verify", "r1"]])
def test_what_is_being_pruned_is_not_read(terminal: Terminal, world: World, tmp_path: Path, command: list[str]) -> None:
    world.back_up("r1")
    with world.tools.claims.removing("r1"):
        ended = terminal.run(*command, *([str(tmp_path / "to")] if command[-1] == "--to" else []))
    assert (ended.status, ended.stdout) == (ExitStatus.BUSY, "")
    assert "`backupd prune` of backup r1" in ended.stderr
