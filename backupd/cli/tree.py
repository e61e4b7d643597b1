"""Every command's name, and the module that it is in, which is imported when the command is looked up.

Knows: that one process runs one command; importing all the others would cost each of them a tenth of a second. How a
command is called is said in its module, by the function of that name or by `app`, a group of commands.
"""

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, ClassVar

import typer
from typer.core import TyperGroup
from typer.exceptions import TyperException
from typer.main import get_group

from backupd.host.marked_processes import SLOT_VARIABLE
from backupd.vocabulary.escaping import indented

_MODULES = {  # in the order of the help
    "run": "run",
    "cancel": "run",
    "check": "check",
    "probe": "probe",
    "status": "status",
    "history": "history",
    "show": "history",
    "verify": "verify",
    "restore": "restore",
    "drill": "drill",
    "prove": "prove",
    "clone": "clone",
    "copy": "copy",
    "prune": "prune",
    "pin": "prune",
    "unpin": "prune",
    "recover": "recover",
    "serve": "serve",
    "fleet": "fleet",
    "metrics": "metrics",
    "manual": "manual",
    "completion": "manual",
    "report": "report",
    "compare": "compare",
    "log": "log",
    "volumes": "volumes",
    "demo": "demo",
    "version": "version",
    "config": "config",
    "catalogue": "catalogue",
    "identity": "identity",
    "schedule": "schedule",
    "notify": "notify",
    "binlog": "binlog",
    "audit": "audit",
    "bench": "bench",
    "agent": "agent",
    "lab": "lab",
}


class LazyGroup(TyperGroup):
    """A group whose commands are each in a module that is imported when the command is looked up."""

    modules: ClassVar[Mapping[str, str]]  # of `backupd.cli`, by the names of the commands, in the order of the help

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        self.commands = _Commands(self.modules)  # type: ignore[assignment]  # they are all there: none is added


class CommandTree(LazyGroup):
    """`backupd` with all its commands."""

    modules = _MODULES

    def make_context(self, *given: Any, **how: Any) -> Any:
        """As typer's; what it refuses of the options before a command it refuses in plain words."""
        with _refused_plainly():
            return super().make_context(*given, **how)

    def invoke(self, ctx: Any) -> Any:
        """As typer's; likewise of a command and what stands behind it."""
        with _refused_plainly():
            if SLOT_VARIABLE not in os.environ:
                return super().invoke(ctx)
            from backupd.cli.slot_status import status_kept

            with status_kept(ctx.params["config"]):
                return super().invoke(ctx)


@contextmanager
def _refused_plainly() -> Iterator[None]:
    """Typer shows what was typed as it was; on a terminal that acts."""
    try:
        yield
    except TyperException as refused:
        said = (refused.message or "").replace("Value error, ", "")
        one_word = "\nhint: write as-of=TIME as one word" if "as-of" in sys.argv and "extra argument" in said else ""
        refused.message = indented(said) + one_word
        raise


class _Commands(Mapping[str, Any]):
    """The commands by their names; one is made when it is looked up."""

    def __init__(self, modules: Mapping[str, str]) -> None:
        self._modules = modules
        self._made: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            module, part = import_module(f"backupd.cli.{self._modules[name]}"), typer.Typer(rich_markup_mode=None)
            if isinstance(group := getattr(module, "app", None), typer.Typer):
                part.add_typer(group, name=name)
            else:
                part.command(name)(getattr(module, name))
            self._made |= get_group(part).commands
        return self._made[name]

    def get(self, name: str, default: Any = None) -> Any:
        """The same; by itself a mapping takes any KeyError, one within the command's module too, for a missing name."""
        return self[name] if name in self._modules else default

    def __contains__(self, name: object) -> bool:
        return name in self._modules

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __len__(self) -> int:
        return len(self._modules)
