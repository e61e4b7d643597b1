"""`backupd clone`: from a backup to a folder in which a new replica starts, or a server for developers."""

import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from backupd.cli.invocation import IdentityOption, JsonOption
from backupd.cli.moments import (
    AskedMoment,
    BeforeGtidOption,
    JobOption,
    LatestOption,
    ToGtidOption,
    ToPositionOption,
    ToTimeOption,
    found_moment,
    moment_of,
)
from backupd.cli.output import print_document, say, tell
from backupd.cli.selection import (
    GOOD_RUN,
    TargetOption,
    copies_of,
    identities_in,
    run_of,
    sources_of,
    unpruned,
)
from backupd.report.words import duration, many
from backupd.vocabulary.errors import ExitStatus, UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from backupd.archive.encryption import Identities
    from backupd.catalogue.store import Catalogue
    from backupd.config import Configuration
    from backupd.mysql.seeding import ReplicationSource
    from backupd.mysql.sql_file import SqlFile
    from backupd.operations.restore.moment.moment_copy import RollForward
    from backupd.operations.restore.on_record import EndRecord
    from backupd.targets import BackupSource
    from backupd.vocabulary.records import RunDetails
    from backupd.vocabulary.storage import Manifest

_ADDRESS = re.compile(r"(?P<host>[^\s:\[\]'\\]+|\[[0-9A-Fa-f:.]+\])(:(?P<port>[0-9]{1,5}))?")
_LARGEST_PORT = 0xFFFF
_DURATIONS = "for example --scrub-within 90s, 30m or 2h"
_REPLICA_ONLY = "--source, --source-user, --source-password-file, --server-id and --gtid are for replicas"


