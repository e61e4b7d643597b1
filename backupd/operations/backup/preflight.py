"""May this job run now? Every answer at once, each with a hint; and what a run needs to know to begin.

Knows: what must be true of server, volume, target and host before anything is touched. Refuses to change anything.
A finding is `refused` where a backup would be impossible or no backup, `warning` where it would be dearer or poorer.
"""

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from backupd.archive.options import option_files
from backupd.config import JobConfig, LockStrategy
from backupd.mysql import redo
from backupd.mysql.facts import binlog_limit
from backupd.operations.backup import (
    binlog_spool,
    destinations,
    lock_free,
    preflush,
    probing,
    rate_limit,
    replicas,
    storing,
    volume_checks,
)
from backupd.operations.copies import spool_folder
from backupd.operations.findings import HOST_FAULTS, ok, refused
from backupd.operations.tools import Tools
from backupd.policy.snapshot_plan import plan_snapshot
from backupd.targets import Target
from backupd.vocabulary.errors import ConfigurationError, NoTargetAnswers, Refused, SnapshotError
from backupd.vocabulary.gauges import Tuning
from backupd.vocabulary.identity import Identity, Machine
from backupd.vocabulary.penalty import SnapshotLife
from backupd.vocabulary.records import Finding, Level
from backupd.vocabulary.servers import DataPath, Flavour, ServerFacts
from backupd.vocabulary.storage import LastCopy
from backupd.vocabulary.units import format_duration, size_words
from backupd.vocabulary.volumes import FileIdentity, MountPoint, Volume, VolumeGroup

_NO_TUNINGS: Mapping[str, Tuning] = {}


@dataclass(frozen=True, slots=True)
class Ready:
    """What a run knows once nothing forbids it."""

    facts: ServerFacts
    paths: tuple[DataPath, ...]
    mount: MountPoint
    volume: Volume
    group: VolumeGroup
    root: Path  # the folder that is archived, live: it holds everything that must share the volume
    landmarks: Mapping[Path, FileIdentity] = field(default_factory=dict)  # by which its image is known
    targets: tuple[Target, ...] = ()  # those that can be written
    unusable: Mapping[str, str] = field(default_factory=dict)  # the job's other targets: why not

    @property
    def takes_writes(self) -> bool:
        """Whether rows of ours may be written: not on a replica, whose data would drift, nor on a read-only server."""
        return not (self.facts.read_only or self.facts.is_replica)


@dataclass(frozen=True, slots=True)
class Examination:
    """All findings, and what a run needs where none of them is `refused`."""

    findings: tuple[Finding, ...]
    ready: Ready | None
    targets_away: bool = False  # all of them, which may pass

    @property
    def warnings(self) -> tuple[Finding, ...]:
        """What stops no run, and a person should know."""
        return tuple(finding for finding in self.findings if finding.level is Level.WARNING)

    def require(self) -> Ready:
        """Raise unless the job may run.

        Raises:
            Refused: the message lists every refused finding, the hint every hint.
            NoTargetAnswers: the same where all that is refused are targets that are away.
        """
        refused = [finding for finding in self.findings if finding.level is Level.REFUSED]
        if refused or self.ready is None:
            others = [finding for finding in refused if not finding.name.startswith(destinations.TARGET)]
            passing = self.targets_away and refused and not others
            raise (NoTargetAnswers if passing else Refused)(
                "; ".join(f"{finding.name}: {finding.detail}" for finding in refused),
                hint="; ".join(dict.fromkeys(finding.hint for finding in refused if finding.hint)),
            )
        return self.ready


