"""Which segments the binlog archives have, on which targets they lie, which of them still wait, and where gaps are.

Knows: a row for each, of this machine. A segment has its row before anything is stored. There may be a million of them:
what is asked for every few seconds looks at those that wait alone, and lists are read page by page.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    Connection,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    func,
    insert,
    or_,
    select,
    update,
)

from backupd.catalogue import binlog_tables, identities, tables
from backupd.catalogue.audit import Event, audit_step, entry
from backupd.catalogue.columns import from_row, to_row
from backupd.catalogue.file import CatalogueFile
from backupd.catalogue.segment_steps import begins_row, called, forgotten, gap_told, lies, on_target, unspooled
from backupd.vocabulary.binlogs import ArchiveGap, BinlogPlace, BinlogSegment, numbered
from backupd.vocabulary.errors import Untrusted

if TYPE_CHECKING:
    from sqlalchemy import ColumnElement

PAGE = 1000  # segments that are read at a time

_table, _stored, _gaps = binlog_tables.segments, binlog_tables.stored, binlog_tables.gaps
_ours, _on = _table.c, _stored.c


@dataclass(frozen=True, slots=True)
class ExpiredPart:
    """Which part of a chain a target needs no more."""

    chain: str
    below: int | None  # numbers below this one; None: all
    before: datetime  # received before then
    needed_on: Mapping[str, int]  # by target: what it needs from this number on, and lacks, is no part of it


class BinlogSegments(CatalogueFile):
    """The rows of binlog archives."""

    def add_segment(self, segment: BinlogSegment, *, spooled: bool = True) -> None:
        """The segment is known; `spooled` where its file waits in the spool. Nothing happens where it was known.

        Raises:
            Untrusted: another segment of that name is known.
        """
        with self._writing() as connection:
            known = connection.execute(select(_ours.digest).where(called(segment.name))).scalar()
            if known is None:
                _add(connection, segment, spooled=spooled)
            elif known != segment.digest:
                raise Untrusted(
                    f"segment {segment.name} is not the one on record: its digest is {segment.digest[:16]}…, and the"
                    f" catalogue has {known[:16]}…",
                    hint="it was replaced: check who can write to the target",
                )

    def import_segments(self, segments: Sequence[BinlogSegment], target: str, *, at: datetime) -> list[str]:
        """These are known, and lie on the target since then; they do not wait. In one transaction.

        The names of those are returned of which another segment is known: nothing happens to them.
        """
        others: list[str] = []
        with self._writing() as connection:
            for segment in segments:
                known = connection.execute(select(_ours.id, _ours.digest).where(called(segment.name))).first()
                if known is not None and known.digest != segment.digest:
                    others.append(segment.name)
                    continue
                if known is None:
                    _add(connection, segment, spooled=False)
                connection.execute(lies(segment.name, target, at, "OR IGNORE"))
        return others

    def segment_stored(self, name: str, target: str, *, at: datetime) -> None:
        """The segment lies on the target since then."""
        self._write(lies(name, target, at, "OR REPLACE"))

    def lacking_segments(self, job: str, target: str, *, at_most: int | None = None) -> list[BinlogSegment]:
        """What waits in the spool and does not lie on the target, the oldest first: all, or so many."""
        there = exists().where(_on.segment_id == _ours.id, _on.target == target)
        query = select(_table).where(binlog_tables.WAITING, _ours.job == job, ~there).order_by(_ours.id)
        return self._segments(query.limit(at_most))

    def segment_targets(self, name: str) -> frozenset[str]:
        """On which targets the segment lies."""
        query = select(_on.target).join(_table, _on.segment_id == _ours.id).where(called(name))
        return frozenset(row["target"] for row in self._read(query))

    def spooled_segments(self, job: str) -> list[BinlogSegment]:
        """What waits in the spool, the oldest first."""
        return self._segments(select(_table).where(binlog_tables.WAITING, _ours.job == job).order_by(_ours.id))

    def waiting_segments(self, job: str) -> tuple[int, int]:
        """How many segments wait in the spool, and how many bytes they have there beside their descriptions."""
        counted = select(func.count(), func.coalesce(func.sum(_ours.stored_bytes), 0))
        query = counted.where(binlog_tables.WAITING, _ours.job == job)
        with self._reading() as connection:
            ours = query.where(_ours.machine == identities.current(connection).name)
            count, size = connection.execute(ours).one()
            return count, size

    def waiting_stored(self, job: str) -> dict[str, tuple[int, int]]:
        """By target, how many of the segments that wait in the spool lie there already, and how many bytes they have.

        A target that is not told of lacks them all.
        """
        counted = select(_on.target, func.count(), func.sum(_ours.stored_bytes))
        query = counted.join(_table, _on.segment_id == _ours.id).where(binlog_tables.WAITING, _ours.job == job)
        with self._reading() as connection:
            ours = query.where(_ours.machine == identities.current(connection).name).group_by(_on.target)
            return {target: (count, size) for target, count, size in connection.execute(ours)}

    def waiting_jobs(self) -> dict[str, int]:
        """How many segments of each job wait in a spool, whether it is configured or not."""
        counted = select(_ours.job, func.count().label("waiting")).where(binlog_tables.WAITING).group_by(_ours.job)
        return {row["job"]: row["waiting"] for row in self._rows(counted)}

    def left_spool(self, names: Collection[str]) -> None:
        """These segments no longer wait: every target has them."""
        self._write(*map(unspooled, names))

    def latest_segment(
        self, job: str, *, target: str | None = None, before: datetime | None = None
    ) -> BinlogSegment | None:
        """The last one, on that target where one is named; None where there is none. `before`: that was received so.

        A clock that was set back has given older times to later ones: names are in order all the same.
        """
        query = _of(job, target=target)
        if before is not None:
            newest = query.where(_ours.received_at < before).order_by(_ours.received_at.desc(), _ours.id.desc())
            return next(iter(self._segments(newest.limit(1))), None)
        for chain in reversed(self.archive_chains(job)):
            last = query.where(_ours.chain == chain).order_by(_ours.number.desc()).limit(1)
            if found := self._segments(last):
                return found[0]
        return None

    def received_before(self, run_id: str, job: str) -> BinlogSegment | None:
        """The last one that had been received when the run of the job began, whatever the clock was then; an earlier
        one where that is gone. None where nobody knows: an earlier backupd began it, or another catalogue's.
        """
        query = select(tables.runs.c.behind_segment).where(tables.runs.c.run_id == run_id)
        name = next((row["behind_segment"] for row in self._read(query)), None)
        if name is None:
            return None
        if name:
            chain, number = numbered(name)
            of_chain = _of(job, target=None).where(_ours.chain == chain, _ours.number <= number)
            if found := self._segments(of_chain.order_by(_ours.number.desc()).limit(1)):
                return found[0]
        return next(self.segments(job), None)

    def stored_segments(self, job: str) -> dict[str, tuple[int, int]]:
        """By target, how many segments of the job lie there, and how many bytes they have."""
        counted = select(_on.target, func.count(), func.sum(_ours.stored_bytes)).join(
            _table, _on.segment_id == _ours.id
        )
        query = counted.where(_ours.job == job).group_by(_on.target)
        with self._reading() as connection:
            ours = query.where(_ours.machine == identities.current(connection).name)
            return {target: (count, size) for target, count, size in connection.execute(ours)}

    def segments_missing(self, job: str, target: str, *, of: str) -> int:
        """How many segments of the job lie on the target `of` and not on this one."""
        on_it, on_other = (
            exists().where(_on.segment_id == _ours.id, _on.target == name).correlate(_table) for name in (target, of)
        )
        query = select(func.count()).select_from(_table).where(_ours.job == job, on_other, ~on_it)
        with self._reading() as connection:
            return connection.execute(query.where(_ours.machine == identities.current(connection).name)).scalar_one()

    def segments_at(self, job: str, places: Collection[BinlogPlace]) -> list[BinlogSegment]:
        """Those that have one of these places in them or at one of their ends, of every history that used its file's
        name; by chain and number.
        """
        from backupd.catalogue.archive_outline import at_places

        with self._reading() as connection:
            return at_places(connection, identities.current(connection).name, job, places)

    def archived_jobs(self, jobs: Collection[str]) -> list[str]:
        """Those of these jobs of which there are segments."""
        with self._reading() as connection:
            machine = identities.current(connection).name
            one = select(_ours.id).where(_ours.machine == machine, _ours.job == bindparam("job")).limit(1)
            return [job for job in sorted(jobs) if connection.execute(one, {"job": job}).first() is not None]

    def archive_chains(self, job: str) -> list[str]:
        """The chains of which there are segments, as they were begun; in as many steps as the catalogue has chains."""
        found: list[str] = []
        with self._reading() as connection:
            machine, last = identities.current(connection).name, ""
            first = select(_ours.chain, _ours.machine, _ours.job).order_by(_ours.chain, _ours.number).limit(1)
            while row := connection.execute(first.where(_ours.chain > last)).first():
                last = row.chain
                if (row.machine, row.job) == (machine, job):
                    found.append(last)
        return found

    def last_numbers(self, job: str) -> dict[str, int]:
        """By chain, the number of the last segment that there is, or was until it was removed."""
        query = select(_ours.chain, func.max(_ours.number).label("last")).where(_ours.job == job).group_by(_ours.chain)
        found = {row["chain"]: row["last"] for row in self._rows(query)}
        told = tables.audit.c
        for row in self._read(select(tables.audit).where(told.event == Event.SEGMENTS_REMOVED, told.subject == job)):
            with suppress(ValueError):  # somebody changed it
                chain, number = numbered(str(entry(row).detail.get("last")))
                found[chain] = max(number, found.get(chain, 0))
        return found

    def expired_segments(
        self, job: str, target: str, expired: "ExpiredPart", *, behind: int = 0
    ) -> list[BinlogSegment]:
        """Of that part of a chain what lies on the target, behind this number, in their order: one page."""
        kept = [_lacks(other, number) for other, number in expired.needed_on.items()]
        query = _part(job, target, expired).where(_ours.number > behind, *(~one for one in kept))
        return self._segments(query.order_by(_ours.number).limit(PAGE))

    def kept_for(self, job: str, target: str, expired: "ExpiredPart") -> list[str]:
        """Other targets for whose needs some of that part of a chain stays on the target."""
        query = _part(job, target, expired).order_by(_ours.number).limit(1)
        return [other for other, number in expired.needed_on.items() if self._rows(query.where(_lacks(other, number)))]

    def segments(
        self, job: str, *, chain: str | None = None, target: str | None = None, since: datetime | None = None
    ) -> Iterator[BinlogSegment]:
        """All of a job, of one chain, on one target or received since then, as they were received; page by page.

        What is written meanwhile may be among them.
        """
        query = _of(job, target=target).order_by(_ours.received_at, _ours.id).limit(PAGE)
        query = query if chain is None else query.where(_ours.chain == chain)
        query = query if since is None else query.where(_ours.received_at >= since)
        page = self._rows(query)
        while page:
            yield from (from_row(BinlogSegment, row) for row in page)
            at, number = page[-1]["received_at"], page[-1]["id"]
            later = or_(_ours.received_at > at, and_(_ours.received_at == at, _ours.id > number))
            page = self._rows(query.where(_ours.received_at >= at, later)) if len(page) == PAGE else []

    def segments_leaving(self, target: str, names: Sequence[str], *, because: str | None) -> None:
        """From now on these may be gone from the target, although they are still listed there; None: they are not."""
        if names:
            self._write(*(update(_stored).where(on_target(name, target)).values(leaving=because) for name in names))

    def leaving_segments(self, job: str, target: str) -> dict[str, list[BinlogSegment]]:
        """By the reason, those of which somebody began to say so and never that they are gone."""
        query = select(_table, _on.leaving).join(_stored, _on.segment_id == _ours.id).order_by(_ours.id)
        found: dict[str, list[BinlogSegment]] = {}
        for row in self._rows(query.where(binlog_tables.LEAVING, _on.target == target, _ours.job == job)):
            found.setdefault(row["leaving"], []).append(from_row(BinlogSegment, row))
        return found

    def segments_removed(self, job: str, target: str, names: Sequence[str], *, because: str) -> None:
        """These segments of the job no longer lie on the target; the audit chain tells of them in one row."""
        if names:
            told = {"target": target, "first": names[0], "last": names[-1], "segments": len(names), "because": because}
            event = audit_step(Event.SEGMENTS_REMOVED, job, **told)
            self._write(*(delete(_stored).where(on_target(name, target)) for name in names), event)

    def forget_segments(self, names: Collection[str]) -> None:
        """Of these segments those that do not wait and lie on no target have no row any more."""
        self._write(*map(forgotten, names), *map(begins_row, names))

    def segment_dropped(self, job: str, name: str, gaps: Iterable[ArchiveGap]) -> None:
        """It no longer waits, whoever lacks it, as these gaps tell; where no target has it, it has no row any more."""
        self._write(*(gap_told(job, gap) for gap in gaps), unspooled(name), forgotten(name), begins_row(name))

    def archive_contact(
        self, job: str, *, at: datetime, refused: str = "", behind_bytes: int | None = None, complete: bool = True
    ) -> None:
        """The archive had all that the job's server had written, or so many bytes of it were not archived yet.

        Where it was `refused`, or is not `complete`, its last contact stays.
        """
        table = binlog_tables.contacts
        with self._writing() as connection:
            whose = {"machine": identities.current(connection).name, "job": job}
            ours = and_(table.c.machine == whose["machine"], table.c.job == job)
            known = connection.execute(select(table.c.at).where(ours)).scalar()
            stays = (refused or not complete) and known is not None
            since = min(known, at) if stays and known is not None else at  # a clock may have been ahead
            row = {**whose, "at": since, "refused": refused, "asked_at": at, "behind_bytes": behind_bytes}
            connection.execute(insert(table).prefix_with("OR REPLACE").values(row))

    def archive_awaited(self, job: str, *, at: datetime) -> None:
        """From now on somebody waits for the job's archive, if none of it has told anything yet."""
        with self._writing() as connection:
            whose = {"machine": identities.current(connection).name, "job": job}
            row = {**whose, "at": at, "refused": "no receiver has told anything yet"}
            connection.execute(insert(binlog_tables.contacts).prefix_with("OR IGNORE").values(row))

    def archive_gap(self, job: str, gap: ArchiveGap) -> None:
        """The job's chain ended so; what was said of its end before is replaced."""
        self._write(gap_told(job, gap))

    def archive_goes_on(self, job: str, chain: str) -> None:
        """The job's chain did not end."""
        with self._writing() as connection:
            machine = identities.current(connection).name
            ours = and_(_gaps.c.machine == machine, _gaps.c.job == job, _gaps.c.chain == chain)
            connection.execute(delete(_gaps).where(ours))

    def archive_gaps(self, job: str) -> list[ArchiveGap]:
        """Why the job's chains ended, as it was noticed."""
        query = select(_gaps).where(_gaps.c.job == job).order_by(_gaps.c.noticed_at, _gaps.c.chain)
        with self._reading() as connection:
            ours = query.where(_gaps.c.machine == identities.current(connection).name)
            return [from_row(ArchiveGap, row) for row in connection.execute(ours).mappings()]

    def _segments(self, query: Select[Any]) -> list[BinlogSegment]:
        return [from_row(BinlogSegment, row) for row in self._rows(query)]

    def _rows(self, query: Select[Any]) -> list[Any]:
        """Of this machine's."""
        with self._reading() as connection:
            ours = query.where(_ours.machine == identities.current(connection).name)
            return list(connection.execute(ours).mappings())