def clone(
    ctx: typer.Context,
    run_id: Annotated[
        str | None, typer.Argument(metavar="RUN", help=f"{GOOD_RUN} Not needed with a moment.", show_default=False)
    ] = None,
    *,
    to: Annotated[Path, typer.Option(help="An empty folder, or one in which this clone to a moment was interrupted.")],
    as_replica: Annotated[bool, typer.Option("--as-replica", help="Make a replica of the server.")] = False,
    source: Annotated[
        str | None,
        typer.Option(metavar="HOST[:PORT]", help=("The server that was backed up, which the replica will follow.")),
    ] = None,
    source_user: Annotated[str | None, typer.Option(help="Replication user on the source.")] = None,
    source_password_file: Annotated[Path | None, typer.Option(help="File with that user's password.")] = None,
    server_id: Annotated[
        int | None, typer.Option(min=1, max=0xFFFF_FFFF, help="server_id of the replica; default: random.")
    ] = None,
    gtid: Annotated[
        bool | None,
        typer.Option(
            "--gtid/--file-position",
            help=("Replicate by GTID or file position; default: GTID if the source uses it."),
            show_default=False,
        ),
    ] = None,
    scrub: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FILE",
            help="Run the SQL in this file on the copy before it is handed over; repeatable. Not with --as-replica.",
            show_default=False,
        ),
    ] = None,
    scrub_within: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION", help="How long all of that SQL may take, such as 2h; default: 30m.", show_default=False
        ),
    ] = None,
    to_time: ToTimeOption = None,
    to_gtid: ToGtidOption = None,
    before_gtid: BeforeGtidOption = None,
    to_position: ToPositionOption = None,
    latest: LatestOption = False,
    job: JobOption = None,
    target: TargetOption = None,
    identity: IdentityOption = None,
    json: JsonOption = False,
) -> None:
    """Make a replica from a backup, or a scrubbed copy for developers: a folder, ready for a new server.

    With a moment (--to-time and others), the job's binlog archive is applied up to exactly there before anything else.
    A replica knows its replication position. A scrubbed copy is handed over only if every statement of FILE ran;
    what ran is told by backupd-scrub.json in the folder, and by the audit trail.
    """
    from backupd.cli.progress import log_applied
    from backupd.operations import context
    from backupd.operations.restore.next_copy import agreed
    from backupd.operations.restore.on_record import broken_copies, damage_on_record

    moment = moment_of(to_time, to_gtid, before_gtid, to_position, latest=latest)
    limit = _scrub_limit(scrub_within)
    of_replicas = (source, source_user, source_password_file, server_id, gtid)
    _require_one_kind(as_replica=as_replica, scrubbed=bool(scrub), limited=scrub_within is not None, told=of_replicas)
    files = _read(scrub or ())
    followed = _source(source, source_user, source_password_file)
    if moment is None and (run_id is None or job is not None):
        raise UsageError(
            "name the run to clone",
            hint="RUN is an id, latest[:JOB], latest-good[:JOB] or as-of=TIME[:JOB]; --job takes a moment, such as"
            " --to-latest",
        )
    configuration, identities = context.configuration(ctx.obj.config), identities_in(identity)
    with context.catalogue(configuration) as catalogue, log_applied() as applied:
        if moment is not None:
            wanted = AskedMoment(moment, run_id, job)
            found = found_moment(
                *(configuration, catalogue, wanted), to=to, target=target, identities=identities, applied=applied
            )
            of_backup = (found.run, found.manifest, found.copies, found.sources)
            asked = _Asked(configuration, catalogue, *of_backup, identities, to, json, found.forward, found.doubt)
        else:
            run = run_of(configuration, catalogue, run_id or "", target=target)
            copies = sources_of(configuration, catalogue, run, copies_of(run, target=target, broken_last=True))
            with damage_on_record(catalogue, copies, telling=tell):
                manifest, sources = agreed(copies, identities)
            asked = _Asked(configuration, catalogue, run, manifest, copies, sources, identities, to, json)
        if files:
            asked = _doubting_logs(asked)
            _scrubbed(asked, files, limit)
        else:
            _replica(asked, followed, server_id, gtid)
    if asked.doubt or broken_copies(asked.copies):
        raise typer.Exit(ExitStatus.ATTENTION)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What both kinds of clone are made of, and where."""

    configuration: "Configuration"
    catalogue: "Catalogue"
    run: "RunDetails"
    manifest: "Manifest"
    copies: "Sequence[BackupSource]"  # all of them
    sources: "Sequence[BackupSource]"  # from the first on that has a manifest which can be used
    identities: "Identities | None"
    to: Path
    json: bool
    forward: "RollForward | None" = None
    doubt: str = ""  # why the copy may have other times than the server had, or more of it; it has been told

    @property
    def moment(self) -> str | None:
        """To which it is rolled forward, in words."""
        return None if self.forward is None else str(self.forward.plan.end.moment)

    @property
    def origin(self) -> str:
        """What is cloned, in words."""
        run = f"run {self.manifest.run_id}"
        return run if self.moment is None else f"{run} and its binlog up to {self.moment}"

    @contextmanager
    def recorded(self, **detail: Any) -> "Iterator[EndRecord]":
        """The block makes the clone."""
        from backupd.host.signals import cancellable
        from backupd.operations.restore.on_record import Deed, on_record

        run_id, to = self.run.run_id, self.to.absolute()
        detail |= {} if self.moment is None else {"moment": self.moment}
        with (
            cancellable(),
            unpruned(self.configuration, self.run),
            on_record(self.catalogue, run_id, Deed.CLONE, to, self.copies, telling=tell, **detail) as done,
        ):
            yield done
            if self.doubt:
                done.attentions.append(self.doubt)


def _replica(asked: _Asked, followed: "ReplicationSource | None", server_id: int | None, by_gtid: bool | None) -> None:
    from backupd.cli.documents import clone_document
    from backupd.mysql.replica_files import position_in_words
    from backupd.mysql.seeding import Following, ReplicaWish, following, require_password_fits, require_position
    from backupd.operations.restore.clone import clone as clone_backup
    from backupd.operations.restore.clone import new_server_id, require_another_id

    manifest = asked.manifest
    require_position(manifest)
    if followed is not None:
        require_password_fits(manifest.server.flavour, followed.password)
    if server_id is not None:
        require_another_id(manifest, server_id)
    how = None if by_gtid is None else Following.GTID if by_gtid else Following.FILE_POSITION
    wanted = ReplicaWish(
        server_id=server_id if server_id is not None else new_server_id(manifest),
        following=following(manifest, how),
        source=followed,
    )
    with asked.recorded(server_id=wanted.server_id) as done:
        made = clone_backup(
            *(manifest, asked.sources, wanted),
            to=asked.to.absolute(),
            forward=asked.forward,
            identities=asked.identities,
            confined=not asked.configuration.restore.unconfined,
            telling=tell,
        )
        if asked.forward is not None:
            position = made.seeded.position
            done.detail["position"] = f"{position.binlog_file}:{position.binlog_offset}"
    if asked.json:
        print_document(clone_document(manifest, wanted, made))
    else:
        say(f"cloned {asked.origin} to {asked.to} as replica {wanted.server_id}, by {wanted.following}")
        if asked.forward is not None:
            say(f"position: {position_in_words(made.seeded.position)}")
        say(f"options: {made.option_file}; add socket and port, and start {manifest.server.flavour} with it")
        say(f"then: {'; '.join(made.seeded.left)}")


def _doubting_logs(asked: _Asked) -> _Asked:
    from backupd.mysql.server_logs import logs_doubt

    doubt = logs_doubt(asked.manifest.server)
    if doubt:
        tell(f"attention: {doubt}")
    return replace(asked, doubt="; ".join(filter(None, (asked.doubt, doubt))))


def _scrubbed(asked: _Asked, files: "Sequence[SqlFile]", limit: float | None) -> None:
    from backupd.cli.documents import scrubbed_clone_document
    from backupd.operations.restore.scrubbed_clone import WITHIN_SECONDS, scrubbed_clone

    manifest, digests = asked.manifest, {file.name: file.sha256 for file in files}
    with asked.recorded(scrub=digests) as done:
        made = scrubbed_clone(
            *(manifest, asked.sources, files),
            to=asked.to.absolute(),
            forward=asked.forward,
            within_seconds=WITHIN_SECONDS if limit is None else limit,
            identities=asked.identities,
            confined=not asked.configuration.restore.unconfined,
            telling=tell,
        )
        done.detail |= {"scrub": digests, "scrubbed": made.scrub.totals}
    if asked.json:
        print_document(scrubbed_clone_document(manifest, made))
        return
    for file in made.scrub.files:
        say(
            f"ran {file.file}: {many(file.statements, 'statement')}, {many(file.rows_affected, 'row')} affected,"
            f" in {duration(file.seconds)}; sha256 {file.sha256}"
        )
    say(f"cloned {asked.origin} to {asked.to}, scrubbed; proof: {made.proof}")
    say(f"options: {made.option_file}; add socket and port, and start {manifest.server.flavour} with it")


def _require_one_kind(*, as_replica: bool, scrubbed: bool, limited: bool, told: "Sequence[object]") -> None:
    if as_replica and scrubbed:
        raise UsageError(
            "a scrubbed copy cannot be a replica: its source would send it original rows",
            hint="omit --as-replica or --scrub",
        )
    if not as_replica and not scrubbed:
        raise UsageError(
            "clone makes a replica or a scrubbed copy, and neither was asked for",
            hint="add --as-replica or --scrub FILE; for a plain copy use `backupd restore`",
        )
    if limited and not scrubbed:
        raise UsageError("--scrub-within has no effect without --scrub", hint="add --scrub FILE, or omit it")
    if scrubbed and any(each is not None for each in told):
        raise UsageError(_REPLICA_ONLY, hint="omit them: a scrubbed copy follows no source")


def _read(paths: "Sequence[Path]") -> "tuple[SqlFile, ...]":
    from backupd.mysql.sql_file import read_sql_file

    return tuple(map(read_sql_file, paths))


def _scrub_limit(text: str | None) -> float | None:
    from backupd.vocabulary.faults import BadValue
    from backupd.vocabulary.units import parse_duration

    try:
        seconds = None if text is None else parse_duration(text)
    except BadValue as bad:
        raise UsageError(f"--scrub-within: {bad.fact}", hint=_DURATIONS) from bad
    if seconds == 0:
        raise UsageError("--scrub-within must be more than 0", hint=_DURATIONS)
    return seconds


def _source(address: str | None, user: str | None, password_file: Path | None) -> "ReplicationSource | None":
    from backupd.config.secrets import password_in
    from backupd.mysql.seeding import ReplicationSource

    if address is None:
        if user is not None or password_file is not None:
            raise UsageError("a source user is given, but no source", hint="add --source HOST[:PORT]")
        return None
    found = _ADDRESS.fullmatch(address)
    port = int(found["port"] or 3306) if found else 0
    if found is None or not 0 < port <= _LARGEST_PORT:
        raise UsageError(
            f"{address!r} is not a HOST[:PORT]", hint="for example db1.example.org:3306, or [2001:db8::1]:3306"
        )
    if not user or "\\" in user:
        raise UsageError("--source needs a user", hint="add --source-user NAME, without backslashes")
    password = None if password_file is None else password_in(password_file, named="--source-password-file")
    return ReplicationSource(found["host"].strip("[]"), user, port, password)
