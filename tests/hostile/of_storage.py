"""Hostile storage: what lies where an object should, what lies beside it, and one sound backup in another's place."""

import json
import os
import random
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from tests.hostile.attacks import EVERY, READERS, Attack, Command, Ground
from tests.hostile.backups import FIRST_OBJECT, INDEX, OLDER, SECOND, SECOND_OBJECT, Backup
from tests.hostile.tarring import file
from tests.hostile.trusting import strangers

_READING = frozenset({Command.VERIFY, Command.RESTORE, Command.REBUILD})


def attacks(_chance: random.Random) -> Iterator[Attack]:
    yield from _in_place_of()
    yield from _beside()
    yield from _substitutions()


def _in_place_of() -> Iterator[Attack]:
    """Something that is no file lies where a file should."""

    def placed(what: str, make: Callable[[Path, Ground], object]) -> Iterator[Attack]:
        for name, refused_by in (
            ("manifest.json", EVERY),
            (FIRST_OBJECT, frozenset({Command.VERIFY, Command.RESTORE, Command.DRILL})),
            (INDEX, frozenset({Command.VERIFY, Command.RESTORE, Command.DRILL})),
        ):

            def change(backup: Backup, ground: Ground, name: str = name) -> None:
                def put(at: Path) -> None:
                    (at / name).unlink()
                    make(at / name, ground)

                backup.beside.append(put)

            yield Attack(f"storage: {name} is {what}", change, concerns=_READING, refused_by=refused_by & _READING)

    yield from placed("a pipe", lambda path, _ground: os.mkfifo(path))
    yield from placed("a folder", lambda path, _ground: path.mkdir())
    yield from placed("a socket", lambda path, _ground: _bound(path))
    yield from placed("a link to zeros without end", lambda path, _ground: path.symlink_to("/dev/zero"))
    yield from placed("a link to a terminal", lambda path, _ground: path.symlink_to("/dev/tty"))
    yield from placed("a link to a secret of this host", lambda path, ground: path.symlink_to(ground.secret))
    yield from placed("a link to itself", lambda path, _ground: path.symlink_to(path.name))
    yield from placed("a device", _device)
    yield from placed("a hole of 8 TiB", lambda path, _ground: _hole(path))

    def linked(backup: Backup, ground: Ground) -> None:
        def move(at: Path) -> None:
            elsewhere = ground.outside / "folder"
            at.rename(elsewhere)
            at.symlink_to(elsewhere)

        backup.beside.append(move)

    yield Attack("storage: the backup's folder is a link to elsewhere", linked, concerns=_READING)


def _bound(path: Path) -> None:
    """A socket whose path is as short as it has to be (unix(7))."""
    here = os.open(path.parent, os.O_PATH)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(f"/proc/self/fd/{here}/{path.name}")
    finally:
        os.close(here)


def _device(path: Path, _ground: Ground) -> None:
    """As who may not make one, a link to one."""
    try:
        os.mknod(path, 0o600 | stat.S_IFCHR, os.makedev(1, 5))
    except PermissionError:
        path.symlink_to("/dev/zero")


def _hole(path: Path) -> None:
    path.touch()
    os.truncate(path, 8 << 40)


def _beside() -> Iterator[Attack]:
    def beside(name: str, make: Callable[[Path], object], **how: Any) -> Attack:
        return Attack(f"storage: {name}", lambda backup, _ground: backup.beside.append(make), concerns=_READING, **how)

    def names(at: Path) -> None:
        for number in range(5000):
            (at / f"name-{number}").touch()

    def odd_names(at: Path) -> None:
        for name in (
            "\x1b]0;owned\x07\x1b[2J",
            "a\nerror: all is well",
            "\udcff\udcfe",
            "--help",
            "\u202egpj",
            "\x9b2J",
        ):
            (at / name).touch()

    def odd_runs(at: Path) -> None:
        for name in ("\x1b[2J", "a\nb", "--help", "..x", "r1 ", "\udcff", "r" * 200):
            with suppress(OSError):
                (at.parent / name).mkdir()
                (at.parent / name / "manifest.json").write_text("{}")

    def odd_jobs(at: Path) -> None:
        for name in ("\x1b[2J", "a\nb", "--help", "\udcff"):
            (at.parent.parent / name / "r1").mkdir(parents=True)
            (at.parent.parent / name / "r1" / "manifest.json").write_text("{}")

    def runs(at: Path) -> None:
        for number in range(3000):
            (at.parent / f"run-{number}").mkdir()
            (at.parent / f"run-{number}" / "manifest.json").write_text("{")

    yield beside("5,000 names beside the objects", names)
    yield beside("names of the terminal's beside the objects", odd_names)
    yield beside("names of the terminal's beside the runs", odd_runs)
    yield beside("names of the terminal's beside the jobs", odd_jobs)
    yield beside("3,000 runs without a proper manifest", runs)
    yield beside(
        "an unfinished object that is a link", lambda at: (at / f".{FIRST_OBJECT}.partial").symlink_to("/dev/zero")
    )
    yield beside("a manifest that is being written for ever", lambda at: os.mkfifo(at / ".manifest.json.partial"))

    proof = {"schema": 1, "run_id": "r1", "ok": True, "checks": [], "seconds": 1, "at": "2026-01-03T00:00:00+00:00"}
    check = {"name": "\x1b[2Jtables\n", "ok": True, "expected": "\x07", "found": "\x1b]0;owned\x07"}
    for how, content in {
        "that was never made": proof,
        "with the terminal's words": {**proof, "undecided": "", "checks": [check]},
        "with 30,000 checks": {**proof, "checks": [check] * 10_000},
        "of endless time": {**proof, "seconds": float("inf")},
        "of less than nothing": {**proof, "seconds": -1e308, "at": "0001-01-01T00:00:00+00:00"},
        "with a position of its own": {
            **proof,
            "position": {"file": "a\n\\! id", "offset": -(1 << 70), "gtid": "\x1b[2J"},
        },
    }.items():
        text = json.dumps(content)
        yield beside(
            f"a proof {how}",
            partial(_write_proof, text),
        )
    yield beside("a proof that is a pipe", lambda at: os.mkfifo(at / "proof-20260103T000000Z.json"))
    yield beside("a proof without an end", lambda at: (at / "proof-20260103T000000Z.json").symlink_to("/dev/zero"))

    def proofs(at: Path) -> None:
        for number in range(2000):
            (at / f"proof-20260103T{number:06}Z.json").write_text(json.dumps(proof))

    yield beside("2,000 proofs", proofs)


