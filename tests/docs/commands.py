"""The page of all commands, from the command tree itself."""

import re
from collections.abc import Iterator, Sequence
from typing import Any

import typer.main
from typer.core import TyperArgument, TyperGroup

from backupd.cli.main import app

_RUN = """
**RUN**, wherever a command takes it, is one word:

| RUN | the run that is meant |
|---|---|
| an id, or its beginning | that run, of whatever job and machine |
| `latest` | the newest run, whatever became of it; for commands that need a backup: `latest-good` |
| `latest-good` | the newest run of which a whole copy is on a configured target: not removed, not found broken |
| `as-of=TIME` | the newest such run whose snapshot was taken at that time or earlier |

All but an id mean runs of this machine, and take a job: `latest:nightly`, `latest-good:nightly`,
`as-of=2026-11-20T12:00:nightly`. Where there are backups of several jobs, the job is required. With `--target`, a copy
on that target counts. The commands that need a backup are `restore`, `verify`, `drill`, `clone`, `copy`,
`pin` and `unpin`; for `copy` a copy on the target `--from` counts.

TIME is written as for `--since`: a date (its first moment), `2026-11-20T12:00`, with seconds, `Z` or an offset
(`2026-11-20T13:00+01:00`) if you like, or how long ago (`12h`, `7d`). Without an offset it is UTC;
in an option, a zone may follow (`'2026-11-20 13:00 Europe/Berlin'`). The time of a
snapshot is taken to be the run's end less the phases that followed the snapshot, so it may be told a little late and
never early: a backup of a later moment is not chosen. If a job's name is nothing but figures, the time must end in a
letter: `as-of=2026-11-20T12:00Z:30`. Probes and benches have ids and `latest` only."""


def page() -> str:
    """Every command with its arguments, its options and their defaults."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    return "\n".join(_lines(root)) + "\n"


def tree() -> list[tuple[tuple[str, ...], Any]]:
    """Each command that can be typed, with its path."""
    root = typer.main.get_command(app)
    assert isinstance(root, TyperGroup)
    return list(_commands((), root))


def _lines(root: TyperGroup) -> Iterator[str]:
    yield "# Commands"
    yield ""
    yield "Every command takes `--help`. Where a command takes `--json`, it then prints exactly one"
    yield "[JSON document](json.md). stdout carries results only; progress, warnings and errors go to stderr."
    yield "How a command ends is told by its [exit status](exit-statuses.md)."
    yield ""
    yield "These options stand before the command:"
    yield ""
    yield from _options(root.params)
    yield _RUN
    for path, command in _commands((), root):
        arguments = [param for param in command.params if isinstance(param, TyperArgument) and not param.hidden]
        words = ["backupd", *path, *map(_placeholder, arguments)]
        yield ""
        yield f"## {' '.join(path)}"
        yield ""
        yield f"`{' '.join(words)}{' [OPTIONS]' if _shown(command.params) else ''}`"
        for paragraph in (command.help or "").split("\n\n"):
            yield ""
            yield _text(paragraph)
        if _shown(command.params):
            yield ""
            yield from _options(command.params)


def _commands(path: tuple[str, ...], group: TyperGroup) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if command.hidden:
            continue
        if isinstance(command, TyperGroup):
            yield from _commands((*path, name), command)
        else:
            yield (*path, name), command


def _shown(params: Sequence[Any]) -> list[Any]:
    return [one for one in params if not one.hidden and (not isinstance(one, TyperArgument) or one.help)]


def _options(params: Sequence[Any]) -> Iterator[str]:
    yield "| option | default | meaning |"
    yield "|---|---|---|"
    for param in _shown(params):
        yield f"| {_names(param)} | {_default(param)} | {_cell(_text(param.help or ''))} |"


def _names(param: Any) -> str:
    if isinstance(param, TyperArgument):
        return f"`{_value(param)}`"
    value = "" if param.is_flag or param.count else f" {_value(param)}"
    return ", ".join(f"`{_cell(name + value)}`" for name in (*sorted(param.opts, key=len), *param.secondary_opts))


def _default(param: Any) -> str:
    if isinstance(param, TyperArgument):
        return "required" if param.required else ""
    if param.required:
        return "required"
    plain = isinstance(param.default, int | float | str) and param.default not in (True, False, "")
    return f"`{param.default}`" if plain and not param.count and param.show_default else ""


def _placeholder(argument: Any) -> str:
    return _value(argument) if argument.required else f"[{_value(argument)}]"


def _value(param: Any) -> str:
    return param.metavar or (param.name or "").upper().replace("_", "-")


def _text(help_text: str) -> str:
    """One paragraph as Markdown: a star or a bracket of a help text is no markup."""
    parts = re.split(r"(`[^`]+`)", " ".join(help_text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([*_<>\[\]])", r"\\\1", part) for part in parts)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")
