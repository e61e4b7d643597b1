"""The kinds of value that a configuration has, each read from TOML and written back to it.

Knows: what one value may be, and the sentence when it is not. Keys are in `schema`, what takes two keys to see is in
`rules`, and values that say when are in `times`.

Written back (pydantic's "json" mode) a value has the form that a person types: "64KiB", "10s", "20%".
"""

import math
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetCoreSchemaHandler,
    PlainSerializer,
    PlainValidator,
    Strict,
    StringConstraints,
    WithJsonSchema,
)
from pydantic_core import core_schema

from backupd.vocabulary.faults import BadValue, quoted
from backupd.vocabulary.names import NAME
from backupd.vocabulary.units import format_duration, format_size, parse_duration, parse_size, size_words
from backupd.vocabulary.volumes import AUTO, PV_UUID, Auto

_NAME_BYTES = 255  # NAME_MAX (linux/limits.h)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_CREDENTIAL = re.compile(r"(?!\.)[A-Za-z0-9_.@:-]{1,255}", re.ASCII)
_MOST_STRIPES = 128  # LVM's (lvm2, `MAX_STRIPES`)
_PERCENT = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*%", re.ASCII)
_MAIL = re.compile(r"[^\s@<>,;:\"()\[\]\\]+@[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?", re.ASCII)
_PAGES = 'such as "https://db1.example.com:9476"'
_WEB = re.compile(r"https?://[A-Za-z0-9.-]+(?::([0-9]{1,5}))?(?:/[!-~]*)?", re.ASCII)
_SNAPSHOT_SIZE_HINT = 'write a share of the origin such as "20%", or a size such as "5GiB"'


@dataclass(frozen=True, slots=True)
class SnapshotSize:
    """How large a snapshot's COW area is made: a share of the origin in percent, or bytes; exactly one is set."""

    percent_of_origin: float | None = None
    bytes: int | None = None


def _name(value: str) -> str:
    if not NAME.fullmatch(value):
        raise BadValue(
            "use 1 to 41 of a-z, 0-9, _ and -, beginning with a letter or a digit",
            "it becomes part of paths and LVM tags",
        )
    return value


def _absolute(value: object) -> Path:
    text = value if isinstance(value, str | Path) else None
    if text is None or not Path(text).is_absolute() or "\0" in str(text):
        raise BadValue(f"{quoted(value)} is not an absolute path", "begin it with /")
    if any(len(os.fsencode(name)) > _NAME_BYTES for name in Path(text).parts):
        raise BadValue(f"{quoted(value)} has a name of more than {_NAME_BYTES} bytes", "no file system accepts it")
    return Path(text)


def _secret_file(value: object) -> Path:
    """Like any absolute path, but never shown: someone may have written the secret itself."""
    if not isinstance(value, str | Path) or not Path(value).is_absolute() or "\0" in str(value):
        raise BadValue("not an absolute path", "give the file with the password, mode 0600, as an absolute path")
    return Path(value)


def _variable(value: object) -> str:
    if not isinstance(value, str) or not _VARIABLE.fullmatch(value):
        raise BadValue("not the name of an environment variable", "give the variable that has the password")
    return value


def _credential(value: object) -> str:
    if not isinstance(value, str) or not _CREDENTIAL.fullmatch(value):
        raise BadValue("not the name of a systemd credential", "the ID in the unit's LoadCredential=ID:PATH")
    return value


def _pv(value: str) -> str:
    is_path = value.startswith("/dev/") and ".." not in value.split("/")
    if not is_path and not PV_UUID.fullmatch(value):
        raise BadValue(
            f"{quoted(value)} is neither the uuid of a physical volume nor a path under /dev",
            "give it as `pvs -o pv_uuid,pv_name` shows it: by its uuid, which stays, or as /dev/sdd",
        )
    return value


