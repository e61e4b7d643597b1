"""The page of JSON documents: what the functions that make them say of values that have everything, and of bare ones.

Knows: which document each command prints. Nothing is listed by hand but the commands: keys come from the functions, and
what may be null from what is null where a value has as little as it may.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from datetime import UTC, date, datetime, timedelta
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from backupd.catalogue.audit import AuditEntry
from backupd.catalogue.costs import RunCost
from backupd.cli import audit, binlog_verify, documents, identity, notify
from backupd.cli.output import SCHEMA
from backupd.config import JobConfig
from backupd.config.fleet import FleetConfiguration
from backupd.host.ssh_signature import DocumentKey
from backupd.notifications.fanout import Delivery
from backupd.operations.binlog.rolling import RolledForward
from backupd.operations.binlog.searching import LogFindings
from backupd.operations.binlog.verifying import SegmentsVerified
from backupd.operations.restore.table_loading import LoadingPlan
from backupd.operations.upkeep.audit import AuditResult
from backupd.operations.upkeep.prune import Pruning
from backupd.operations.upkeep.rebuild import Rebuilding
from backupd.operations.upkeep.rebuild_segments import SegmentsRebuilt
from backupd.policy.fleet_plan import NightPlan, SharedTarget
from backupd.policy.fleet_timetable import FleetTimetable
from backupd.report import (
    bench_document,
    binlog_archive,
    costs,
    fleet_check_text,
    fleet_night_text,
    fleet_plan_text,
    impact_text,
    probe_table,
    run_comparison,
    volume_document,
)
from backupd.report.evidence import Evidence
from backupd.report.evidence_document import evidence_document
from backupd.report.fleet_night import MonthReport, NightReport
from backupd.report.impact import Impact
from backupd.service import job_report, target_report
from backupd.service.fleet import status_text
from backupd.service.fleet.status import FleetStatus
from backupd.service.site_status import SiteAlarm
from backupd.service.storage import StorageStatus
from backupd.vocabulary.benches import BenchRecord
from backupd.vocabulary.extents import Survey
from backupd.vocabulary.fleet import FleetBackup, SeenHost
from backupd.vocabulary.identity import Identity, Machine
from backupd.vocabulary.probes import ProbeRecord
from backupd.vocabulary.records import Drill, Finding, RunDetails

_HEAD = f"""# JSON documents

A command with `--json` prints exactly one document, whose first key is `"schema": {SCHEMA}`. Keys are only ever added.
Sizes are bytes and times are seconds; an instant is ISO 8601 with its zone. Every `*_ratio` is baseline ÷ measured:
above 1 is slower, `null` was not measured. An error is a document too:
`{{"schema": 1, "error": {{"code", "message", "hint"}}}}`; the codes are under [exit statuses](exit-statuses.md).

`[]` after a key stands for each element of a list, `{{}}` for each key of an object whose keys are names. `null` may
also stand for what does not apply."""
_OTHERS = """
## Other documents

- `config show --json`: the configuration in force, sizes in bytes, times in seconds; the `url` of a webhook or ping
  ends in `…`, which no address has, where the rest of it is not shown, for it may hold a secret. Its keys are those of
  the [configuration](configuration.md), with the unit where it is a time: `every_seconds`.
- `verify --json`: for each copy its `target`, `status` (`verified`, `sampled`, `broken`, `unreadable`,
  `unreachable`), what was read, and its `error`; with `--job` a list `runs` of these, and `binlog`, the `targets` of
  `binlog verify --json`.
- `schedule list --json`: `schedules`, for each activity when it is due, its pause, and its `last` slot;
  `schedule next --json`: `times`.
- `clone --json`: where the copy and its files are; of a replica its position, and the statements that are left to be
  run; of a scrubbed copy `scrub`: `files`, each with `file`, `sha256`, `statements`, `rows_affected` and `seconds`, and
  of all of them `statements`, `rows_affected`, `server_version` and `seconds`. `backupd-scrub.json` in the copy has the
  same, and where logs with original rows may be left in the copy a `doubt`, which is a sentence.
- `version --json`: `version`."""

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Document:
    """One document: who prints it, what is said of it, and how it is made of a bare value or of one with everything."""

    commands: str
    title: str
    made: Callable[["Maker"], Any]


def page() -> str:
    """Every document with its keys."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield _HEAD
    for one in DOCUMENTS:
        yield ""
        yield f"## {one.title}"
        yield ""
        yield f"Printed by {one.commands}."
        yield ""
        yield "| key | type |"
        yield "|---|---|"
        whole, *less = (dict(_keys(one.made(Maker(having)))) for having in Having)
        for key, kind in whole.items():
            nullable = kind != "null" and any(found.get(key) == "null" for found in less)
            yield f"| `{key}` | {kind}{' or null' if nullable else ''} |"
    yield _OTHERS


