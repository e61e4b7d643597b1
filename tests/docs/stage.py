"""Scenes of the documentation: what is typed on a host, and what is answered, without the lab.

Each module of `tests/docs/scenes` has `play(stage)`. Most are played on the host of fakes that the tests type on, those
of `WITH_A_SERVER` on a real one. `python -m tests.docs.stage NAME` prints one as a terminal shows it;
`tests.docs.examples` puts that into the pages, and `tests/docs/test_scenes.py` says when a page has become stale.
"""

import importlib
import io
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import pytest

from backupd.catalogue import schema
from backupd.vocabulary.identity import Machine
from tests.cli.terminal import Terminal
from tests.fakes.target import MACHINE
from tests.story.world import World

ON_FAKES = (
    *("auditor", "cow_area", "credentials", "fleet", "identity", "moving", "proof_host", "restore", "service"),
    "volumes",
)
WITH_A_SERVER = ("archive",)
SCENES = (*ON_FAKES, *WITH_A_SERVER)
HEADING = "## "  # before the name of something that is shown and was not typed, such as a mail


class Stage:
    """What has been shown so far. Folders of this machine stand as the short ones that the reader is to imagine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.text = ""
        self._names: dict[str, str] = {}

    def call(self, folder: Path | str, name: str) -> None:
        """From now on whatever has this name on this machine is shown by that one."""
        self._names[str(folder)] = name

    def typed(self, line: str, answer: str) -> None:
        """A command line, and what the terminal showed then."""
        self._show(f"$ {line}", answer)

    def shown(self, name: str, text: str) -> None:
        """What reached a person on another way."""
        self._show(f"{HEADING}{name}", text)

    def _show(self, head: str, text: str) -> None:
        part = f"\n{head}\n{text.rstrip()}\n"
        for own in sorted(self._names, key=len, reverse=True):
            part = part.replace(own, self._names[own])
        self.text += part


class Host:
    """A host of fakes, on which a person types."""

    def __init__(self, stage: Stage, world: World, terminal: Terminal, patch: pytest.MonkeyPatch) -> None:
        self.stage, self.world, self.terminal, self.patch = stage, world, terminal, patch

    def configure(self, text: str) -> None:
        """Further tables of its configuration."""
        with self.terminal.configuration.open("a") as file:
            file.write(f"\n{text}\n")

    def runs(self, *words: str, status: int = 0) -> str:
        """What a command printed that no reader sees; it has to end with this status."""
        ended = self.terminal.run(*words)
        assert ended.status == status, ended.stdout
        return ended.stdout

    def types(self, *words: str, status: int = 0) -> None:
        """The same for all to see."""
        self.stage.typed(" ".join(["backupd", *words]), self.runs(*words, status=status))


@contextmanager
def host(stage: Stage, name: str = "db1") -> Iterator[Host]:
    """A host on which a backup would go well; its folders are shown as those below /srv."""
    folder = stage.folder / str(len(list(stage.folder.iterdir())))
    folder.mkdir()
    stage.call(folder, "/srv")
    world = World(folder, machine=Machine(name, {"machine-id": "a1"}, boot_id="first boot"))
    digits = MACHINE.rpartition("-")[2]
    with pytest.MonkeyPatch.context() as patch, _screen(patch) as screen:
        patch.setattr(schema, "new_name", lambda host: f"{host}-{digits}")
        patch.setattr(socket, "gethostname", lambda: name)
        patch.setenv("COLUMNS", "100")
        yield Host(stage, world, Terminal(world, patch, cast("pytest.CaptureFixture[str]", screen)), patch)


def played(name: str, folder: Path) -> str:
    """What this scene shows; `folder` is empty, and left to whoever made it."""
    stage = Stage(folder)
    importlib.import_module(f"tests.docs.scenes.{name}").play(stage)
    return stage.text


class _Screen:
    """Both streams in the order in which they were written, as a terminal has them."""

    def __init__(self) -> None:
        self.stream = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)

    def readouterr(self) -> tuple[str, str]:
        text = self.stream.buffer.getvalue().decode()
        self.stream.seek(0)
        self.stream.truncate()
        return text, ""


@contextmanager
def _screen(patch: pytest.MonkeyPatch) -> Iterator[_Screen]:
    screen = _Screen()
    patch.setattr(sys, "stdout", screen.stream)
    patch.setattr(sys, "stderr", screen.stream)
    yield screen


def main() -> None:
    """Print the scene that is named."""
    with tempfile.TemporaryDirectory(prefix="backupd-scene-") as folder:
        text = played(sys.argv[1], Path(folder))
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