def _write_proof(text: str, at: Path) -> None:
    (at / "proof-20260103T000000Z.json").write_text(text)


def _substitutions() -> Iterator[Attack]:
    """Each of them is sound in itself: only the record, or a signature, tells that it is not the one."""

    def another(
        name: str, change: Callable[[Backup, Ground], object], *, refused_by: frozenset[Command] = frozenset()
    ) -> Attack:
        return Attack(f"substitution: {name}", change, concerns=READERS, refused_by=refused_by, substitutes=True)

    def become(backup: Backup, other: Backup) -> None:
        backup.body, backup.objects, backup.lines = other.body, other.objects, other.lines

    def older(backup: Backup, ground: Ground) -> None:
        become(backup, ground.sound(OLDER))

    def older_renamed(backup: Backup, ground: Ground) -> None:
        become(backup, ground.sound(OLDER))
        backup.body["run_id"] = "r1"

    def older_objects(backup: Backup, ground: Ground) -> None:
        backup.objects = ground.sound(OLDER).objects

    def older_object(backup: Backup, ground: Ground) -> None:
        other = ground.sound(OLDER)
        backup.put_stored(other.told(SECOND_OBJECT), other.objects[SECOND_OBJECT])
        backup.put_stored(other.told(INDEX), other.objects[INDEX])

    def shorter(backup: Backup, _ground: Ground) -> None:
        del backup.lines[SECOND_OBJECT]
        backup.body["objects"] = [told for told in backup.stored if told["name"] != SECOND_OBJECT]
        del backup.objects[SECOND_OBJECT]
        backup.reindex()

    def added(backup: Backup, _ground: Ground) -> None:
        backup.put("data-3.tar.zst", [file("more/planted")])

    def edited(backup: Backup, _ground: Ground) -> None:
        backup.put(SECOND_OBJECT, (*SECOND[:-1], file("more/z.ibd", b"other rows")))

    def position(backup: Backup, _ground: Ground) -> None:
        backup.body["position"].update(binlog_offset=4, gtid="0-1-1")

    def signed_by_a_stranger(backup: Backup, ground: Ground) -> None:
        edited(backup, ground)
        backup.sign(strangers())

    def signed_by_nobody(backup: Backup, ground: Ground) -> None:
        edited(backup, ground)
        backup.body["signature"] = None

    def signed_by_zeros(backup: Backup, ground: Ground) -> None:
        """A point of small order: of such a key anybody can make signatures."""
        edited(backup, ground)
        nothing = "A" * 43 + "="
        backup.body["signature"] = {"key": f"backupd-ed25519:{nothing}", "value": "A" * 86 + "=="}

    yield another("other rows, signed by a stranger", signed_by_a_stranger)
    yield another("other rows, signed by nobody", signed_by_nobody)
    yield another("other rows, signed by a key of zeros", signed_by_zeros)
    yield another("an older backup in the newer one's folder", older, refused_by=READERS)
    yield another("an older backup under the newer one's id", older_renamed)
    yield another(
        "an older backup's objects beside the newer one's manifest",
        older_objects,
        refused_by=READERS - {Command.CLONE, Command.TABLES},
    )
    yield another("one object of an older backup", older_object)
    yield another("an object less", shorter)
    yield another("an object more", added)
    yield another("other rows", edited)
    yield another("another position", position)
    yield another(
        "another machine's", lambda backup, _ground: backup.body.update(machine="db9-ffffffff"), refused_by=EVERY
    )
    yield another("another job's", lambda backup, _ground: backup.body.update(job="hourly"), refused_by=EVERY)
    yield another("another host's", lambda backup, _ground: backup.body.update(host="db9"))
    yield another("a blank head of the audit chain", lambda backup, _ground: backup.body.update(audit_head=""))
    yield another("another time", lambda backup, _ground: backup.body.update(created_at="2031-01-01T00:00:00+00:00"))
    yield another("taken without a lock", lambda backup, _ground: backup.body.update(locked=False))
    yield another("no canary to look for", lambda backup, _ground: backup.body.update(canary=None, lsn=None))
    yield another("other settings", lambda backup, _ground: backup.body["server"]["settings"].update(server_id="7"))
    yield another("a note less", lambda backup, _ground: backup.body["run"].update(attention=[]))