def _keys(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Each path in a document with the JSON type of what is there."""
    if isinstance(value, Mapping):
        if path:
            yield path, "object"
        named = len(value) == 1 and next(iter(value)) == Maker.NAME
        for key, inner in value.items():
            shown = "{}" if named else str(getattr(key, "value", key))
            yield from _keys(inner, f"{path}.{shown}" if path else shown)
    elif isinstance(value, list | tuple):
        yield path, "array"
        for inner in value[:1]:
            yield from _keys(inner, f"{path}[]")
    else:
        yield path, _json_type(value)


def _json_type(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, Enum):
        return "string: " + ", ".join(f"`{one.value}`" for one in type(value))
    if isinstance(value, bool):
        return "true or false"
    return "number" if isinstance(value, int | float) else "string"


class Having(Enum):
    """How much a made value has."""

    EVERYTHING = 1
    NO_SCALARS = 2  # that it may do without
    AS_LITTLE_AS_IT_MUST = 3


class Maker:
    """Makes a value of any type of the vocabulary, which has this much."""

    NAME = "NAME"

    def __init__(self, having: Having) -> None:
        self._having = having
        self._full = having is not Having.AS_LITTLE_AS_IT_MUST

    def __call__(self, hint: Any) -> Any:
        origin, inner = get_origin(hint), get_args(hint)
        if origin in (UnionType, Union):
            return self._of_union(inner)
        if origin is tuple and Ellipsis not in inner:
            return tuple(map(self, inner))
        if origin in (tuple, list, Sequence):
            return (self(inner[0]),) if self._full else ()
        if origin in (frozenset, set):
            return frozenset({self(inner[0])}) if self._full else frozenset()
        if origin is Mapping or origin is dict:
            return {name: self(inner[1]) for name in self._names_of(inner[0])} if self._full else {}
        if origin is Callable:
            return lambda *_: None
        if origin is Literal:
            return inner[0]
        if hint is JobConfig:  # its values are checked as it is made
            within = 1.0 if self._having is Having.EVERYTHING else None
            return JobConfig(name="nightly", host="db1", targets=("vault",), drill_within_seconds=within)
        if isinstance(hint, type) and is_dataclass(hint):
            return self._of_dataclass(hint)
        return _plain_value(hint)

    def _of_union(self, choices: tuple[Any, ...]) -> Any:
        chosen = next(one for one in choices if one is not NoneType)
        scalar = not is_dataclass(chosen) and get_origin(chosen) is None
        if NoneType in choices and (not self._full or (scalar and self._having is Having.NO_SCALARS)):
            return None
        return self(chosen)

    def _of_dataclass(self, kind: type) -> Any:
        hints = get_type_hints(kind, localns=vars(inspect.getmodule(kind)))
        optional = {
            one.name for one in fields(kind) if one.default is not MISSING or one.default_factory is not MISSING
        }
        wanted = [one.name for one in fields(kind) if one.init and (self._full or one.name not in optional)]
        return kind(**{name: self(hints[name]) for name in wanted})

    def _names_of(self, hint: Any) -> Sequence[Any]:
        if isinstance(hint, type) and issubclass(hint, Enum):
            return list(hint)
        return [self.NAME if hint is str else _plain_value(hint)]


def _plain_value(hint: Any) -> Any:
    values: dict[Any, Any] = {
        int: 1,
        float: 1.0,
        str: "text",
        bool: True,
        datetime: NOON,
        date: NOON.date(),
        timedelta: timedelta(seconds=1),
        Path: Path("/path"),
        Any: "text",
        object: "text",
    }
    if hint in values:
        return values[hint]
    if isinstance(hint, type) and issubclass(hint, Enum):
        return next(iter(hint))
    if isinstance(hint, type) and issubclass(hint, Exception):
        return hint("text")
    raise TypeError(f"no value of {hint} is known here")


def _run(make: Maker) -> RunDetails:
    """One with a whole copy, whose penalty was measured, where it has everything."""
    run: RunDetails = make(RunDetails)
    samples = tuple(replace(one, stage=stage) for one in run.samples for stage in ("baseline", "settle", "settle"))
    whole = tuple(replace(one, broken="", removed_at=None) for one in run.backups)
    return replace(run, samples=samples, backups=whole)


def _seen(make: Maker) -> Mapping[str, SeenHost]:
    """One host, which has told something where it has everything."""
    return {"NAME": make(SeenHost)}


def _timetable(make: Maker) -> FleetTimetable:
    """Runs whose slots are as many as their targets."""
    table: FleetTimetable = make(FleetTimetable)
    return replace(table, runs=tuple(replace(run, slots=(0,) * len(run.owed.targets)) for run in table.runs))


DOCUMENTS = (
    _Document(
        "`run --json` and `show RUN --json` of a backup",
        "A run",
        lambda make: documents.run_document(_run(make)),
    ),
    _Document(
        "`archive` of the document above; `null` where no segment follows the backup",
        "How far a run can be rolled forward",
        lambda make: documents.rolled_document(make(RolledForward)),
    ),
    _Document(
        "`history --json`: `runs`, newest first, each as above with `rolls_to`; no `penalty.samples`, `archive`",
        "History",
        lambda make: {"runs": [{"run_id": make(str), "rolls_to": make(datetime)}]},
    ),
    _Document(
        "`status --json`: `jobs`, a list of these",
        "How a job stands",
        lambda make: job_report.job_report_document(make(job_report.JobReport)),
    ),
    _Document(
        "`status --json`: `targets`, a list of these",
        "How a target stands",
        lambda make: target_report.target_report_document(make(StorageStatus), (make(SiteAlarm),)),
    ),
    _Document(
        "`check --json`",
        "A preflight",
        lambda make: documents.check_document("nightly", (make(Finding),)),
    ),
    _Document(
        "`fleet check --json`",
        "The hosts of a fleet, checked",
        lambda make: fleet_check_text.fleet_check_document(FleetConfiguration(), _seen(make), (make(Finding),)),
    ),
    _Document(
        "`fleet plan --json`",
        "The plan of a night",
        lambda make: fleet_plan_text.fleet_plan_document(
            make(NightPlan), _timetable(make), {"NAME": make(SharedTarget)}, zone="UTC", problems=make(Sequence[str])
        ),
    ),
    _Document(
        "`fleet status --json`",
        "How a fleet stands",
        lambda make: status_text.fleet_status_document(make(FleetStatus)),
    ),
    _Document(
        "`fleet history --json`",
        "Backups of a fleet, newest first",
        lambda make: fleet_night_text.history_document([make(FleetBackup)]),
    ),
    _Document(
        "`fleet report --json`",
        "What became of a night",
        lambda make: fleet_night_text.night_document(make(NightReport)),
    ),
    _Document(
        "`fleet report --month --json`",
        "What became of the nights of a month",
        lambda make: fleet_night_text.month_document(make(MonthReport)),
    ),
    _Document("`drill --json`", "A drill", lambda make: documents.drill_document(make(Drill))),
    _Document(
        "`restore --tables … --into HOST --dry-run --json`",
        "What would be loaded",
        lambda make: documents.loading_document("20261121-020000-7c1e", make(LoadingPlan)),
    ),
    _Document(
        "`prune --json`",
        "Retention",
        lambda make: documents.prune_document([make(Pruning)], dry_run=True),
    ),
    _Document(
        "`catalogue rebuild --json`",
        "A rebuilt catalogue",
        lambda make: documents.rebuild_document("vault", make(Rebuilding), [make(SegmentsRebuilt)]),
    ),
    _Document(
        "`binlog verify --json`",
        "A binlog archive, read back",
        lambda make: {"job": "nightly", "targets": [binlog_verify._document(make(SegmentsVerified))]},
    ),
    _Document(
        "`compare A B --json`",
        "Two runs compared",
        lambda make: run_comparison.compare_document(_run(make), _run(make)),
    ),
    _Document(
        "`report` as rows: what `history --csv` has of each backup, beside `rolls_to`, and the page's plots;"
        " `error` is the error's code, where `/api` has its message",
        "What a backup cost",
        lambda make: costs.cost_document(make(RunCost)),
    ),
    _Document(
        "`probe --json`, `show RUN --json` of a probe; without `curves` in `history --probes --json`",
        "A probe",
        lambda make: probe_table.document(make(ProbeRecord)),
    ),
    _Document(
        "`bench layouts --json` and `bench show --json`; without `samples` in `history --benches --json`",
        "A bench",
        lambda make: bench_document.document(make(BenchRecord)),
    ),
    _Document(
        "`report --json`: `jobs`, a list of these",
        "What backups cost over time",
        lambda make: impact_text.impact_document(make(Impact)),
    ),
    _Document(
        "`report --evidence --json`; `audit_chain` is as `audit verify --json` prints it",
        "Evidence",
        lambda make: evidence_document(
            make(Evidence), {}, key=DocumentKey(Path("/k"), "ssh-ed25519 A", "SHA256:A"), name="e.json"
        ),
    ),
    _Document(
        "`identity show --json`, which adds `public_key` and `targets`",
        "An identity",
        lambda make: identity._document(make(Identity), make(Machine)),
    ),
    _Document(
        "`notify test --json`: `notifications`, a list of these",
        "A notification that was tried",
        lambda make: notify._as_document(make(Delivery)),
    ),
    _Document(
        "`audit list --json`: `entries`, a list of these",
        "A row of the audit trail",
        lambda make: audit._entry(make(AuditEntry)),
    ),
    _Document("`audit verify --json`", "The audit trail, checked", lambda make: audit.examination(make(AuditResult))),
    _Document(
        "`binlog list --json`",
        "What can be restored of a binlog archive",
        lambda make: binlog_archive.listing_document(make(binlog_archive.ArchiveListing)),
    ),
    _Document(
        "`binlog status --json`: `jobs`, a list of these",
        "How a binlog archive stands",
        lambda make: binlog_archive.archive_report_document(make(binlog_archive.ArchiveReport)),
    ),
    _Document(
        "`binlog search --json`",
        "What was found in a binlog archive",
        lambda make: documents.findings_document("nightly", make(LogFindings)),
    ),
    _Document(
        "`volumes --json`",
        "Volumes",
        lambda make: volume_document.survey_document(make(Survey)),
    ),
)