def _add(connection: Connection, segment: BinlogSegment, *, spooled: bool) -> None:
    """Of the segment, and of the next one where that is there, it is kept whether it continues the log before it."""
    from backupd.policy.binlog_chain import is_same_server, leads_on  # whoever only reads the catalogue does without

    of_chain = select(_table).where(_ours.chain == segment.chain)
    around = connection.execute(of_chain.where(_ours.number.in_((segment.number - 1, segment.number + 1)))).mappings()
    near = {found.number: found for found in (from_row(BinlogSegment, row) for row in around)}
    before, after = near.get(segment.number - 1), near.get(segment.number + 1)
    goes_on = before is not None and is_same_server(before.origin, segment.origin) and not leads_on(before, segment)
    connection.execute(insert(_table).values({**to_row(segment), "spooled": spooled, "follows": goes_on}))
    if after is not None:
        goes_on = is_same_server(segment.origin, after.origin) and not leads_on(segment, after)
        connection.execute(update(_table).where(called(after.name)).values(follows=goes_on))


def _of(job: str, *, target: str | None) -> Select[Any]:
    query = select(_table).where(_ours.job == job)
    if target is None:
        return query
    return query.where(exists().where(_on.segment_id == _ours.id, _on.target == target))


def _part(job: str, target: str, expired: ExpiredPart) -> Select[Any]:
    """What lies on the target of it, whatever others need."""
    query = _of(job, target=target).where(_ours.chain == expired.chain, _ours.received_at < expired.before)
    return query if expired.below is None else query.where(_ours.number < expired.below)


def _lacks(target: str, number: int) -> "ColumnElement[bool]":
    """Of a segment from this number on: it does not lie on the target, or nobody knows whether it still does."""
    there = exists().where(_on.segment_id == _ours.id, _on.target == target, ~binlog_tables.LEAVING)
    return and_(_ours.number >= number, ~there)
