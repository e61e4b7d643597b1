"""From pydantic's findings to faults: our path, our sentence, our hint.

Knows: how a finding reads, and which key was most probably meant. Refuses to show a value that may be a secret: that of
an unknown key, and that of any key whose name speaks of a password.
"""

from collections.abc import Mapping
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from pydantic.dataclasses import is_pydantic_dataclass
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from backupd.config.notifications import NotificationConfig
from backupd.config.retention import TARGETS
from backupd.config.schema import Configuration
from backupd.config.targets import TargetConfig
from backupd.vocabulary.faults import BadValue, Fault, Location, dotted, nearest, quoted

_KEY_ITSELF = "[key]"  # how pydantic ends the location of a table's name
_SECRETS_HINT = (
    "a password is never written here: use password_file, password_env, password_credential or defaults_file"
)
_WRONG_TYPES = {
    "bool_type": ("not true or false", "write true or false, without quotes"),
    "int_type": ("not a whole number", "write digits only, without quotes"),
    "int_from_float": ("not a whole number", "write digits only, without a decimal point"),
    "float_type": ("not a number", "write a number without quotes"),
    "finite_number": ("not a finite number", "omit the key to use its default"),
    "string_type": ("not a text in quotes", 'write it in quotes: "…"'),
    "string_too_short": ("an empty text", "write something, or omit the key"),
    "too_short": ("empty", "name at least one"),
    "tuple_type": ("not a list", 'write it in brackets: ["…"]'),
}


def _by_kind(tables: Any) -> dict[str, Any]:
    return {get_args(table.__pydantic_fields__["type"].annotation)[0].value: table for table in get_args(tables)}


_KINDS = {"targets": _by_kind(TargetConfig), "notifications": _by_kind(NotificationConfig)}
_NO_KIND = {"union_tag_not_found", "union_tag_invalid"}
_COMPARISONS = {"greater_than": "above", "greater_than_equal": "at least", "less_than_equal": "at most"}


def fault(finding: ErrorDetails, *, root: Any = Configuration) -> Fault:
    """One finding of pydantic in our words; `root` is the class of the whole file."""
    location = finding["loc"]
    if location[-1:] == (_KEY_ITSELF,):
        location = location[:-1]
    if finding["type"] in _NO_KIND:
        location = (*location, "type")
    fact, hint = _words(finding, location, root)
    return Fault(dotted(_as_written(location)), fact, hint)


def keys_of(table: Any) -> dict[str, FieldInfo]:
    """The keys that this table may have in TOML, in the schema's order; of one of no known kind, those of all."""
    if get_origin(table) is Annotated:
        return {key: field for kind in get_args(get_args(table)[0]) for key, field in keys_of(kind).items()}
    fields: dict[str, FieldInfo] = table.__pydantic_fields__
    return {field.serialization_alias or name: field for name, field in fields.items() if not field.exclude}


def table_in(annotation: Any) -> Any:
    """The table that a key of this type is, be it that it may be left out; None where it has no keys of its own."""
    choices = get_args(annotation) if isinstance(annotation, UnionType) else (annotation,)
    return next((choice for choice in choices if isinstance(choice, type) and is_pydantic_dataclass(choice)), None)


def _as_written(location: Location) -> Location:
    """Without what only pydantic knows: the kind of a target, and the field that the targets of a retention are in."""
    if location[:1] == ("jobs",) and location[2:4] == ("retention", TARGETS):
        return location[:3] + location[4:]
    return _without_kind(location)


def _without_kind(location: Location) -> Location:
    """The kind of a target chooses its class, and pydantic puts it into the path: `targets.vault.sftp.path`."""
    return location[:2] + location[3:] if len(location) > 2 and location[2] in _kinds_at(location) else location


def _kinds_at(location: Location) -> Mapping[str, Any]:
    return _KINDS.get(str(location[0]), {})


def unknown_key(location: Location, *, root: Any = Configuration) -> Fault:
    """A key that nothing reads, with the one that was most probably meant."""
    return Fault(dotted(location), "unknown key", _meant(location, root))


def _words(finding: ErrorDetails, location: Location, root: Any) -> tuple[str, str]:
    kind, context = finding["type"], finding.get("ctx", {})
    if kind == "unexpected_keyword_argument":
        return "unknown key", _meant(location, root)
    if kind in {"missing", "union_tag_not_found"}:
        return "is missing", f"every [{dotted(_without_kind(location[:-1]))}] needs it"
    if kind == "union_tag_invalid":
        return (
            f"{quoted(context['tag'])} is not one of {', '.join(_kinds_at(location))}",
            "use a known one, in quotes",
        )
    if kind in {"dataclass_type", "dict_type", "mapping_type", "model_attributes_type"}:
        return "is not a table", f"it begins with a line [{dotted(location)}]"
    if isinstance(error := context.get("error"), BadValue):
        return error.fact, error.hint
    shown = "" if _may_be_secret(location) else f"{quoted(finding['input'])} is "
    if kind == "enum":
        return f"{shown}none of {context['expected'].replace(chr(39), '')}", "use a known one, in quotes"
    if kind in _COMPARISONS:
        return f"{shown}not {_COMPARISONS[kind]} {next(iter(context.values())):g}", _default_of(location, root)
    fact, hint = _WRONG_TYPES.get(kind, (finding["msg"].lower(), ""))
    return shown + fact, hint


def _default_of(location: Location, root: Any) -> str:
    default = keys_of(_table_at(location[:-1], root))[str(location[-1])].default
    return "omit the key for no limit" if default is None else f"the default is {default}"


def _may_be_secret(location: Location) -> bool:
    return any(word in str(part) for part in location for word in ("password", "token", "url"))


def _meant(location: Location, root: Any) -> str:
    key, table = str(location[-1]), _table_at(location[:-1], root)
    if key in {"password", "passwd", "pass", "pwd"}:
        return _SECRETS_HINT
    known = keys_of(table)
    for name, field in known.items():
        inner = table_in(field.annotation)
        if inner is not None and key in keys_of(inner):
            return f"did you mean {dotted((*location[:-1], name, key))}?"
    if (meant := nearest(key, known)) is not None:
        return f"did you mean {meant}?"
    return f"known keys: {', '.join(known)}"


def _table_at(location: Location, root: Any) -> Any:
    """The schema's class for the table at this location."""
    table: Any = root
    for part in location:
        if get_origin(table) is Mapping:
            table = get_args(table)[1]
        elif get_origin(table) is Annotated and part in _kinds_at(location):
            table = _kinds_at(location)[str(part)]
        else:
            annotation = keys_of(table)[str(part)].annotation
            table = table_in(annotation) or annotation
    return table
