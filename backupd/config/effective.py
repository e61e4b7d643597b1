"""The configuration in force, defaults filled in, as TOML that `load` reads back, or as plain values for JSON.

Knows: how TOML is written. Refuses to tell secrets: a comment says only where each would come from; of an address to
which notifications go, only the machine is shown, for many a service takes whoever knows the rest for its owner.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import TypeAdapter

from backupd.config.schema import Configuration, HostConfig


def as_toml(configuration: Configuration) -> str:
    """TOML text; read back it gives an equal configuration. A key without a value, such as a limit, is left out.

    A `url` that is not shown in full is a comment: to load the text, a person enters it again.
    """
    document = TypeAdapter(Configuration).dump_python(configuration, mode="json", by_alias=True, exclude_none=True)
    for name, host in configuration.hosts.items():
        if not host.user:
            del document["hosts"][name]["user"]
    notes = {
        f"hosts.{name}": f"password = {value_text(f'({_source_note(host)})')}"
        for name, host in configuration.hosts.items()
    }
    for name in _hide_addresses(document):
        shown = document["notifications"][name].pop("url")
        notes[f"notifications.{name}"] = f"url = {value_text(shown)}  # not shown in full: it may hold a secret"
    return "\n\n".join("\n".join(block) for block in _blocks(document, "", notes)) + "\n"


def as_values(configuration: Configuration, path: Path) -> dict[str, Any]:
    """One JSON document: sizes in bytes, times in seconds, `*_seconds` in their names; null where nothing is set.

    A `url` that is not shown in full ends in `…`, which no address has.
    """
    values = TypeAdapter(Configuration).dump_python(configuration)
    document: dict[str, Any] = json.loads(json.dumps({"schema": 1, "path": path} | values, default=str))
    _hide_addresses(document)
    return document


def password_source(host: HostConfig) -> str:
    """Where this host's password comes from, in words for a hint; empty where it needs none."""
    if host.password_file is not None:
        return f"file {host.password_file}"
    if host.password_env is not None:
        return f"environment variable {host.password_env}"
    if host.password_credential is not None:
        return f"systemd credential {host.password_credential}"
    return f"option file {host.defaults_file}" if host.defaults_file is not None else ""


def _hide_addresses(document: dict[str, Any]) -> list[str]:
    """The notifications of whose address only the machine is left."""
    hidden = []
    for name, notification in document["notifications"].items():
        parts = urlsplit(notification.get("url") or "")
        if parts.path.strip("/") or parts.query:
            notification["url"] = f"{parts.scheme}://{parts.netloc}/…"
            hidden.append(name)
    return hidden


def _source_note(host: HostConfig) -> str:
    source = password_source(host)
    return f"from {source}" if source else "none: the server identifies backupd by its system user"


def _blocks(table: Mapping[str, Any], path: str, notes: Mapping[str, str]) -> Iterator[list[str]]:
    """One block of lines for each table that has keys of its own, a table before those inside it."""
    values = {key: value for key, value in table.items() if not isinstance(value, dict)}
    if values:
        note = [f"# {notes[path]}"] if path in notes else []
        yield [f"[{path}]", *(f"{key} = {value_text(value)}" for key, value in values.items()), *note]
    for key, value in table.items():
        if isinstance(value, dict):
            yield from _blocks(value, f"{path}.{key}" if path else key, notes)


def value_text(value: Any) -> str:
    """As it is in TOML."""
    if isinstance(value, str):  # JSON's escapes are TOML's, but TOML wants DEL escaped too
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return f"[{', '.join(value_text(item) for item in value)}]"
    return str(value).lower() if isinstance(value, bool) else repr(value)
