"""Programs before and after the phases of a run: what they get, when they run, and what they can bring about."""

import errno
import json
import os
import resource
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from backupd.config import CopyConfig, HookConfig, HookPoint, JobConfig, LimitsConfig
from backupd.host.hooks import Hooks
from backupd.host.process import start_time
from backupd.host.signals import cancellable
from backupd.vocabulary.errors import BackupdError, Cancelled, GaveUp, Refused, SnapshotError, SnapshotVoid
from backupd.vocabulary.records import Phase, RunStatus
from tests.processes import children
from tests.story.world import World

POINTS = [point.value for point in HookPoint]
BEFORE = [point for point in POINTS if point.startswith("before-")]
AFTER = [point for point in POINTS if point.startswith("after-") and point != "after-run"]

Script = Callable[[str], Path]


@pytest.fixture
def script(tmp_path: Path) -> Script:
    """A program of these lines of shell."""

    def write(lines: str) -> Path:
        path = tmp_path / f"hook{len(list(tmp_path.glob('hook*')))}"
        path.write_text(f"#!/bin/sh\ncd {tmp_path}\n{lines}\n")
        path.chmod(0o755)
        return path

    return write


def hook(program: Path, *when: str, name: str = "one", **how: Any) -> dict[str, HookConfig]:
    points = tuple(HookPoint(point) for point in when)
    return {name: HookConfig(name=name, when=points, command=(str(program), "an argument; rm -rf"), **how)}


def job(world: World, hooks: Mapping[str, HookConfig]) -> JobConfig:
    return world.job(hooks=hooks, copy=CopyConfig(spool=world.spool))  # it has every phase


def lines(path: Path) -> Sequence[str]:
    return path.read_text().splitlines() if path.exists() else []


def test_a_hook_runs_at_every_point_in_the_order_of_the_run(world: World, script: Script, tmp_path: Path) -> None:
    program = script('echo "$BACKUPD_POINT $BACKUPD_PHASE $BACKUPD_STATUS" >>order')
    row = world.back_up(job=job(world, hook(program, *POINTS)))
    phases = ["preflight", "baseline", "lock", "settle", "copy", "release", "send", "verify"]
    around = [f"{side}-{phase} {phase} running" for phase in phases for side in ("before", "after")]
    assert lines(tmp_path / "order") == ["before-run  running", *around, "after-run  success"]
    assert (row.status, world.left()) == (RunStatus.SUCCESS, [])


def test_the_time_that_hooks_take_does_not_make_the_snapshot_younger(
    world: World, script: Script, tmp_path: Path
) -> None:
    """A restore to a moment looks for the place of the backup in what was archived at that time."""
    program = script('test "$BACKUPD_POINT" = after-lock || sleep 1.2; date +%s.%N >>"$BACKUPD_POINT"')
    row = world.back_up(job=job(world, hook(program, "after-lock", "after-verify", "after-run")))
    assert row.snapshot is not None
    assert row.snapshot.taken_at is not None
    assert row.snapshot_by is not None
    assert row.started_at < row.snapshot.taken_at <= row.snapshot_by
    assert row.snapshot.taken_at.timestamp() < float(lines(tmp_path / "after-lock")[0])
    section = world.target.manifest("nightly", "r1").run.snapshot
    assert section is not None
    assert section.taken_at == row.snapshot.taken_at


def test_none_runs_while_the_server_is_locked_or_its_lvm_shell_is_warm(world: World, script: Script) -> None:
    seen: list[str] = []
    mark = script('echo "$BACKUPD_POINT" >>order')
    order = mark.parent / "order"

    def look(event: str) -> None:
        seen.append(f"{event} after {lines(order)[-1]}")

    for event in ("host.prepared", "lock.asked", "lock.granted", "host.create", "lock.ended"):
        world.at[event] = partial(look, event)
    world.back_up(job=job(world, hook(mark, *POINTS)))
    assert seen
    assert all(what.endswith(" after before-lock") for what in seen)


