"""The page of all configuration keys: types and defaults from the schema, meanings from the example that is shipped.

`tests/unit/test_config_example.py` holds the example to the schema: every key is there, with its real default.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from backupd.config import (
    AppriseConfig,
    AzureConfig,
    Configuration,
    DirectoryConfig,
    DrillCheckConfig,
    GcsConfig,
    HookConfig,
    HostConfig,
    JobConfig,
    MailConfig,
    PingConfig,
    ProofCheckConfig,
    S3Config,
    SftpConfig,
    TargetRetentionConfig,
    WebhookConfig,
)
from backupd.config.fleet import (
    ClusterConfig,
    FleetConfiguration,
    FleetHostConfig,
    FleetTargetConfig,
    InventoryConfig,
    PolicyConfig,
)
from backupd.config.wording import keys_of, table_in
from tests.shipped_example import EXAMPLE, FLEET, everything

_HEAD = """# Configuration

One TOML file, `/etc/backupd/backupd.toml` unless `--config` or `BACKUPD_CONFIG` names another. Unknown keys are
refused; `backupd config check` reports every fault at once, `backupd config show` prints what is in force with all
defaults filled in. A value marked *example* is no default.

- **Sizes**: `64KiB`, `5GiB` (powers of 1024), `100MB` (powers of 1000), or a number of bytes.
- **Durations**: `500ms`, `10s`, `5m`, `2h`, `7d`, or a number of seconds.
- **Names** of hosts, targets and jobs: 1 to 41 of `a-z`, `0-9`, `_` and `-`, beginning with a letter or a digit."""
_FLEET_HEAD = """# Fleet configuration

One TOML file on the control host, `/etc/backupd/fleet.toml` unless `--config` or `BACKUPD_FLEET_CONFIG` names another.
Unknown keys are refused; `backupd fleet check` reports every fault at once. A value marked *example* is no default.