def examine(
    job: JobConfig,
    tools: Tools,
    *,
    last_stored_bytes: int | None,
    last_copy: LastCopy | None = None,
    past: Sequence[SnapshotLife] = (),
    tunings: Mapping[str, Tuning] = _NO_TUNINGS,
    require_ours: Callable[[Target], bool] = lambda _target: False,
) -> Examination:
    """Check all prerequisites for a run of this job.

    `last_copy` tells how long the next one takes, `past` what snapshots of the job's earlier runs have filled,
    `tunings` what probes have found best, by volume.
    `require_ours` raises a TargetError for a target where another machine has written into this machine's folder, and
    tells whether what this one had written there is gone.
    """
    findings: list[Finding] = []
    ready = _examine_host(job, tools, findings, past, tunings)
    used = tools.files.used_bytes(ready.mount.path) if ready is not None else None
    reached = destinations.examine(tools.targets, require_ours, last_stored_bytes=last_stored_bytes, used_bytes=used)
    findings += reached.findings
    findings += probing.of_program(job, tools)
    findings += _option_files(job)
    findings += _hooks(job)
    if ready is not None and used is not None:
        findings += volume_checks.of_size(used, most=storing.MOST_BYTES)
        ready = replace(ready, targets=reached.usable, unusable=reached.unusable)
        findings += _places(tools, ready)
        forecast = last_copy.expected_seconds(used) if last_copy is not None else None
        seconds = forecast if forecast is not None else probing.guessed_seconds(used)
        findings += probing.of_room(job, tools, ready.mount, copy_seconds=seconds)
        findings += _rate_limit(job, ready, past, tunings, used_bytes=used)
        findings += spool_folder.examine(
            job.copy, tools, ready.targets, mount=ready.mount, volume=ready.volume, paths=ready.paths
        )
        findings += binlog_spool.examine(job.binlog, tools, mount=ready.mount, volume=ready.volume)
    return Examination(tuple(findings), ready, targets_away=reached.all_away)


def _rate_limit(
    job: JobConfig, ready: Ready, past: Sequence[SnapshotLife], tunings: Mapping[str, Tuning], *, used_bytes: int
) -> Iterator[Finding]:
    tuning = tunings.get(ready.volume.uuid)
    with contextlib.suppress(SnapshotError):  # told by `of_room`
        plan = plan_snapshot(ready.volume, ready.group, "preflight", job.snapshot, past, tuning=tuning)
        yield from rate_limit.examine(job, plan, ready.group, past, used_bytes=used_bytes)


def of_identity(identity: Identity, machine: Machine) -> Finding:
    """Whether the catalogue is this machine's."""
    try:
        identity.require_of(machine)
    except Refused as error:
        return refused("identity", error)
    if not identity.bound_to:
        told = f"{identity.name}, not bound to any id: a clone of this machine could not be told apart from it"
        hint = "give it an /etc/machine-id (systemd-machine-id-setup), then `backupd identity adopt`"
        return Finding("identity", Level.WARNING, told, hint)
    return ok("identity", f"{identity.name}, this machine by its {', '.join(sorted(identity.bound_to))}")


def of_catalogue(faults: Sequence[str], *, hint: str) -> Iterator[Finding]:
    """Nothing, where its file is whole."""
    if faults:
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        yield Finding("catalogue", Level.WARNING, f"its file is damaged: {faults[0]}{more}", hint, attention=True)