def test_a_hook_gets_data_in_its_environment_and_on_stdin_and_nothing_else(
    world: World, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DB1_PASSWORD", "c4n4ry")
    program = script('cat >document; env >environment; echo "$1" >arguments')
    world.back_up("r7", job=job(world, hook(program, "before-verify")))
    document = json.loads((tmp_path / "document").read_text())
    assert {key: document[key] for key in ("schema", "hook", "point", "job", "run_id", "phase", "status", "error")} == {
        "schema": 1,
        "hook": "one",
        "point": "before-verify",
        "job": "nightly",
        "run_id": "r7",
        "phase": "verify",
        "status": "running",
        "error": None,
    }
    assert document["run"]["position"]["binlog_file"]
    environment = dict(line.split("=", 1) for line in lines(tmp_path / "environment"))
    assert environment["BACKUPD_RUN_ID"] == "r7"
    assert environment["BACKUPD_HOOK"] == "one"
    assert "c4n4ry" not in environment.values()
    assert lines(tmp_path / "arguments") == ["an argument; rm -rf"]


@pytest.mark.parametrize("point", BEFORE)
def test_a_hook_that_fails_before_something_ends_the_run_and_nothing_is_left(
    world: World, script: Script, tmp_path: Path, point: str
) -> None:
    stop = hook(script("echo not tonight >&2; exit 7"), point)
    last = hook(script('echo "$BACKUPD_STATUS" >last; cat >document'), "after-run", name="last")
    error = world.try_to_back_up(job=job(world, {**stop, **last}))
    touched = point not in {"before-run", "before-preflight", "before-baseline"}
    assert type(error) is (GaveUp if touched else Refused)
    assert error.message.startswith(f"hook one ended the run ({point}): ")
    assert error.message.endswith("ended with status 7: not tonight")
    status = RunStatus.FAILED if touched else RunStatus.REFUSED
    assert world.row().status is status
    assert lines(tmp_path / "last") == [status]
    assert "not tonight" in json.loads((tmp_path / "document").read_text())["error"]["message"]
    assert (world.left(), world.stored()) == ([], [])


@pytest.mark.parametrize("point", [*AFTER, "after-run"])
def test_a_hook_that_fails_after_something_wants_attention(world: World, script: Script, point: str) -> None:
    row = world.back_up(job=job(world, hook(script("exit 1"), point)))
    assert row.status is RunStatus.ATTENTION
    (text,) = row.attention
    assert text.startswith(f"hook one failed ({point}): ")
    assert text.endswith("ended with status 1: (no output)")
    assert world.left() == []


def test_no_hook_follows_a_phase_that_failed_but_the_last_one_does(
    world: World, script: Script, tmp_path: Path
) -> None:
    world.host.fail("mount")
    program = script('echo "$BACKUPD_POINT $BACKUPD_STATUS" >>order')
    assert world.try_to_back_up(job=job(world, hook(program, "after-copy", "before-release", "after-run"))) is not None
    assert lines(tmp_path / "order") == ["after-run failed"]


@pytest.mark.parametrize(
    "lines_of_it", ["exec sleep 60", "sleep 60 & wait", "exec >&- 2>&-; sleep 60", "trap '' TERM; sleep 60"]
)
def test_a_hook_that_does_not_end_is_ended(
    world: World, script: Script, lines_of_it: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("backupd.host.process._GRACE_SECONDS", 0.1)
    program = script(lines_of_it)
    began, before = time.monotonic(), children()
    error = world.try_to_back_up(job=job(world, hook(program, "before-copy", timeout_seconds=0.1)))
    assert error is not None
    assert "did not end within 0.1 s" in error.message
    assert time.monotonic() - began < 40
    assert children() <= before
    assert (world.left(), world.stored()) == ([], [])


def test_a_hook_may_print_without_end_and_its_last_words_are_kept(world: World, script: Script) -> None:
    program = script("head -c 20000000 /dev/zero | tr '\\0' x; echo; echo the end; exit 3")
    error = world.try_to_back_up(job=job(world, hook(program, "before-run")))
    assert error is not None
    assert error.message.endswith("the end")
    assert len(error.message) < 3000


def test_a_hook_need_not_read_its_stdin(world: World, script: Script) -> None:
    assert world.back_up(job=job(world, hook(script("exec <&-"), *POINTS))).status is RunStatus.SUCCESS


def no_room(*_given: object, **_named: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_tmp_costs_no_hook(
    world: World, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server's temporary tables fill it."""
    monkeypatch.setattr(tempfile, "TemporaryFile", no_room)
    row = world.back_up(job=job(world, hook(script('cat >"$BACKUPD_POINT"'), *POINTS)))
    assert row.status is RunStatus.SUCCESS
    assert {json.loads((tmp_path / point).read_text())["point"] for point in POINTS} == set(POINTS)


@pytest.fixture
def no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """None of the hooks' documents finds room."""
    monkeypatch.setattr(os, "memfd_create", no_room)


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize("point", ["after-baseline", "after-copy", "after-run"])
def test_no_room_for_what_a_hook_is_told_after_something_wants_attention(
    world: World, script: Script, point: str
) -> None:
    row = world.back_up(job=job(world, hook(script(""), point)))
    assert (row.status, row.backup is not None) == (RunStatus.ATTENTION, True)
    assert row.attention == (f"hook one failed ({point}): no program can be started: no space left on device",)


@pytest.mark.usefixtures("no_memory")
@pytest.mark.parametrize(("point", "kind"), [("before-baseline", Refused), ("before-copy", GaveUp)])
def test_no_room_for_what_a_hook_is_told_before_something_ends_the_run(
    world: World, script: Script, point: str, kind: type[BackupdError]
) -> None:
    error = world.try_to_back_up(job=job(world, hook(script(""), point)))
    assert type(error) is kind
    assert error.message.startswith(f"hook one ended the run ({point}): ")
    assert (world.left(), world.stored()) == ([], [])


@pytest.mark.usefixtures("no_memory")
def test_what_ended_a_run_is_told_although_the_last_hook_cannot_be_run(world: World, script: Script) -> None:
    world.host.fail("mount")
    error = world.try_to_back_up(job=job(world, hook(script(""), "after-run")))
    assert isinstance(error, SnapshotError)
    told = world.row().error
    assert told is not None
    assert told.code == error.code


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    """More are open than select(2) can tell apart."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard if hard < 4096 else 4096, hard))
    with ExitStack() as opened:
        for _ in range(1100):
            opened.callback(os.close, os.open("/dev/null", os.O_RDONLY))
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
def test_a_hook_is_heard_where_many_descriptors_are_open(world: World, script: Script) -> None:
    error = world.try_to_back_up(job=job(world, hook(script("sleep 0.2; echo not tonight; exit 3"), "before-run")))
    assert error is not None
    assert error.message.endswith("ended with status 3: not tonight")


@pytest.mark.parametrize("status", [0, 3])
def test_what_a_hook_leaves_in_the_background_ends_with_it(
    world: World, script: Script, tmp_path: Path, status: int
) -> None:
    program = script(f"sleep 60 & echo $! >pid; exit {status}")
    row = world.back_up(job=job(world, hook(program, "after-copy")))
    assert row.status is (RunStatus.ATTENTION if status else RunStatus.SUCCESS)
    assert start_time(int((tmp_path / "pid").read_text())) is None


@pytest.mark.parametrize("mode", [None, 0o644])
def test_a_program_that_cannot_be_run_is_found_before_anything_is_touched(
    world: World, script: Script, mode: int | None
) -> None:
    program = script("")
    program.unlink() if mode is None else program.chmod(mode)
    error = world.try_to_back_up(job=job(world, hook(program, "after-copy")))
    assert isinstance(error, Refused)
    assert f"hook one: {program} does not exist or is not executable" in error.message
    assert world.database.locked is False
    assert (world.left(), world.stored()) == ([], [])


def test_a_program_that_is_missing_before_the_run_refuses_it(world: World, tmp_path: Path) -> None:
    error = world.try_to_back_up(job=job(world, hook(tmp_path / "missing", "before-run")))
    assert isinstance(error, Refused)
    assert "No such file or directory" in error.message


@pytest.mark.parametrize("point", [*BEFORE, *AFTER])
def test_a_stop_signal_ends_a_hook_with_its_run(world: World, script: Script, tmp_path: Path, point: str) -> None:
    program = script(f"kill -TERM {os.getpid()}; exec sleep 60")
    last = hook(script('echo "$BACKUPD_STATUS" >last'), "after-run", name="last")
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    before = children()
    with pytest.raises(Cancelled), cancellable():
        world.back_up(job=job(world, {**hook(program, point), **last}))
    published = point == "after-verify"  # a backup that is there stays one
    assert world.row().status is (RunStatus.ATTENTION if published else RunStatus.CANCELLED)
    assert lines(tmp_path / "last") == [world.row().status]
    assert children() <= before
    assert (world.left(), world.stored() != []) == ([], published)


def test_a_limit_that_is_passed_while_a_hook_runs_ends_both(world: World, script: Script, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "begun")
    program = script("echo >begun; exec sleep 60")

    def overflow() -> None:
        (tmp_path / "begun").read_text()
        world.host.invalidate("backupd-r1")

    filler = threading.Thread(target=overflow, daemon=True)
    filler.start()
    error = world.try_to_back_up(job=job(world, hook(program, "after-settle")))
    filler.join()
    assert isinstance(error, SnapshotVoid)
    assert (world.left(), world.stored()) == ([], [])


@pytest.mark.parametrize("how", ["it is void", "a limit was passed"])
def test_once_the_copy_is_whole_a_limit_ends_the_hook_alone(
    world: World, script: Script, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more is read from the snapshot: no further hook keeps it, and the copy is kept."""
    monkeypatch.setattr("backupd.load.observer._LAG_SECONDS", 0.1)
    os.mkfifo(tmp_path / "begun")
    program = script("echo >begun; exec sleep 60")

    def happen() -> None:
        (tmp_path / "begun").read_text()
        if how == "it is void":
            world.host.invalidate("backupd-r1")
        else:
            world.database.lag_seconds = 61.0

    before = children()
    wrong = threading.Thread(target=happen, daemon=True)
    wrong.start()
    limits = LimitsConfig(max_replica_lag_seconds=60.0)
    hooks = {
        **hook(program, "after-copy", timeout_seconds=50.0),
        **hook(script('echo "$BACKUPD_HOOK" >>order'), "after-copy", name="two"),
        **hook(script('echo "$BACKUPD_HOOK" >>order'), "after-copy", name="three"),
        **hook(script("echo undone >>order"), "before-release", name="undo"),
    }
    row = world.back_up(job=replace(job(world, hooks), limits=limits))
    wrong.join()
    assert (row.status, row.backup is not None) == (RunStatus.ATTENTION, True)
    ended, others = [text for text in row.attention if text.startswith("hook")]
    reason = "the snapshot is no longer intact" if how == "it is void" else "replica lag is 61 s"
    assert ended.startswith(f"hook one was ended early (after-copy): {reason}")
    assert others.startswith(f"hooks two, three were not run (after-copy): {reason}")
    assert ended.endswith("; the copy is complete")
    assert lines(tmp_path / "order") == ["undone"]
    assert children() <= before
    assert world.left() == []


@pytest.mark.parametrize("side", ["before", "after"])
def test_no_hook_begins_once_a_limit_was_passed(script: Script, tmp_path: Path, side: str) -> None:
    nobody: Any = None  # no record is asked what the hook is to be told
    hooks = Hooks(hook(script("echo >begun"), f"{side}-settle").values(), nobody)

    def waiting() -> None:
        raise GaveUp("a limit was passed")

    with pytest.raises(GaveUp):
        getattr(hooks, side)(Phase.SETTLE, waiting=waiting)
    assert not (tmp_path / "begun").exists()


def test_a_hook_before_the_release_is_cut_short_by_nothing_that_befalls_the_snapshot(
    world: World, script: Script, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It undoes what an earlier one did: half of that is worse than a snapshot for as long as its timeout."""
    monkeypatch.setattr("backupd.load.observer._LAG_SECONDS", 0.1)
    os.mkfifo(tmp_path / "begun")
    os.mkfifo(tmp_path / "wrong")
    program = script("echo >begun; cat wrong; sleep 0.5; echo done >order")

    def happen() -> None:
        (tmp_path / "begun").read_text()
        world.host.invalidate("backupd-r1")
        world.database.lag_seconds = 61.0
        (tmp_path / "wrong").write_text("")

    wrong = threading.Thread(target=happen, daemon=True)
    wrong.start()
    limits = LimitsConfig(max_replica_lag_seconds=60.0)
    row = world.back_up(job=replace(job(world, hook(program, "before-release", timeout_seconds=50.0)), limits=limits))
    wrong.join()
    assert (row.status, row.attention) == (RunStatus.SUCCESS, ())
    assert lines(tmp_path / "order") == ["done"]
    assert world.left() == []
