"""What a restored folder needs next: as a replica of the server that was backed up, or to reach a later moment.

Knows: the words of the recorded server, whose version is all that is known of it here. Refuses to start anything, to
know a password, and to know where on its machine the server will run. Pure: one text, which a client could be fed once
a person has filled in the placeholders, for everything else in it is a comment.

Tried on MariaDB 10.11.19:
- A copy whose server replays its source's binlogs from the recorded offset has the rows that the source has; with
  several files `--start-position` counts in the first one only.
- A server does not start on an image with a prepared transaction where it does not see the image's own binlog ("Found 1
  prepared transactions!"). What is restored has an index that names that one, beside it.
"""

import os
import shlex
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from backupd.mysql.recorded import judged, judged_position
from backupd.mysql.replica_files import naming_the_source, only_of_its_series, position_in_words
from backupd.mysql.seeding import (
    OF_THE_OLD_SERVER,
    ReplicaWish,
    following,
    lacks_what_it_received,
    start_statement,
    statements,
    words_for,
)
from backupd.mysql.sqltext import comment
from backupd.vocabulary.errors import Unreadable
from backupd.vocabulary.instants import to_the_second
from backupd.vocabulary.servers import Flavour, Position, ReplicaPosition
from backupd.vocabulary.storage import Manifest

_PROGRAMS = {Flavour.MARIADB: ("mariadb-binlog", "mariadb"), Flavour.MYSQL: ("mysqlbinlog", "mysql")}
_MOMENT = "YYYY-MM-DD hh:mm:ss"


def next_steps(
    manifest: Manifest, datadir: Path, *, found: Position | None = None, reached: Position | None = None
) -> str:
    """SQL with comments for a person: how the copy in `datadir` becomes a replica, or is brought to a later moment.

    `found` is the position that a drill found of a backup that was taken without a lock, `reached` that to which the
    copy has been rolled forward already. Where the manifest names what
    no server has, nothing is told but that: a client may be fed this.
    """
    try:
        manifest = judged(manifest)
        found = judged_position(found) if found is not None else None
        reached = judged_position(reached) if reached is not None else None
    except Unreadable as error:
        return comment(f"The next steps for this copy are not known: {error.message}.") + "\n"
    position = found or (manifest.position if manifest.locked else None)
    head = (
        f"-- Run {manifest.run_id} of job {manifest.job}: {manifest.host}, {manifest.server.flavour}"
        f" {manifest.server.version}, as of {to_the_second(manifest.created_at)}.\n"
    )
    lines = _lines(manifest, datadir, position) if reached is None else _lines_of_moment(manifest, datadir, reached)
    return head + "\n".join(lines) + "\n"


def _lines_of_moment(manifest: Manifest, datadir: Path, reached: Position) -> Iterator[str]:
    yield f"-- Rolled forward to {position_in_words(reached)}; it was shut down there, and needs no recovery."
    yield ""
    yield from _as_replica(manifest, datadir, reached)


def _lines(manifest: Manifest, datadir: Path, position: Position | None) -> Iterator[str]:
    if manifest.server.binlog_basename is None:
        yield f"-- It has no position: the binlog of {manifest.host} was off. This copy cannot be rolled forward."
        return
    if position is None or position.binlog_file is None:
        yield "-- It was taken without a lock: its position is known only after a server has recovered it:"
        yield f"--   backupd drill {manifest.run_id}      finds the position and stores it for the next restore"
        yield f"--   backupd clone {manifest.run_id} --as-replica --to DIR      makes a replica of it"
        return
    how = "as recorded under the lock" if manifest.locked else "as its drill found it"
    yield f"-- Position, {how}: {position_in_words(position)}"
    yield from (_as_a_replica_itself(channel) for channel in position.replicas)
    yield ""
    yield from _before_it_starts(manifest, datadir)
    yield ""
    if lacks_what_it_received(manifest):
        yield (
            f"-- Cannot become a replica or be rolled forward: the binlog of {manifest.host} lacks what it gets from"
            " its source."
        )
        return
    yield from _as_replica(manifest, datadir, position)
    yield ""
    yield from _to_a_later_moment(manifest, position)


def _as_a_replica_itself(channel: ReplicaPosition) -> str:
    name = f"Its own channel {channel.channel!r}" if channel.channel else "It was a replica itself: it"
    place = f"{channel.source_log_file}:{channel.source_log_offset} of its source" if channel.source_log_file else ""
    gtid = f"GTID {channel.gtid}" if channel.gtid else ""
    return f"-- {name} had applied {', '.join(filter(None, (place, gtid))) or 'nothing'}"


def _before_it_starts(manifest: Manifest, datadir: Path) -> Iterator[str]:
    """Recovery decides about prepared transactions by the binlog that came with the files, and by no other."""
    basename = manifest.server.binlog_basename
    if manifest.binlog is None or basename is None:
        return
    folder = Path(os.path.normpath(datadir / os.path.relpath(PurePosixPath(manifest.binlog).parent, manifest.datadir)))
    yield (
        f"-- Start it with log_bin={folder / basename.name}, which it needs for recovery, and without a"
        f" log_bin_index elsewhere."
    )


def _as_replica(manifest: Manifest, datadir: Path, position: Position) -> Iterator[str]:
    """`skip_slave_start` is known to MySQL 9.7 too."""
    words = words_for(manifest.server.flavour, manifest.server.version_number)
    wanted = ReplicaWish(server_id=0, following=following(manifest, None))
    old_id = manifest.server.settings.get("server_id", "that of the old server")
    yield only_of_its_series(manifest)
    yield f"-- To make it a replica of {manifest.host}: before a server starts here, in a shell:"
    yield f"--   cd {shlex.quote(str(datadir))} && rm -f {' '.join(OF_THE_OLD_SERVER)}"
    yield (
        "-- Its scheduled events belong to the source: event_scheduler = OFF until each is DISABLE ON SLAVE (MySQL 8.2:"
        " REPLICA)."
    )
    yield f"-- Start it with skip_slave_start, and a server_id that is not {old_id}. Then {naming_the_source(words)}:"
    yield from (f"{statement};" for statement in statements(words, position, wanted))
    yield f"{start_statement(words)};"


def _to_a_later_moment(manifest: Manifest, position: Position) -> Iterator[str]:
    """The client's own login is a person's business; the binlogs may lie anywhere."""
    reader, client = _PROGRAMS[manifest.server.flavour]
    file = shlex.quote(position.binlog_file or "")
    yield only_of_its_series(manifest)
    yield "-- To roll it forward instead (point-in-time recovery): start it with skip_slave_start,"
    yield f"-- run none of the above, and replay {manifest.host}'s binlogs from {position.binlog_file} on, in a shell:"
    yield (
        f"--   {reader} --start-position={position.binlog_offset:d} --stop-datetime='{_MOMENT}'"
        f" {file} NEXT-BINLOG… | {client}"
    )
