"""One command of backupd under fire.

`python -m tests.fire.under_fire --record FILE -- run nightly` has every point that the command comes by in FILE, a line
of JSON each; `--fault HOW:WHEN:ORDINAL:NAME` has that happen, and `--log FILE` what became of it. A fault that is not
met changes nothing: the log then says nothing of it.

`started` does the same in a child of a process that has loaded backupd's modules already, which takes a tenth of the
time.
"""

import argparse
import atexit
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.fire.doors import all_doors
from tests.fire.injecting import Fire
from tests.fire.points import Fault

Planted = Callable[[], None]
_CRASHED = 70


@dataclass(frozen=True, slots=True)
class Order:
    """A command, and what is to become of it."""

    words: tuple[str, ...]
    log: Path | None = None
    fault: Fault | None = None
    recording: bool = False
    planted: Planted | None = None  # a fault of the product itself, which a campaign has to find
    modules: Path | None = None  # is told what was loaded by its end


@contextmanager
def under_fire(order: Order) -> Iterator[None]:
    """Within the block this process is under fire."""
    with ExitStack() as owed:
        log = None
        if order.log is not None:
            log = os.open(order.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
            owed.callback(os.close, log)
        if order.planted is not None:
            order.planted()
        if order.log is not None or order.fault is not None:
            owed.enter_context(all_doors(Fire(fault=order.fault, log=log, recording=order.recording)))
        yield


def started(order: Order, output: Path) -> int:
    """The command goes on in a child of ours, in a session of its own; its pid.

    What it prints is in `output.out` and `output.err`.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os._exit(_as_child(order, output))
    return pid


def _as_child(order: Order, output: Path) -> int:
    """It never returns into what its parent was doing."""
    try:
        os.setsid()
        for number, suffix in ((1, "out"), (2, "err")):
            file = os.open(output.with_suffix(f".{suffix}"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            os.dup2(file, number)
            os.close(file)
        # Where pytest captures, Python's own streams and its log lead elsewhere.
        logging.getLogger().handlers.clear()
        sys.stdout, sys.stderr = (os.fdopen(number, "w", buffering=1, closefd=False) for number in (1, 2))
        with under_fire(order):
            status = _status_of(order.words)
        if order.modules is not None:
            order.modules.write_text("\n".join(sys.modules), encoding="utf-8")
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - a child that goes on would do its parent's work a second time
        traceback.print_exc()
        sys.stderr.flush()
        return _CRASHED
    return status


def _status_of(words: Sequence[str]) -> int:
    from backupd.cli.main import main

    sys.argv = ["backupd", *words]
    try:
        main()
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    return 0


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fire.under_fire")
    parser.add_argument("--record", type=Path)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--fault", type=Fault.parse)
    parser.add_argument("words", nargs="+", metavar="COMMAND")
    asked = parser.parse_args()
    log = asked.record or asked.log
    with under_fire(Order(tuple(asked.words), log, asked.fault, recording=asked.record is not None)):
        return _status_of(asked.words)


if __name__ == "__main__":
    sys.exit(_main())