def _examine_host(
    job: JobConfig,
    tools: Tools,
    findings: list[Finding],
    past: Sequence[SnapshotLife],
    tunings: Mapping[str, Tuning],
) -> Ready | None:
    """Server, then the volume under it; each step needs what the one before found."""
    try:
        facts = tools.server.facts()
    except HOST_FAULTS as error:
        findings.append(refused("server", error))
        return None
    findings.append(ok("server", f"{facts.flavour} {facts.version}"))
    findings += _server(job, tools, facts)
    paths = _data_paths(tools, facts, findings)
    try:
        mount = tools.files.mount_of(facts.datadir)
        findings += volume_checks.of_filesystem(mount)
        volume, group = tools.snapshots.volume_and_group_at(mount.device)
    except HOST_FAULTS as error:
        findings.append(refused("volume", error))
        return None
    findings += volume_checks.of_volume(volume)
    findings += volume_checks.of_group(group)
    findings += volume_checks.of_room(job, volume, group, past, tuning=tunings.get(volume.uuid))
    if paths is None:
        return None
    if job.lock.strategy is LockStrategy.NONE:  # then crash recovery needs the binlog of the same instant
        paths = tuple(replace(path, must_share=path.must_share or path.role == "binlog") for path in paths)
    shared = [path for path in paths if path.must_share]
    below = dict.fromkeys(at for path in shared for at in tools.files.mounts_below(path.path))
    shared += [DataPath("mount", at, must_share=True) for at in below]
    findings += volume_checks.of_links(paths)
    findings += volume_checks.of_keys(paths, mount, tools.files.mount_of)
    findings += volume_checks.of_one_volume(shared, mount, tools.files.mount_of)
    findings += volume_checks.of_one_mount(shared, mount, tools.files.mount_of)
    root = Path(os.path.commonpath([facts.datadir.resolve(), *(_folder(path.path) for path in shared)]))
    if not root.is_relative_to(mount.path):  # a path elsewhere was refused above; the datadir decides
        root = facts.datadir.resolve()
    try:
        landmarks = volume_checks.landmarks(paths, tools.files.identity)
    except SnapshotError as error:
        findings.append(refused("datadir", error))
        return None
    return Ready(facts, paths, mount, volume, group, root, landmarks)


def _data_paths(tools: Tools, facts: ServerFacts, findings: list[Finding]) -> tuple[DataPath, ...] | None:
    """Where the server's files are; None where it does not report, which says nothing of the volume."""
    try:
        return tools.server.data_paths(facts)
    except HOST_FAULTS as error:
        findings.append(refused("volume", error))
        return None


def _server(job: JobConfig, tools: Tools, facts: ServerFacts) -> Iterator[Finding]:
    yield _grants(job, tools)
    if not facts.redo_logging:
        yield Finding("redo logging", Level.REFUSED, redo.DISABLED, redo.ENABLE)
    yield from volume_checks.of_engines(facts)
    yield _binlog(job, facts)
    if job.lock.strategy is LockStrategy.NONE:
        yield from lock_free.examine(tools.server, facts)
    else:
        yield from _redo_log(job, facts)
        yield _blockers(job, tools)
    yield from preflush.examine(tools.flusher)
    yield from replicas.examine(job, tools.server, facts, binlog_shares=_binlog_shares(tools, facts))
    if job.canary and (facts.read_only or facts.is_replica):
        yield ok("canary", "off: the server is a replica or read-only")


def _grants(job: JobConfig, tools: Tools) -> Finding:
    try:
        strategy = tools.lock.strategy
        missing = tools.server.missing_grants(strategy, stop_applier=job.lock.stop_applier, preflush=job.lock.preflush)
    except HOST_FAULTS as error:
        return refused("grants", error)
    if not missing:
        return ok("grants", f"enough for {strategy}")
    return Finding(
        "grants",
        Level.REFUSED,
        f"missing for {strategy}: {', '.join(missing)}",
        f"{_grant_words(missing)} TO the user of host {job.host}",
    )


def _grant_words(missing: tuple[str, ...]) -> str:
    """Names without a level of their own are granted on everything."""
    everywhere = [name for name in missing if " ON " not in name]
    words = [f"GRANT {', '.join(everywhere)} ON *.*"] if everywhere else []
    return "; ".join((*words, *(f"GRANT {name}" for name in missing if name not in everywhere)))


