"""A person's terminal, joined to a machine's console.

Knows: raw mode, relaying bytes both ways. The machine gets pipes and never sees the terminal itself, so that whatever
becomes of the machine, the terminal is what it was before.
"""

import os
import select
import subprocess
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_PIECE = 64 * 1024


@contextmanager
def raw(terminal: int) -> Iterator[None]:
    """Keys go through one by one within the block, Ctrl-C too; afterwards the terminal is what it was."""
    if not os.isatty(terminal):
        yield
        return
    before = termios.tcgetattr(terminal)
    tty.setraw(terminal)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


@dataclass(slots=True)
class Relay:
    """Keyboard to machine, machine to screen; what the machine prints before the prompt goes to its log only."""

    machine: subprocess.Popen[bytes]
    log: Path
    prompt: Path  # exists once the person may see and type
    keyboard: int
    screen: int
    keyboard_open: bool = field(default=True)

    def pause(self, seconds: float) -> None:
        """Carry what there is, for at most that long when there is nothing."""
        if self.machine.stdin is None or self.machine.stdout is None:
            raise ValueError("an interactive machine has pipes")
        console = self.machine.stdout.fileno()
        at_prompt = self.prompt.exists()
        sources = [console, self.keyboard] if at_prompt and self.keyboard_open else [console]
        for source in select.select(sources, [], [], seconds)[0]:
            piece = os.read(source, _PIECE)
            if source == console:
                self._show(piece, at_prompt=at_prompt)
            elif piece:
                os.write(self.machine.stdin.fileno(), piece)
            else:
                self.keyboard_open = False

    def _show(self, piece: bytes, *, at_prompt: bool) -> None:
        with self.log.open("ab") as log:
            log.write(piece)
        if at_prompt:
            os.write(self.screen, piece)