def _targets(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise BadValue("lists no target", 'name at least one: targets = ["NAME"]')
    if len(set(value)) < len(value):
        raise BadValue("names a target twice", "every target gets one copy: list it once")
    return value


def _command(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise BadValue("has no program", 'for example ["/usr/local/bin/before-backup", "--quietly"]')
    if not value[0].startswith("/"):
        raise BadValue(
            f"{quoted(value[0])} is not an absolute path", ("backupd uses no shell and no PATH: give an absolute path")
        )
    if any("\0" in part for part in value):
        raise BadValue("an argument has a zero byte in it", "programs cannot receive one")
    return value


def _file_name(value: str) -> str:
    if value in {".", ".."} or "/" in value or "\0" in value:
        raise BadValue(f"{quoted(value)} is not the name of a file", "give a name alone, without a folder")
    return value


def _recipient(value: str) -> str:
    """Imported here, for most files name no recipient."""
    from backupd.config.recipients import recipient

    return recipient(value)


def _key_prefix(value: str) -> str:
    if value.startswith("/") or value.endswith("/") or "//" in value:
        raise BadValue(f"{quoted(value)} is not a prefix of keys", 'write it without slashes around it: "db/backups"')
    return value


def _url(value: str) -> str:
    if not re.fullmatch(r"https?://[^/\s?#@]+/?", value):
        raise BadValue(f"{quoted(value)} is not the address of a service", 'such as "https://s3.example.com"')
    return value.rstrip("/")


def web_address(value: str) -> str:
    """What a request can be sent to; it is never shown, for many a service takes whoever knows it for its owner.

    Raises:
        BadValue: it is none, or has a user or a fragment in it.
    """
    match = _WEB.fullmatch(value)
    if match is None or "#" in value or int(match[1] or 0) > 65535:
        raise BadValue("not a web address (http or https)", 'such as "https://hc.example.com/ping/nightly"')
    return value


def _pages(value: str) -> str:
    """Where pages are seen: what follows their address goes behind it."""
    if "?" in value:
        raise BadValue("an address with a query in it", _PAGES)
    try:
        return web_address(value).rstrip("/")
    except BadValue as bad:
        raise BadValue(bad.fact, _PAGES) from None


def _mail(value: str) -> str:
    if not _MAIL.fullmatch(value):
        raise BadValue(f"{quoted(value)} is not a mail address", 'the address alone, such as "dba@example.com"')
    return value


def _recipients_of_mail(value: tuple[str, ...]) -> tuple[str, ...]:
    if not value:
        raise BadValue("lists no recipient", 'name at least one: recipients = ["dba@example.com"]')
    return value


def positive_seconds(value: float) -> float:
    """Raises BadValue: it is none."""
    if not value > 0:
        raise BadValue("must be longer than zero", "for example 30s")
    return value


def _whole_seconds(value: float) -> float:
    if value < 1 or not value.is_integer():
        raise BadValue(
            f"{format_duration(value)} is not a whole number of seconds from 1s up",
            "the program that gets this value counts in seconds",
        )
    return value


def _power_of_two(smallest: int, largest: int) -> Callable[[int], int]:
    def check(size: int) -> int:
        if not smallest <= size <= largest or size & (size - 1):
            low, high = size_words(smallest), size_words(largest)
            raise BadValue(
                f"{size_words(size)} is not a power of two from {low} to {high}",
                f"the nearest is {format_size(_nearest_power_of_two(size, smallest, largest))}",
            )
        return size

    return check


def _nearest_power_of_two(size: int, smallest: int, largest: int) -> int:
    below = 1 << max(size, 1).bit_length() - 1
    nearest = below if size - below <= below * 2 - size else below * 2
    return min(max(nearest, smallest), largest)


def _size_from(smallest: int) -> Callable[[int], int]:
    def check(size: int) -> int:
        if size < smallest:
            raise BadValue(
                f"{size_words(size)} is less than {size_words(smallest)}", f'write "{format_size(smallest)}" or more'
            )
        return size

    return check


def _chunk_size(value: object) -> int | Auto:
    """What lvcreate takes of a classic snapshot; a thin pool's chunks may be larger."""
    if value == AUTO:
        return AUTO
    return _power_of_two(4 << 10, 512 << 10)(parse_size(value))


def _cow_stripes(value: object) -> int | Auto:
    """What lvcreate takes, or the word."""
    if value == AUTO:
        return AUTO
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _MOST_STRIPES:
        raise BadValue(f"{quoted(value)} is not a number of stripes", f'1 (linear) to {_MOST_STRIPES}, or "auto"')
    return value


def _chunk_size_text(size: int | Auto) -> str:
    return format_size(size) if isinstance(size, int) else size


def _bound(value: object) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not -math.inf < value < math.inf:
        raise BadValue(f"{quoted(value)} is not a number", "write a number without quotes")
    if abs(value) > sys.float_info.max:
        raise BadValue(f"{quoted(value)} is larger than any number of a server's", "write a smaller one")
    return value


def _sql(value: str) -> str:
    if not value.strip(" \t\r\n;"):
        raise BadValue("has no statement", 'for example "SELECT COUNT(*) FROM shop.orders"')
    return value


def _flag_or_auto(value: object) -> bool | Auto:
    if value == AUTO:
        return AUTO
    if isinstance(value, bool):
        return value
    raise BadValue(f'{quoted(value)} is not true, false or "auto"', "omit it for auto")


class _OrAuto:
    """Beside a type: the word `auto` in place of a list of PVs, with that list's own faults for all else."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
        return core_schema.no_info_wrap_validator_function(
            lambda value, pvs: AUTO if value == AUTO else pvs(value),
            handler.generate_schema(_Pvs),
            serialization=core_schema.plain_serializer_function_ser_schema(lambda value: value),
        )


def _snapshot_size(value: object) -> SnapshotSize | Auto:
    if value == AUTO:
        return AUTO
    if isinstance(value, SnapshotSize):
        return value
    match = _PERCENT.fullmatch(value.strip()) if isinstance(value, str) else None
    if match is None:
        try:
            size = parse_size(value)
        except BadValue as bad:
            raise BadValue(bad.fact, _SNAPSHOT_SIZE_HINT) from bad
        if size == 0:
            raise BadValue("has no size", _SNAPSHOT_SIZE_HINT)
        return SnapshotSize(bytes=size)
    percent = float(match[1])
    if not 0 < percent <= 100:
        raise BadValue(f"{quoted(value)} is not above 0% and up to 100%", _SNAPSHOT_SIZE_HINT)
    return SnapshotSize(percent_of_origin=percent)


def _snapshot_size_text(size: SnapshotSize | Auto) -> str:
    if isinstance(size, str):
        return size
    if size.bytes is not None:
        return format_size(size.bytes)
    return f"{Decimal(repr(size.percent_of_origin)).normalize():f}%"


def as_text(to_text: Callable[[Any], str]) -> PlainSerializer:
    """Beside a type: how a person types it."""
    return PlainSerializer(to_text, return_type=str, when_used="json")


def in_editors(kinds: str | list[str], pattern: str | None = None, **more: object) -> WithJsonSchema:
    """Beside a type: what an editor takes for it (JSON Schema), where that is not what Python's type says."""
    return WithJsonSchema({"type": kinds, **({"pattern": pattern} if pattern else {}), **more}, mode="validation")


_SIZE = r"[0-9]+(\.[0-9]+)? *([KMGT]iB|kB|[MGT]?B)"
_SIZE_IN_EDITORS = in_editors(["string", "integer"], f"^ *{_SIZE} *$", minimum=0)

Name = Annotated[str, AfterValidator(_name)]
Text = Annotated[str, Strict(), StringConstraints(min_length=1)]
Flag = Annotated[bool, Strict()]
FlagOrAuto = Annotated[bool | Auto, PlainValidator(_flag_or_auto), in_editors(["boolean", "string"], "^auto$")]
WholeNumber = Annotated[int, Strict()]
Number = Annotated[float, Strict()]
Bound = Annotated[int | float, PlainValidator(_bound), in_editors("number")]  # whole numbers stay exact
Sql = Annotated[Text, AfterValidator(_sql)]
AbsolutePath = Annotated[Path, BeforeValidator(_absolute)]
SecretFile = Annotated[Path, BeforeValidator(_secret_file)]
Variable = Annotated[str, BeforeValidator(_variable)]
Credential = Annotated[str, BeforeValidator(_credential)]
_Pvs = tuple[Annotated[Text, AfterValidator(_pv)], ...]
CowPvs = Annotated[
    _Pvs | Auto,
    _OrAuto(),
    in_editors(["array", "string"], "^auto$", items={"type": "string", "pattern": f"^(/dev/|{PV_UUID.pattern}$)"}),
]
TargetNames = Annotated[tuple[Text, ...], AfterValidator(_targets)]
Command = Annotated[tuple[Annotated[str, Strict()], ...], AfterValidator(_command)]
FileName = Annotated[Text, AfterValidator(_file_name)]
Recipients = tuple[Annotated[Text, AfterValidator(_recipient)], ...]
Paths = tuple[AbsolutePath, ...]
KeyPrefix = Annotated[str, Strict(), AfterValidator(_key_prefix)]
Url = Annotated[Text, AfterValidator(_url)]
PagesAddress = Annotated[Text, AfterValidator(_pages)]
WebAddress = Annotated[Text, AfterValidator(web_address)]
MailAddress = Annotated[Text, AfterValidator(_mail)]
MailAddresses = Annotated[tuple[MailAddress, ...], AfterValidator(_recipients_of_mail)]
Duration = Annotated[
    float,
    BeforeValidator(parse_duration),
    as_text(format_duration),
    in_editors(["string", "number"], r"^ *[0-9]+(\.[0-9]+)? *(ms|[smhd]) *$", minimum=0),
]
PositiveDuration = Annotated[Duration, AfterValidator(positive_seconds)]
WholeSeconds = Annotated[Duration, AfterValidator(_whole_seconds)]
Size = Annotated[int, BeforeValidator(parse_size), as_text(format_size), _SIZE_IN_EDITORS]
ChunkSize = Annotated[
    int | Auto,
    PlainValidator(_chunk_size),
    as_text(_chunk_size_text),
    in_editors(["string", "integer"], f"^( *{_SIZE} *|auto)$", minimum=4 << 10, maximum=512 << 10),
]
CowStripes = Annotated[
    int | Auto,
    PlainValidator(_cow_stripes),
    in_editors(["integer", "string"], "^auto$", minimum=1, maximum=_MOST_STRIPES),
]
BlockSize = Annotated[Size, AfterValidator(_power_of_two(512, 1 << 20))]
ProbeFileSize = Annotated[Size, AfterValidator(_size_from(1 << 20))]
PartSize = Annotated[Size, AfterValidator(_size_from(5 << 20))]  # what S3 takes at least of every part but the last
ObjectSize = Annotated[Size, AfterValidator(_size_from(1 << 30))]  # smaller ones are many, and gain nothing
SpoolSize = Annotated[Size, AfterValidator(_size_from(64 << 20))]  # less would take next to nothing
Rate = Annotated[Size, AfterValidator(_size_from(1 << 10))]
CowSizeOrAuto = Annotated[
    SnapshotSize | Auto,
    PlainValidator(_snapshot_size),
    as_text(_snapshot_size_text),
    in_editors(["string", "integer"], rf"^( *{_SIZE} *| *[0-9]+(\.[0-9]+)? *% *|auto)$", minimum=1),
]
