"""`backupd manual` and `backupd completion`: what a package installs beside the program, made from the command tree.

Knows: how a tree of commands becomes a page of man(7).
"""

import re
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperGroup, TyperOption

from backupd import __version__
from backupd.cli.output import print_text
from backupd.vocabulary.errors import ExitStatus

_NAME = "backupd"
_CODE = re.compile(r"`([^`]+)`")
_RESERVED = {"\\": r"\(rs", "-": r"\-", "'": r"\(aq", "`": r"\(ga", "^": r"\(ha", "~": r"\(ti", '"': r"\(dq"}


class Shell(StrEnum):
    """Shells that can complete our commands."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def manual(ctx: typer.Context) -> None:
    """Print the man page, to read with `backupd manual | man -l -` or to install as backupd.1."""
    root = ctx.find_root().command
    assert isinstance(root, TyperGroup)
    print_text("\n".join(page(root)))


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion script for SHELL; try it with `. <(backupd completion bash)`."""
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # theirs, made elsewhere

    print_text(get_completion_script(prog_name=_NAME, complete_var=f"_{_NAME.upper()}_COMPLETE", shell=shell.value))


def page(root: TyperGroup) -> Iterator[str]:
    """The lines of the man page of this tree, in ASCII; the same for the same version of backupd."""
    yield f'.TH BACKUPD 1 "" "backupd {_roff(__version__)}" "User Commands"'
    yield ".nh"  # what a person may copy is not broken by hyphens
    yield from (".SH NAME", _roff(f"{_NAME} - {_lower(root.help or '')}"))
    yield from (".SH SYNOPSIS", rf".B {_NAME}", r"[\fIOPTIONS\fR] \fICOMMAND\fR [\fIARGUMENTS\fR]...")
    yield from (".SH OPTIONS", "Options go before the command.")
    yield from _params(root.params)
    yield ".SH COMMANDS"
    yield from _commands((_NAME,), root)
    yield ".SH EXIT STATUS"
    for status in ExitStatus:
        yield from _item(str(status.value), status.meaning)
    yield ".SH ENVIRONMENT"
    for variable, meaning in sorted(_variables(root).items()):
        yield from _item(variable, meaning)
    yield ".SH FILES"
    for path, meaning in _files():
        yield from _item(path, meaning)
    yield from (".SH SEE ALSO", r".BR lvm (8),", r".BR sysbench (1),", r".BR age (1),", r".BR systemd.service (5)")


def _commands(path: tuple[str, ...], group: TyperGroup) -> Iterator[str]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if isinstance(command, TyperGroup):
            yield from _commands((*path, name), command)
            continue
        arguments = [param for param in command.params if isinstance(param, TyperArgument) and not param.hidden]
        words = [_bold(" ".join((*path, name))), *map(_placeholder, arguments)]
        yield f".SS {' '.join(words)}".replace('"', "")
        for paragraph in (command.help or "").split("\n\n"):
            yield from (".PP", _text(paragraph))
        yield from _params(command.params)


def _params(params: Sequence[Any]) -> Iterator[str]:
    """Each argument that has a help text, and each option: its names, its value, what it does, its default."""
    for param in params:
        if param.hidden or (isinstance(param, TyperArgument) and not param.help):
            continue
        words = [_text(param.help or "")]
        if isinstance(param, TyperArgument):
            yield from (".TP", _italic(_value(param)), *words)
            continue
        names = ", ".join(map(_bold, sorted(param.opts, key=len) + param.secondary_opts))
        plain = isinstance(param.default, int | float | str) and param.default not in (True, False, "")
        if param.required:
            words.append("Required.")
        elif plain and not param.count and param.show_default:
            words.append(f"By default {_roff(str(param.default))}.")
        value = "" if param.is_flag or param.count else f" {_italic(_value(param))}"
        yield from (".TP", names + value, " ".join(words))


def _placeholder(argument: TyperArgument) -> str:
    name = _italic(_value(argument))
    return name if argument.required else f"[{name}]"


def _value(param: TyperArgument | TyperOption) -> str:
    """What stands for its value."""
    return param.metavar or (param.name or "").upper().replace("_", "-")


def _variables(group: TyperGroup) -> dict[str, str]:
    """The environment variables that stand for options, and the one that names the configuration."""
    from backupd.config.documents import VARIABLE

    found = {VARIABLE: "Configuration file, if --config is not given."}
    for command in group.commands.values():
        if isinstance(command, TyperGroup):
            found |= _variables(command)
        for param in command.params:
            if isinstance(param, TyperOption) and isinstance(param.envvar, str) and not param.hidden:
                found[param.envvar] = f"{param.help} Instead of {param.opts[0]}."
    return found


def _files() -> list[tuple[str, str]]:
    from backupd.config import DEFAULT_PATH, Configuration

    places = Configuration()
    return [
        (str(DEFAULT_PATH), "The configuration; `backupd config init` writes a commented one."),
        (str(places.catalogue.path), "The catalogue, unless the configuration names another."),
        (str(places.paths.log), "Logs, one file per run, likewise."),
        (str(places.paths.run), "Lock files, mount points and progress of live runs, likewise."),
    ]


def _item(name: str, meaning: str) -> tuple[str, ...]:
    return ".TP", _bold(name), _text(meaning)


def _text(help_text: str) -> str:
    """Running text, with what is in backticks in bold."""
    parts = _CODE.split(" ".join(help_text.split()))
    return "".join(_bold(part) if number % 2 else _roff(part) for number, part in enumerate(parts))


def _bold(text: str) -> str:
    return rf"\fB{_roff(text)}\fR"


def _italic(text: str) -> str:
    return rf"\fI{_roff(text)}\fR"


def _lower(text: str) -> str:
    """As NAME has it: without a capital and a full stop."""
    return text[:1].lower() + text[1:].rstrip(".")


def _roff(text: str) -> str:
    """This text and no request, in ASCII."""
    escaped = "".join(_RESERVED.get(char, char if char.isascii() else rf"\[u{ord(char):04X}]") for char in text)
    return rf"\&{escaped}" if escaped.startswith(".") else escaped