- **Sizes**: `64KiB`, `5GiB` (powers of 1024), `100MB` (powers of 1000), or a number of bytes.
- **Durations**: `500ms`, `10s`, `5m`, `2h`, `7d`, or a number of seconds.
- **Names** of clusters, policies, jobs and targets: 1 to 41 of `a-z`, `0-9`, `_` and `-`, beginning with a letter or a
  digit; of hosts: 1 to 128 of `a-z`, `A-Z`, `0-9`, `.`, `_` and `-`."""
_NAMED = (
    (HostConfig, "hosts", "db1"),
    (DirectoryConfig, "targets", "vault"),
    (SftpConfig, "targets", "offsite"),
    (S3Config, "targets", "bucket"),
    (AzureConfig, "targets", "azure"),
    (GcsConfig, "targets", "google"),
    (MailConfig, "notifications", "dba"),
    (WebhookConfig, "notifications", "chat"),
    (PingConfig, "notifications", "watcher"),
    (AppriseConfig, "notifications", "elsewhere"),
    (JobConfig, "jobs", "nightly"),
)
_KEY = re.compile(r"^(?P<mark># ?)?(?P<key>[a-z_]+) = (?P<value>.*)$")


@dataclass(frozen=True, slots=True)
class Entry:
    """Keys that one comment explains."""

    keys: tuple[tuple[str, str, str], ...]  # key, value, mark
    meaning: str


def tables() -> Iterator[tuple[str, str, Any]]:
    """Every table of the schema: what it is called, where the example has it, its class."""
    yield from (one for one in _tables(Configuration, "", "") if one[0])
    for table, kind, example in _NAMED:
        yield from _tables(table, f"{kind}.NAME", f"{kind}.{example}")
    yield from _tables(TargetRetentionConfig, "jobs.NAME.retention.TARGET", "jobs.nightly.retention.offsite")
    yield from _tables(DrillCheckConfig, "jobs.NAME.drill.checks.NAME", "jobs.nightly.drill.checks.orders")
    yield from _tables(ProofCheckConfig, "prove.checks.NAME", "prove.checks.orders")
    yield from _tables(HookConfig, "jobs.NAME.hooks.NAME", "jobs.nightly.hooks.cache")


def fleet_tables() -> Iterator[tuple[str, str, Any]]:
    """The same of fleet.toml."""
    yield from (one for one in _tables(FleetConfiguration, "", "") if one[0] and one[2] is not InventoryConfig)
    yield "inventory", "inventory", InventoryConfig
    for table, kind, example in (
        (FleetHostConfig, "hosts", "db1"),
        (ClusterConfig, "clusters", "orders"),
        (PolicyConfig, "policies", "default"),
        (FleetTargetConfig, "targets", "nas1"),
    ):
        yield from _tables(table, f"{kind}.NAME", f"{kind}.{example}")


def page() -> str:
    """Every table with its keys."""
    return "\n".join(_lines(_HEAD, tables(), EXAMPLE)) + "\n"


def fleet_page() -> str:
    """The same of fleet.toml."""
    return "\n".join(_lines(_FLEET_HEAD, fleet_tables(), FLEET)) + "\n"


def entries(example: str, file: Path = EXAMPLE) -> Iterator[Entry]:
    """What the example that is shipped says of the keys of one of its tables."""
    yield from _entries(_section(everything(file), example))


def _lines(head: str, shown: Iterable[tuple[str, str, Any]], file: Path) -> Iterator[str]:
    yield head
    for name, example, table in shown:
        kind = re.search(r'type = "(\w+)"', table.__doc__ or "")
        yield ""
        yield f"## [{name}]" + (f" of type {kind[1]}" if kind else "")
        yield ""
        yield _sentence(table.__doc__ or "")
        yield ""
        yield "| key | default | meaning |"
        yield "|---|---|---|"
        keys = _keys(table)
        for entry in entries(example, file):
            names = [one for one in entry.keys if one[0] in keys]
            assert len(names) == len(entry.keys), f"{example} has keys that the schema does not: {entry.keys}"
            yield f"| {_cell(names, 'key')} | {_cell(names, 'value')} | {entry.meaning.replace('|', chr(92) + '|')} |"


def _cell(names: list[tuple[str, str, str]], part: str) -> str:
    if part == "key":
        return "<br>".join(f"`{key}`" for key, _, _ in names)
    return "<br>".join(f"`{value}`" if mark == "#" else f"*example* `{value}`" for _, value, mark in names)


def _tables(table: Any, name: str, example: str) -> Iterator[tuple[str, str, Any]]:
    fields = keys_of(table)
    inner = {key: within for key, field in fields.items() if (within := table_in(field.annotation))}
    if _keys(table):
        yield name, example, table
    for key, within in inner.items():
        dot = "." if name else ""
        yield from _tables(within, f"{name}{dot}{key}", f"{example}{dot}{key}")


def _keys(table: Any) -> list[str]:
    fields = keys_of(table)
    return [
        key
        for key, field in fields.items()
        if not table_in(field.annotation) and get_origin(field.annotation) is not Mapping
    ]


def _section(text: str, name: str) -> str:
    found = re.search(rf"^\[{re.escape(name)}\]\n(.*?)(?=^\[|^# ---|\Z)", text, re.MULTILINE | re.DOTALL)
    assert found, f"the example has no [{name}]"
    return found[1]


def _entries(section: str) -> Iterator[Entry]:
    """The keys of one table with the comment above them; one that is indented stands below its key."""
    words: list[str] = []
    keys: list[tuple[str, str, str]] = []
    below = False
    for line in [*section.splitlines(), ""]:
        found = _KEY.match(line)
        if found:
            if below and keys:
                yield Entry(tuple(keys), " ".join(words))
                words, keys, below = [], [], False
            keys.append((found["key"], found["value"], (found["mark"] or "").strip() and (found["mark"] or "")))
            continue
        if keys and not line.startswith("#     "):
            yield Entry(tuple(keys), " ".join(words))
            words, keys, below = [], [], False
        if line.startswith("#"):
            if keys:
                below, words = True, []
            words.append(line.lstrip("#").strip())
        else:
            words = []


def _sentence(docstring: str) -> str:
    """Its first line, without the name of the table, which stands above."""
    line = " ".join(docstring.strip().split("\n\n")[0].split())
    said = re.sub(r"^`\[[^`]+`(?: with `[^`]+`)?: ", "", line)
    return said[:1].upper() + said[1:]