def _binlog(job: JobConfig, facts: ServerFacts) -> Finding:
    if facts.binlog_basename is None:
        return Finding(
            "binlog",
            Level.WARNING,
            "the binlog is off: the backup has no position and no point-in-time recovery",
            "set log_bin in the server's option file",
        )
    kept = facts.binlog_expire_seconds
    if kept is not None and kept < job.every_seconds:
        return Finding(
            "binlog",
            Level.WARNING,
            f"binlogs are kept for {format_duration(kept)},"
            f" but the job runs every {format_duration(round(job.every_seconds))}",
            "raise binlog_expire_logs_seconds above the interval between backups",
        )
    if limit := binlog_limit(facts.settings):
        return Finding(
            "binlog",
            Level.WARNING,
            f"binlogs are removed beyond {size_words(limit)} in all, however young they are",
            "set max_binlog_total_size to more than the server logs between two backups, or to 0",
        )
    return ok("binlog", "kept indefinitely" if kept is None else f"kept for {format_duration(kept)}")


def _binlog_shares(tools: Tools, facts: ServerFacts) -> bool:
    """Whether the binlog is in the image. What cannot be read is not."""
    if facts.binlog_basename is None:
        return False
    mount_of = tools.files.mount_of
    try:
        return mount_of(facts.binlog_basename.parent).device == mount_of(facts.datadir).device
    except (OSError, *HOST_FAULTS):
        return False


def _redo_log(job: JobConfig, facts: ServerFacts) -> Iterator[Finding]:
    """What FLUSH ENGINE LOGS does not write on some releases of MariaDB; on the others the wait has no length."""
    if facts.flavour is Flavour.MARIADB and facts.settings.get("innodb_flush_log_at_trx_commit") == "0":
        seconds = facts.settings.get("innodb_flush_log_at_timeout", "1")
        yield Finding(
            "redo log",
            Level.WARNING,
            f"innodb_flush_log_at_trx_commit is 0: the lock may be held up to {seconds} s longer"
            f" (innodb_flush_log_at_timeout), until InnoDB writes its log;"
            f" the run fails if that exceeds lock.hold_budget ({job.lock.hold_budget_seconds:g} s)",
            "SET GLOBAL innodb_flush_log_at_trx_commit = 2: then the lock does not wait for that",
        )


def _blockers(job: JobConfig, tools: Tools) -> Finding:
    try:
        blockers = tools.server.blockers(job.lock.blocker_age_seconds)
    except HOST_FAULTS as error:
        return refused("blockers", error)
    if not blockers:
        return ok("blockers", "no running statement would block the lock")
    longest = max(blockers, key=lambda blocker: blocker.seconds)
    return Finding(
        "blockers",
        Level.WARNING,
        f"connection {longest.connection_id} of {longest.user} has run for {longest.seconds:.0f} s:"
        f" {longest.statement}",
        "wait for it to end: the lock is not requested while it runs",
    )


def _option_files(job: JobConfig) -> Iterator[Finding]:
    """What could not be stored must not be noticed only once the copy has been made."""
    if not job.copy.option_files:
        return
    try:
        option_files(job.copy.option_files)
    except ConfigurationError as error:
        yield refused("option files", error)
    else:
        yield ok("option files", ", ".join(map(str, job.copy.option_files)))


def _hooks(job: JobConfig) -> Iterator[Finding]:
    for hook in job.hooks.values():
        if not os.access(hook.command[0], os.X_OK) or Path(hook.command[0]).is_dir():
            yield Finding(
                "hook",
                Level.REFUSED,
                f"hook {hook.name}: {hook.command[0]} does not exist or is not executable",
                "chmod 755 it, or correct the path in `command`",
            )


def _places(tools: Tools, ready: Ready) -> Iterator[Finding]:
    places = {
        "catalogue": tools.places.catalogue,
        "run folder": tools.places.run,
        "staging folder": tools.places.staging,
        **{f"folder of target {target.name}": target.folder for target in ready.targets if target.folder},
    }
    return volume_checks.of_places(places, ready.volume, ready.mount, tools.files.mount_of)


def _folder(path: Path) -> Path:
    """The folder itself, or the one that a file is in; so of what cannot be read, which is refused anyway."""
    resolved = path.resolve()
    with contextlib.suppress(OSError):
        if resolved.is_dir():
            return resolved
    return resolved.parent
