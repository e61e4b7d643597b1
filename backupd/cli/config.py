"""`backupd config`: write an example, say what is wrong with a file, show what is in force."""

import contextlib
import json
import os
from pathlib import Path
from typing import Annotated

import typer

import backupd
from backupd.cli.invocation import Invocation
from backupd.cli.output import print_text, say, write
from backupd.cli.timers import has_timer, timer_of
from backupd.vocabulary.errors import UsageError

app = typer.Typer(help="Write, check and show the configuration.", no_args_is_help=True)

_EXAMPLE = "backupd.toml"
_SCHEMA = "backupd.schema.json"
_MODE = 0o640  # it holds no secret, but says where they are


@app.command()
def init(
    ctx: typer.Context,
    path: Annotated[Path | None, typer.Option("--path", metavar="FILE", help="Where to write it.")] = None,
) -> None:
    """Write a commented configuration with every key and its default. Never overwrites a file."""
    file = path if path is not None else _file(ctx)
    _write_new(file, _shipped(_EXAMPLE).read_bytes())
    say(f"{file}: written; edit it, then run: backupd config check")


@app.command()
def check(ctx: typer.Context) -> None:
    """List all faults of the configuration. Contacts no server, reads no secret."""
    from backupd.config import load
    from backupd.config.exposure import is_loopback
    from backupd.config.reading import understood
    from backupd.config.warnings import warnings_of
    from backupd.report.words import many

    file = _file(ctx)
    configuration = load(file)
    counts = (
        many(len(tables), noun)
        for tables, noun in (
            (configuration.hosts, "host"),
            (configuration.jobs, "job"),
            (configuration.targets, "target"),
        )
    )
    say(f"{file}: ok, {', '.join(counts)}")
    if configuration == understood(_shipped(_EXAMPLE).read_text(), file):
        say(
            "warning: this is the example as it was shipped: its host, targets and job are not yours; edit it before"
            " `backupd serve` runs it"
        )
    for job in configuration.jobs.values():
        if job.schedules.backup is not None and job.schedules.backup.retries and has_timer(job.name):
            say(
                f"warning: jobs.{job.name}.schedules.backup.retries: {timer_of(job.name)} is enabled, and a timer"
                " does not retry; only `backupd serve` does"
            )
    for warning in warnings_of(configuration, file):
        say(f"warning: {warning}")
    if configuration.service.token_file is None and is_loopback(configuration.service.address):
        from backupd.service.web_port import without_token

        say(f"pages of `backupd serve`: {without_token('service')}")


@app.command()
def show(
    ctx: typer.Context,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document: sizes in bytes, times in seconds.")
    ] = False,
) -> None:
    """Show the configuration in force, including defaults, without secrets. The TOML can be used as a configuration.

    Of the `url` of a webhook or ping only the machine is shown, for the rest may be a secret: as a comment in the TOML,
    which has to be completed before use, and in the JSON with `…` at its end.
    """
    from backupd.config import load
    from backupd.config.effective import as_toml, as_values

    file = _file(ctx)
    configuration = load(file)
    if as_json:
        print_text(json.dumps(as_values(configuration, file), indent=2))
    else:
        write(as_toml(configuration))


@app.command()
def schema() -> None:
    """Print the JSON Schema of the configuration, by which an editor completes keys and marks faults."""
    write(_shipped(_SCHEMA).read_text())


def _file(ctx: typer.Context) -> Path:
    from backupd.config import locate

    invocation: Invocation = ctx.obj
    return locate(invocation.config, os.environ)


def _shipped(name: str) -> Path:
    """This file of `configs/`: in the package when it was installed from a wheel, beside it in a checkout."""
    package = Path(backupd.__file__).parent
    shipped = package / "_configs" / name
    return shipped if shipped.exists() else package.parent / "configs" / name


def _write_new(file: Path, content: bytes) -> None:
    """The file exists with this content and mode 0640, or is not there at all.

    Raises:
        UsageError: there is one already, or it cannot be written.
    """
    try:
        file.parent.mkdir(mode=0o750, exist_ok=True)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    except FileExistsError as error:
        raise UsageError(
            f"{file} already exists and was not changed",
            hint="write the example to another file and compare: backupd config init --path FILE",
        ) from error
    except OSError as error:
        raise _unwritable(file, error) from error
    try:
        with os.fdopen(descriptor, "wb") as opened:
            os.fchmod(opened.fileno(), _MODE)  # whatever the umask
            opened.write(content)
    except OSError as error:
        with contextlib.suppress(OSError):
            file.unlink()
        raise _unwritable(file, error) from error


def _unwritable(file: Path, error: OSError) -> UsageError:
    reason = (error.strerror or str(error)).lower()
    return UsageError(
        f"cannot write {file}: {reason}", hint="run as root, or name another file: backupd config init --path FILE"
    )
