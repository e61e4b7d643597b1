"""One read, several targets: each has all of it or nothing, and the failure of one is its own."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from backupd.operations.copies import fan_out as copying
from backupd.operations.copies.fan_out import Copies
from backupd.vocabulary.errors import CatalogueError, GaveUp, TargetError, VerificationError
from tests.fakes.target import MemoryTarget

BLOCKS = [bytes([number]) * 1000 for number in range(40)]  # more than a queue holds
WHOLE = b"".join(BLOCKS)


@dataclass
class HangingTarget(MemoryTarget):
    """Does not take a byte until it is let go on."""

    go_on: threading.Event = field(default_factory=threading.Event)

    def _call(self) -> None:
        super()._call()
        if threading.current_thread() is not threading.main_thread():
            self.go_on.wait(10)


def content(target: MemoryTarget, name: str = "data") -> bytes | None:
    assert target.writing_now == set()
    return target.stored.get(("nightly", "r1", name))


def write(copies: Copies, name: str = "data", idle: Callable[[], None] = lambda: None) -> None:
    with copies.open_object(name, idle=idle) as sink:
        for block in BLOCKS:
            sink.write(block)


def threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("backupd")]


def test_every_target_has_every_byte_and_no_thread_is_left() -> None:
    targets = [MemoryTarget(name=name) for name in "abc"]
    with Copies(targets, "nightly", "r1") as copies:
        write(copies)
        assert copies.targets == tuple(targets)
    assert [content(target) for target in targets] == [WHOLE] * 3
    assert threads() == []


def test_what_each_target_took_is_told() -> None:
    with Copies([MemoryTarget(name="a"), MemoryTarget(name="b")], "nightly", "r1") as copies:
        write(copies, "data")
        write(copies, "binlog")
        told = copies.throughput
    assert [(stage.stage, stage.bytes) for stage in told] == [("write:a", 2 * len(WHOLE)), ("write:b", 2 * len(WHOLE))]
    assert all(stage.busy_seconds > 0 for stage in told)


@pytest.mark.parametrize("call", range(1, len(BLOCKS) + 3))
def test_a_target_that_fails_at_any_call_drops_out_and_the_others_have_everything(call: int) -> None:
    good, bad = MemoryTarget(name="good"), MemoryTarget(name="bad", fail_at_call=call)
    with Copies([bad, good], "nightly", "r1") as copies:
        write(copies)
        assert copies.targets == (good,)
        assert {name: error.message for name, error in copies.lost.items()} == {
            "bad": f"target bad failed at call {call}"
        }
    assert (content(good), content(bad)) == (WHOLE, None)


def test_a_target_that_dropped_out_is_asked_for_no_further_object() -> None:
    good, bad = MemoryTarget(name="good"), MemoryTarget(name="bad", fail_at_call=3)
    with Copies([good, bad], "nightly", "r1") as copies:
        write(copies, "first")
        calls = bad.calls
        write(copies, "second")
    assert (content(good, "second"), bad.calls) == (WHOLE, calls)


def test_a_target_that_drops_out_ends_its_other_objects_too() -> None:
    """Several objects are open at once; whatever waits for its next block must not wait for ever."""
    good, bad = MemoryTarget(name="good"), MemoryTarget(name="bad")
    with (
        Copies([good, bad], "nightly", "r1") as copies,
        copies.open_object("first") as first,
        copies.open_object("second") as second,
    ):
        second.write(BLOCKS[0])
        bad.free_bytes = 0
        first.write(BLOCKS[0])
        while len(threads()) > 2:
            time.sleep(0.001)
        second.write(BLOCKS[1])
    assert (content(good, "second"), content(bad, "second")) == (BLOCKS[0] + BLOCKS[1], None)


def test_without_a_target_left_the_first_error_is_raised_and_the_others_are_told() -> None:
    first, second = MemoryTarget(name="first", fail_at_call=2), MemoryTarget(name="second", fail_at_call=30)
    with (
        Copies([first, second], "nightly", "r1") as copies,
        pytest.raises(TargetError, match="target first failed") as raised,
    ):
        write(copies)
    assert raised.value.__notes__ == ["target second: target second failed at call 30"]
    assert (content(first), content(second), threads()) == (None, None, [])


def test_a_target_s_error_is_raised_however_slowly_it_becomes_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread stands still on its way to tell it, and blocks go on to be written."""
    known, tell = threading.Event(), Copies._failed

    def slowly(copies: Copies, writer: copying._Writer, error: BaseException) -> None:
        known.wait(0.3)
        tell(copies, writer, error)
        known.set()

    monkeypatch.setattr(Copies, "_failed", slowly)
    with (
        pytest.raises(TargetError, match="target bad failed at call 3"),
        Copies([MemoryTarget(name="bad", fail_at_call=3)], "nightly", "r1") as copies,
        copies.open_object("data") as sink,
    ):
        while not known.is_set():
            sink.write(BLOCKS[0])
        sink.write(BLOCKS[0])


