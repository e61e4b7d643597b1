"""Ansible's inventories as text: JSON as `ansible-inventory --list` prints it, YAML, and INI; each as groups of hosts.

Knows: the three forms, and what a text that was cut off looks like in each. Values are texts whatever they were. What
it refuses to read of YAML: aliases, by which a small file becomes a large tree, and tags.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from backupd.policy.inventory import MOST_HOSTS, BadInventory, Group
from backupd.vocabulary.errors import UsageError, missing_package

MOST_BYTES = 32 << 20
_DEEPEST = 60  # tables within tables
_HEADER = re.compile(r"\[([A-Za-z0-9_.@ -]{1,200}?)(?::(children|vars))?\]\s*(?:[#;].*)?", re.ASCII)
_RANGE = re.compile(r"\[([0-9]{1,6}|[a-z]):([0-9]{1,6}|[a-z])(?::([1-9][0-9]{0,3}))?\]", re.ASCII)
_CUT = "it ends in the middle"


def groups_in(text: str, *, name: str = "") -> dict[str, Group]:
    """The groups of an inventory, in the form that the file's name or else the text itself tells.

    Raises:
        BadInventory: it is none, empty, or was cut off.
        UsageError: it is YAML, and the package that reads it is not installed.
    """
    if not text.strip():
        raise BadInventory("is empty")
    if name.endswith(".json") or text.lstrip()[0] == "{":
        return groups_of_json(text)
    if name.endswith((".yaml", ".yml")) or text.startswith("---"):
        return groups_of_yaml(text)
    return groups_of_ini(text)


def groups_of_json(text: str) -> dict[str, Group]:
    """What `ansible-inventory --list` prints.

    Raises:
        BadInventory: it is not that, or was cut off.
    """
    try:
        document = json.loads(text)
    except RecursionError:
        raise BadInventory("has tables within tables, too deep to be an inventory") from None
    except ValueError as error:
        line = getattr(error, "lineno", 1)
        at_end = getattr(error, "pos", 0) >= len(text.rstrip()) or str(error).startswith("Unterminated")
        raise BadInventory(f"is not JSON: {_CUT if at_end else 'a fault'} (line {line})") from None
    if not isinstance(document, dict):
        raise BadInventory("is JSON, but no table of groups")
    of_hosts = _table(_table(document.get("_meta")).get("hostvars"))
    groups: dict[str, Group] = {}
    for name, body in document.items():
        if name == "_meta":
            continue
        table = {"hosts": body} if isinstance(body, list) else _table(body)
        hosts = [host for host in _list(table.get("hosts")) if isinstance(host, str)]
        groups[name] = Group(
            hosts={host: _texts(of_hosts.get(host)) for host in hosts},
            children=tuple(child for child in _list(table.get("children")) if isinstance(child, str)),
            variables=_texts(table.get("vars")),
        )
    listed = {host for group in groups.values() for host in group.hosts}
    alone = {host: _texts(table) for host, table in of_hosts.items() if host not in listed}
    return groups | ({"_alone": Group(hosts=alone)} if alone else {})


def groups_of_yaml(text: str) -> dict[str, Group]:
    """An inventory file in YAML: `all: {hosts: …, children: …, vars: …}`, and other groups beside it.

    Raises:
        BadInventory: it is not that, or was cut off.
        UsageError: the package that reads YAML is not installed.
    """
    _require_whole(text)
    groups: dict[str, Group] = {}
    waiting = [(name, _table(body)) for name, body in _table(_yaml_tree(text)).items()]
    while waiting:
        name, body = waiting.pop()
        children = _table(body.get("children"))
        there = groups.get(name, Group())
        groups[name] = Group(
            hosts={**there.hosts, **_hosts_of_yaml(body.get("hosts"))},
            children=tuple(dict.fromkeys((*there.children, *children))),
            variables={**there.variables, **_texts(body.get("vars"))},
        )
        waiting += [(child, _table(inside)) for child, inside in children.items()]
    return groups


def groups_of_ini(text: str) -> dict[str, Group]:
    """An inventory file in INI: `[group]`, `[group:children]`, `[group:vars]`; ranges as `db[01:12]` are hosts.

    Raises:
        BadInventory: it is not that, or was cut off.
    """
    _require_whole(text)
    made: dict[str, _IniGroup] = {}
    group, part = made.setdefault("ungrouped", _IniGroup()), ""
    for number, line in enumerate(map(str.strip, text.split("\n")), 1):
        if not line or line[0] in "#;":
            continue
        if line[0] == "[" and (header := _HEADER.fullmatch(line)):
            group, part = made.setdefault(header[1], _IniGroup()), header[2] or ""
        elif part == "children":
            group.children.append(line.split()[0])
        elif part == "vars":
            key, _, value = line.partition("=")
            group.variables[key.strip()] = value.strip().strip("\"'")
        else:
            _add_ini_hosts(line, number, group)
    return {name: Group(each.hosts, tuple(each.children), each.variables) for name, each in made.items()}


@dataclass(slots=True)
class _IniGroup:
    """A group while it is read."""

    hosts: dict[str, Mapping[str, str]] = field(default_factory=dict)
    children: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)


def _add_ini_hosts(line: str, number: int, group: _IniGroup) -> None:
    """Those of one line, which all have its variables.

    Raises:
        BadInventory: the line has a quote without an end, or there are too many hosts.
    """
    try:
        words = shlex.split(line, comments=True)
    except ValueError:
        raise BadInventory(f"is not an inventory: line {number} has a quote without an end") from None
    if not words:
        return
    pairs = (word.partition("=") for word in words[1:])
    variables = {key: value for key, sign, value in pairs if sign}
    for host in _expanded(words[0]):
        group.hosts[host] = variables
        if len(group.hosts) > MOST_HOSTS:
            raise BadInventory(f"lists more than {MOST_HOSTS} hosts")


def _expanded(name: str) -> Iterator[str]:
    """`db[01:03]` as db01, db02 and db03, `[a:c]` likewise; of several ranges in one name, each with each."""
    match = _RANGE.search(name)
    if match is None:
        yield name
        return
    first, last, step = match[1], match[2], int(match[3] or 1)
    if first.isdigit() != last.isdigit():
        yield name  # which is no host's
        return
    if first.isdigit():
        width = len(first) if first.startswith("0") else 0
        parts = (f"{one:0{width}d}" for one in range(int(first), int(last) + 1, step))
    else:
        parts = (chr(one) for one in range(ord(first), ord(last) + 1, step))
    for part in parts:
        for rest in _expanded(name[match.end() :]):
            yield name[: match.start()] + part + rest


def _require_whole(text: str) -> None:
    """What an editor or a program has written to its end ends with a line's end.

    Raises:
        BadInventory: it does not: somebody is writing it, or the disk was full.
    """
    if not text.endswith("\n"):
        raise BadInventory("was cut off: its last line has no end")


def _yaml_tree(text: str) -> Any:
    """Tables, lists and texts; made from the events of the parser, so that no depth and no alias costs anything.

    Raises:
        BadInventory, UsageError: as `groups_of_yaml`.
    """
    try:
        import yaml
    except ImportError as error:
        raise UsageError(
            "an inventory in YAML needs a package that is not installed",
            hint=missing_package("fleet"),
        ) from error

    builder = _Tree()
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            match event:
                case yaml.AliasEvent():
                    raise BadInventory("is YAML with an alias (*name), which is not read")
                case yaml.MappingStartEvent():
                    builder.begin({})
                case yaml.SequenceStartEvent():
                    builder.begin([])
                case yaml.MappingEndEvent() | yaml.SequenceEndEvent():
                    builder.end()
                case yaml.ScalarEvent():
                    builder.add(event.value)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" (line {mark.line + 1})"
        raise BadInventory(f"is not YAML: {getattr(error, 'problem', None) or 'a fault'}{where}") from None
    return builder.root


class _Tree:
    """Grows from events."""

    def __init__(self) -> None:
        self.root: Any = None
        self._open: list[Any] = []
        self._keys: list[str | None] = []

    def begin(self, table: Any) -> None:
        """A table or a list, within which what follows is."""
        if len(self._open) >= _DEEPEST:
            raise BadInventory(f"has tables within tables more than {_DEEPEST} deep")
        self.add(table)
        self._open.append(table)
        self._keys.append(None)

    def end(self) -> None:
        """Of the innermost."""
        self._open.pop()
        self._keys.pop()

    def add(self, value: Any) -> None:
        """To the innermost; in a table, keys and values come in turn."""
        if not self._open:
            self.root = value if self.root is None else self.root
            return
        table = self._open[-1]
        if isinstance(table, list):
            table.append(value)
        elif self._keys[-1] is None:
            if not isinstance(value, str):
                raise BadInventory("has a table as the name of something")
            self._keys[-1] = value
        else:
            table[self._keys[-1]] = value
            self._keys[-1] = None


def _hosts_of_yaml(hosts: Any) -> dict[str, Mapping[str, str]]:
    found: dict[str, Mapping[str, str]] = {}
    for name, variables in _table(hosts).items():
        for host in _expanded(name):
            found[host] = _texts(variables)
            if len(found) > MOST_HOSTS:
                raise BadInventory(f"lists more than {MOST_HOSTS} hosts")
    return found


def _texts(variables: Any) -> dict[str, str]:
    """Those of a host or a group that are texts or numbers; the others are not used here."""
    return {
        str(key): str(value)
        for key, value in _table(variables).items()
        if isinstance(value, str | int) and not isinstance(value, bool) and len(str(value)) <= 1000
    }


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
