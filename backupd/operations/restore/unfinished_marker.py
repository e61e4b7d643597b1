"""What the marker of a folder that is being filled tells: what is restored there, and how far that is.

Knows: its text, and what a person is told of it. Whoever reads it has made sure that backupd has written it.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backupd.archive.restating import PRIVATE
from backupd.archive.unpack_progress import Folder, UnpackProgress
from backupd.vocabulary.errors import Cancelled, NotAsRecorded, UsageError, VerificationError
from backupd.vocabulary.servers import Position
from backupd.vocabulary.storage import MARKER


@dataclass(frozen=True, slots=True)
class Unfinished:
    """What a marker tells of a restore: what it is of, and how far it is."""

    job: str
    run_id: str
    content: str  # its digest: what is gone on with is what was started
    tables: tuple[str, ...] = ()  # only these; empty: everything
    moment: str = ""  # to which the files are rolled forward; empty: they stay at the backup's
    made: bool = False  # the folder was made for it
    objects: Mapping[str, UnpackProgress] = field(default_factory=dict)
    worked_in: bool = False  # by a server: they are not what was unpacked any more
    reached: Position | None = None  # where that server stood when it was shut down; None: files that cannot be used
    as_replica: bool | None = None  # what of the log was applied was for one; None: nothing was, or nobody noted it
    exported: bool = False  # tables of them, into a folder that was made for it

    @property
    def worth_keeping(self) -> bool:
        """Something of it need not be fetched again."""
        if self.worked_in:
            return self.reached is not None
        return any(progress.done or progress.offset for progress in self.objects.values())

    def is_of(self, other: "Unfinished") -> bool:
        """Both are the same restore."""
        return (self.job, self.run_id, self.content, self.tables, self.moment) == (
            *(other.job, other.run_id, other.content, other.tables, other.moment),
        )


def to_text(what: Unfinished) -> str:
    """As `from_text` reads it."""
    objects = {name: _progress_document(progress) for name, progress in what.objects.items()}
    reached = what.reached
    document = {
        **{"job": what.job, "run": what.run_id, "content": what.content, "tables": what.tables, "moment": what.moment},
        **{"made": what.made, "objects": objects, "worked_in": what.worked_in, "exported": what.exported},
        "as_replica": what.as_replica,
        "reached": None if reached is None else [reached.binlog_file, reached.binlog_offset, reached.gtid],
    }
    return json.dumps(document) + "\n"


def _progress_document(progress: UnpackProgress) -> dict[str, Any]:
    folders = [[folder.name, base64.b64encode(folder.headers).decode()] for folder in progress.folders]
    at = {"offset": progress.offset, "files": progress.files, "done": progress.done}
    return {**at, "links": progress.links, "folders": folders}


def from_text(text: str) -> Unfinished | None:
    """None where the marker is not one that a restore can go on from: a clone's, or another backupd's."""
    try:
        found = json.loads(text)
        objects = {name: _progress(document) for name, document in found["objects"].items()}
        return Unfinished(
            job=str(found["job"]),
            run_id=str(found["run"]),
            content=str(found["content"]),
            tables=tuple(map(str, found["tables"])),
            moment=str(found.get("moment", "")),
            made=bool(found["made"]),
            objects=objects,
            worked_in=bool(found.get("worked_in", False)),
            reached=_position(found.get("reached")),
            as_replica=None if found.get("as_replica") is None else bool(found["as_replica"]),
            exported=bool(found.get("exported", False)),
        )
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _position(told: Sequence[Any] | None) -> Position | None:
    if told is None:
        return None
    file, offset, gtid = told
    return Position(str(file), int(offset), None if gtid is None else str(gtid))


def _progress(document: Mapping[str, Any]) -> UnpackProgress:
    return UnpackProgress(
        offset=int(document["offset"]),
        files=int(document["files"]),
        links=tuple(map(str, document["links"])),
        folders=tuple(Folder(str(name), base64.b64decode(headers)) for name, headers in document["folders"]),
        done=bool(document["done"]),
    )


def of_something_else(to: Path, found: Unfinished) -> UsageError:
    """What a person is told whose restore is not the one that the folder's marker tells of."""
    only = f", only {','.join(found.tables)}" if found.tables else ""
    moment = f" to {found.moment}" if found.moment else ""
    return UsageError(
        f"{to} has an unfinished restore of something else: run {found.run_id} of job {found.job}{moment}{only}",
        hint=f"to continue it, restore the same; else restore into another folder, or discard it: rm -r {to}",
    )


def say_what_to_do(different: NotAsRecorded, to: Path) -> None:
    """The error tells a person what becomes of a folder whose files are not as recorded."""
    how = "fix that and run the same command again to compare; to use the files as they are, remove"
    different.hint = f"{to} is kept: {how} {to / MARKER}, and open the folder to its server, its mode is {PRIVATE:04o}"


def say_how_to_go_on(interrupted: BaseException, to: Path, moment: str) -> None:
    """The error tells a person how the restore is gone on with.

    Where the only copy was found damaged, it is broken from now on, and nobody uses such a one without being told to.
    """
    same = f" (its moment is {moment}: a time such as 2h would be another one by now)" if moment else ""
    if isinstance(interrupted, VerificationError):
        same += " (the only copy, if it is broken, has to be named: --target NAME)"
    how = f"{to} keeps what was restored so far: run the same command to continue{same}, or discard it: rm -r {to}"
    if isinstance(interrupted, Cancelled):
        interrupted.hint = how
    else:
        interrupted.add_note(how)