def test_an_error_of_the_reader_leaves_nothing_on_any_target() -> None:
    targets = [MemoryTarget(name="a"), MemoryTarget(name="b")]
    with (
        Copies(targets, "nightly", "r1") as copies,
        pytest.raises(KeyboardInterrupt),
        copies.open_object("data") as sink,
    ):
        sink.write(BLOCKS[0])
        raise KeyboardInterrupt
    assert [content(target) for target in targets] == [None, None]
    assert threads() == []


def test_a_failure_that_is_no_target_s_ends_the_run() -> None:
    class Unwritable:
        def hold(self, _holding: object) -> None:
            raise CatalogueError("the catalogue is locked")

        def released(self, _holding: object) -> None:
            raise CatalogueError("the catalogue is locked")

    class Uploading(MemoryTarget):
        def _call(self) -> None:
            Unwritable().hold(None)

    good = MemoryTarget(name="good")
    with (
        Copies([good, Uploading(name="uploading")], "nightly", "r1") as copies,
        pytest.raises(CatalogueError, match="locked"),
    ):
        write(copies)
    assert (content(good), copies.lost, threads()) == (None, {}, [])


def test_a_slow_target_slows_the_run_and_a_limit_still_ends_it() -> None:
    """The main thread looks at the job's limits while it waits for a target that takes nothing."""
    looks = []

    def give_up() -> None:
        looks.append(1)
        hanging.go_on.set()
        raise GaveUp("the snapshot is nearly full")

    hanging = HangingTarget(name="hanging")
    good = MemoryTarget(name="good")
    with (
        Copies([hanging, good], "nightly", "r1") as copies,
        pytest.raises(GaveUp),
        copies.open_object("data", idle=give_up) as sink,
    ):
        sink.write(BLOCKS[0])
    assert looks == [1]
    assert (content(hanging), threads()) == (None, [])


def test_a_target_that_never_answers_is_not_taken_for_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copying, "_END_SECONDS", 0.05)
    hanging = HangingTarget(name="hanging")
    with Copies([hanging], "nightly", "r1") as copies, pytest.raises(KeyboardInterrupt), copies.open_object("data"):
        raise KeyboardInterrupt
    with pytest.raises(TargetError, match="does not answer"):
        copies.require_ended("hanging")
    hanging.go_on.set()
    while threads():
        time.sleep(0.001)
    copies.require_ended("hanging")
    assert content(hanging) is None


def test_what_fails_while_it_is_read_back_drops_its_target_only() -> None:
    targets = [MemoryTarget(name="a"), MemoryTarget(name="b")]
    with Copies(targets, "nightly", "r1") as copies:
        with copies.dropping(targets[0]):
            raise VerificationError("it is not what was written")
        copies.require_some()
        assert copies.targets == (targets[1],)
        with copies.dropping(targets[1]):
            raise TargetError("gone")
        with pytest.raises(VerificationError, match="not what was written"):
            copies.require_some()
