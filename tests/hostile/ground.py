"""The host that is attacked: a target, a catalogue, folders, and all around them what nobody may read or change.

Knows: how an attack is laid on it, which command lines are typed, and what must be true of the host afterwards whatever
lay on the target. Each fault is a sentence.
"""

import hashlib
import os
import re
import shutil
import stat
import subprocess
import sys
import unicodedata
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pyrage

from backupd.catalogue.store import Catalogue
from tests.hostile import sound as sound_backups
from tests.hostile.attacks import Attack, Attacker, Base, Command, Ground
from tests.hostile.backups import FIRST, JOB, RUN, Backup, tree
from tests.hostile.of_manifests import MARK
from tests.hostile.runner import SECONDS, Ended, Runner
from tests.hostile.tarring import GROUP, OWNER
from tests.hostile.trusting import Signer, record, signer_in

SECRET = b"the secret of this host, which no restored file may hold"
MOST_BYTES = 256 << 20  # of any one process
MOST_WORDS = 1 << 20  # bytes of output: a terminal is no place for what a stranger has to say

NONE = "none"  # the catalogue of a machine that has lost its own

_OURSELVES = {Path(sys.executable).name, Path(sys.executable).resolve().name}
_PROGRAMS = frozenset({"tar", "mariadbd", "mysqld", "setpriv", "nice", "ionice", "test"} | _OURSELVES)
_SERVERS = ("mariadbd", "mysqld")
_OWN = re.compile(r"plugin_load_add = (ha_connect|file_key_management)\.so")  # from the server's own folder
_TABLES = {Base.TREE: "shop.orders", Base.SEALED: "shop.orders", Base.SERVER: "t.innodb"}

_LIBRARY = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>
__attribute__((constructor)) static void run(void) {
    Dl_info own;
    char mark[4096];
    prctl(PR_SET_NAME, "hostile-code");
    if (dladdr((void *) run, &own)) {
        snprintf(mark, sizeof mark, "%s.ran", own.dli_fname);
        close(open(mark, O_CREAT | O_WRONLY, 0666));
    }
    usleep(200000);
}
"""


@dataclass(frozen=True)
class Sound:
    """The sound backups, made once, and what is known of the machine whose they are."""

    machine: str
    catalogues: Path  # folders to be copied: `none` has no run, the others that of the base they are called by
    backups: Mapping[Base, Backup]
    identity: str  # the age key's file content
    recipients: tuple[str, ...]
    library: bytes

    @property
    def signer(self) -> Signer:
        """The machine's own."""
        return signer_in(self.catalogues / NONE)


@dataclass
class Site:
    """One host for one attack. `base` is empty."""

    base: Path
    sound: Sound
    attack: Attack
    attacker: Attacker
    faults: list[str] = field(default_factory=list)

    @property
    def outside(self) -> Path:
        return self.base / "outside"

    @property
    def to(self) -> Path:
        """Where things are restored to."""
        return self.base / "to"

    @property
    def catalogue(self) -> Path:
        return self.base / "own" / "catalogue.sqlite"

    @property
    def runs(self) -> Path:
        """The job's folder on the target."""
        return self.base / "vault" / self.sound.machine / JOB

    @property
    def ground(self) -> Ground:
        return Ground(
            outside=self.outside,
            library=self.outside / "evil.so",
            sound=lambda run: tree(self.sound.machine, run=run, salt="" if run == RUN else run),
        )

    # --- before ------------------------------------------------------------------------------------------------------

    def lay(self) -> None:
        """The host stands, and the attack lies on its target."""
        self.base.chmod(0o755)
        for name in ("outside/live", "outside/folder", "vault", "cwd", "home", "tmp", "said"):
            (self.base / name).mkdir(parents=True)
        (self.base / "tmp").chmod(0o1777)
        for private in ("own", "own/run", "own/staging", "own/log"):
            (self.base / private).mkdir(mode=0o755 if private in ("own", "own/staging") else 0o700)
        self._catalogue(self.attack.base)
        (self.outside / "victim").write_text("as it was\n")
        (self.outside / "secret").write_bytes(SECRET + b"\n")
        (self.outside / "live" / "ibdata1").write_bytes(b"live" * 4096)
        for path in (self.outside, self.outside / "live", self.outside / "live" / "ibdata1"):
            os.chown(path, OWNER, GROUP)
        self.outside.chmod(0o777)
        (self.outside / "evil.so").write_bytes(self.sound.library)
        for module in ("json", "tarfile", "backupd", "sitecustomize"):  # whoever imports from where it stands runs them
            (self.base / "cwd" / f"{module}.py").write_text(f"open({str(self.outside / 'ran')!r}, 'w')\n")
        (self.base / "identity").touch(mode=0o600)
        (self.base / "identity").write_text(self.sound.identity)
        (self.base / "backupd.toml").touch(mode=0o600)
        (self.base / "backupd.toml").write_text(_configuration(self.base))
        sound = self.sound.backups[self.attack.base]
        self.runs.parent.mkdir()
        hostile = sound.copy()
        self.attack.change(hostile, self.ground)
        if self.attacker is not Attacker.STRANGER:
            hostile.sign(self.sound.signer)
        elif hostile.body != sound.body and hostile.body.get("signature") == sound.body.get("signature"):
            hostile.body["signature"] = None  # it would be wrong
        hostile.lay(self.runs / RUN)
        self._differs = _unsigned(hostile) != _unsigned(sound)
        if self.attacker is Attacker.INSIDER:
            record(self.catalogue, RUN, hostile.body)
        self._before = self._everything()

    def _forget(self, known: bytes) -> None:
        """What the command has written down: the next one meets the record as it was."""
        for path in self.catalogue.parent.glob("catalogue.sqlite*"):
            path.unlink()
        self.catalogue.touch(mode=0o600)
        self.catalogue.write_bytes(known)

    def _catalogue(self, template: str) -> None:
        for path in self.catalogue.parent.glob("catalogue.sqlite*"):
            path.unlink()
        shutil.copytree(self.sound.catalogues / template, self.catalogue.parent, dirs_exist_ok=True)

    # --- the command -------------------------------------------------------------------------------------------------

    def run(self, runner: Runner, command: Command, *, seconds: float = SECONDS) -> Ended:
        """Type it; what is wrong afterwards is among the faults."""
        known = self.catalogue.read_bytes()
        if command is Command.REBUILD:
            self._catalogue(NONE)
        ended = runner.run(
            *("--config", str(self.base / "backupd.toml"), *self._words(command)),
            cwd=self.base / "cwd",
            said=self.base / "said",
            environment={
                "PATH": f"{os.environ.get('PATH', '/usr/bin:/bin')}:/usr/sbin:/sbin",
                "HOME": str(self.base / "home"),
                "TMPDIR": str(self.base / "tmp"),
                "LC_ALL": "C.UTF-8",
                "TERM": "xterm",
            },
            seconds=seconds,
        )
        self.faults += [f"{command}: {fault}" for fault in self._found(command, ended)]
        self._clear()
        self._forget(known)
        return ended

    def _words(self, command: Command) -> tuple[str, ...]:
        key = ("--identity", str(self.base / "identity")) if self.attack.base is Base.SEALED else ()
        table = _TABLES[self.attack.base]
        return {
            Command.VERIFY: ("verify", RUN, "--target", "vault"),
            Command.RESTORE: ("restore", RUN, "--to", str(self.to), "--prepare-replica", *key),
            Command.DRILL: ("drill", RUN, *key),
            Command.CLONE: ("clone", RUN, "--to", str(self.to), "--as-replica", "--server-id", "77", *key),
            Command.REBUILD: ("catalogue", "rebuild", "--target", "vault"),
            Command.TABLES: ("restore", RUN, "--to", str(self.to), "--tables", table, *key),
        }[command]

    def must_be_refused(self, command: Command) -> bool:
        """Whether success would be somebody's who owns the storage."""
        if self.attacker is Attacker.INSIDER:
            return command in self.attack.refused_by
        if (
            command is Command.REBUILD and self.attacker is Attacker.FORGER
        ):  # nothing is recorded: a known key is enough
            return command in self.attack.refused_by
        return command in self.attack.refused_by or self._differs

    # --- after -------------------------------------------------------------------------------------------------------

    def _found(self, command: Command, ended: Ended) -> Iterator[str]:
        if ended.status == 0 and self.must_be_refused(command):
            yield "it was accepted"
        yield from _of_the_process(ended, self.outside)
        yield from _of_the_words(ended)
        yield from self._of_the_host(command)
        if self.to.exists():
            yield from _of_a_restored_folder(self.to, self.outside)
        kept = self.to / "ibdata1"
        if ended.status == 0 and self.attack.base is not Base.SERVER and kept.is_file():
            yield from ["ibdata1 was written over"] * (kept.read_bytes() != FIRST[1].content)

    def _of_the_host(self, command: Command) -> Iterator[str]:
        after = self._everything()
        for path in sorted(self._before.keys() | after.keys()):
            if self._before.get(path) != after.get(path) and not self._may_change(command, path):
                was, now = self._before.get(path), after.get(path)
                yield f"{path} {'is new' if was is None else 'is gone' if now is None else f'was {was}, is {now}'}"
        left = [path.name for path in (self.base / "own" / "staging").iterdir()]
        if left:
            yield f"left in the staging folder: {left}"

    def _may_change(self, command: Command, path: str) -> bool:
        """A drill leaves its result beside the backup, and the machine's name on the target."""
        place = Path(path)
        ours = place.name.startswith("proof-") or "owner" in place.parts or place == self.runs.parent
        return (
            command is Command.DRILL and (ours or place == self.runs / RUN) and place.is_relative_to(self.runs.parent)
        )

    def _everything(self) -> dict[str, str]:
        """All that stands on the host, but for what is backupd's own and the folder that is restored to."""
        found = {}
        for top in ("outside", "cwd", "home", "tmp"):
            found.update({str(path): _whole(path) for path in _walked(self.base / top)})
        found.update({str(path): _whole(path, content=False) for path in _walked(self.base / "vault")})
        found.update({str(path): "" for path in self.base.iterdir()} | {str(self.to): ""})
        return found

    def _clear(self) -> None:
        """For the next command; a fault of this one is none of the next one's."""
        for path in (self.to, *(self.base / "own" / "staging").iterdir()):
            if path.is_symlink() or path.is_file():
                path.unlink()
            elif path.exists():
                shutil.rmtree(path)
        self._before = self._everything()


def _unsigned(backup: Backup) -> Mapping[str, object]:
    return {**backup.body, "signature": None}


def _of_the_process(ended: Ended, outside: Path) -> Iterator[str]:
    if ended.status is None:
        yield f"it did not end within {ended.seconds:.0f} s"
    if ended.peak > MOST_BYTES:
        yield f"it took {ended.peak >> 20} MiB of memory"
    if ended.left:
        yield f"it left running: {ended.left}"
    for name, uid in ended.seen:
        if name.removesuffix(" --version") not in _PROGRAMS:
            yield f"the program {name!r} ran"
        if uid == 0 and name in _SERVERS and os.geteuid() == 0:
            yield "a server ran as root"
    for _event, *words in ended.asked:
        if not words or Path(words[0]).name not in _PROGRAMS:
            yield f"a program was started: {words[:3]}"
        # A key file may lie anywhere; whether the copy's owner may read it is asked of `test`, and then of the server.
        # What follows a name (`TO/srv/…`) lies in the copy.
        elsewhere = re.compile(rf"(?<!\w){re.escape(str(outside))}(?!/secret$)")
        if told := [word for word in words if elsewhere.search(word)]:
            yield f"a program was told of what is outside: {told}"


def _of_the_words(ended: Ended) -> Iterator[str]:
    said = ended.stdout + ended.stderr
    if raw := sorted({character for character in said if _is_control(character)}):
        yield f"raw control characters in its output: {raw!r}"
    if SECRET.decode() in said:
        yield "it said a secret of this host"
    if len(said) > MOST_WORDS:
        yield f"it said {len(said)} characters"
    if "Traceback (most recent call last)" in said or ended.status == 1:
        yield f"an internal error: {ended.stderr.strip().splitlines()[-1:]}"
    elif ended.status not in (0, None, 3):
        errors = [line for line in ended.stderr.splitlines() if line.startswith("error: ")]
        if len(errors) != 1 or len(errors[0]) < len("error: a sentence"):
            yield f"it ended with {ended.status} and {len(errors)} sentences"


def _of_a_restored_folder(folder: Path, outside: Path) -> Iterator[str]:
    """Whatever has come into it: a refused restore may have left some of it, too."""
    home = folder.resolve()
    others = {(found.st_dev, found.st_ino) for found in (path.lstat() for path in _walked(outside))}
    for path in _walked(folder):
        found, name = path.lstat(), repr(str(path.relative_to(folder)))
        kind = stat.S_IFMT(found.st_mode)
        if (found.st_dev, found.st_ino) in others:
            yield f"{name} is a file that is outside"
        if kind not in (stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
            yield f"{name} is a device, a pipe or a socket"
        elif kind == stat.S_IFREG and found.st_mode & (stat.S_ISUID | stat.S_ISGID):
            yield f"{name} is set-id"
        elif kind == stat.S_IFLNK:
            with suppress(OSError, RuntimeError):
                if not path.resolve().is_relative_to(home):
                    yield f"{name} leads outside"
        elif kind == stat.S_IFREG:
            with suppress(OSError):
                if "security.capability" in os.listxattr(path):
                    yield f"{name} has a capability"
            if found.st_blocks and found.st_size < 4 << 20 and SECRET in path.read_bytes():
                yield f"{name} holds a secret of this host"
            if path.name in ("replica.sql", "replica.cnf") or path.suffix == ".sql":  # what backupd itself writes
                yield from _of_a_text(name, path.read_bytes())


def _of_a_text(name: str, text: bytes) -> Iterator[str]:
    """What a client or a server will be given: no line is a stranger's."""
    lines = text.decode(errors="surrogateescape").split("\n")
    if strange := [
        line for line in lines if line.strip().startswith((MARK, "\\!", "plugin")) and not _OWN.fullmatch(line)
    ]:
        yield f"a line of {name} is a stranger's: {strange!r:.200}"
    if any(_is_control(character) for line in lines for character in line):
        yield f"raw control characters in {name}"


def _is_control(character: str) -> bool:
    """What moves a cursor, or makes a reader read something else; and bytes of no encoding."""
    if character == "\n":
        return False
    return (
        unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp")
        or character in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


def _walked(top: Path) -> Iterator[Path]:
    """It and all below it; no link is followed."""
    yield top
    for at, folders, files in os.walk(top):
        for name in folders + files:
            yield Path(at) / name


def _whole(path: Path, *, content: bool = True) -> str:
    found = path.lstat()
    facts = [stat.filemode(found.st_mode), f"{found.st_uid}:{found.st_gid}", str(found.st_nlink)]
    if stat.S_ISDIR(found.st_mode):
        return " ".join(facts[:2])
    facts += [str(found.st_size), str(found.st_mtime_ns)]
    if content and stat.S_ISREG(found.st_mode):
        facts.append(hashlib.sha256(path.read_bytes()).hexdigest()[:8])
    return " ".join(facts)


def library(folder: Path) -> bytes:
    """A shared object that leaves a mark beside itself when it is loaded; of nothing where nobody can compile one."""
    source, made = folder / "evil.c", folder / "evil.so"
    source.write_text(_LIBRARY)
    if shutil.which("cc") is None:
        return b""
    subprocess.run(["cc", "-shared", "-fPIC", "-o", made, source], check=True)
    return made.read_bytes()


def made_once(folder: Path) -> Sound:
    """The sound backups and the catalogues that know them, in this folder, which is new."""
    identity = pyrage.x25519.Identity.generate()
    recipients = (str(identity.to_public()),)
    (folder / NONE).mkdir(parents=True)
    with Catalogue.open(folder / NONE / "catalogue.sqlite") as catalogue:
        machine = catalogue.identity().name
    backups = {Base.TREE: tree(machine), Base.SEALED: tree(machine, recipients=recipients)}
    backups[Base.SERVER] = sound_backups.server()
    backups[Base.SERVER].body["machine"] = machine
    signer = signer_in(folder / NONE)
    for base, backup in backups.items():
        backup.sign(signer)
        place = folder / f"{base}-host"
        shutil.copytree(folder / NONE, place / "own")
        backup.lay(place / "vault" / machine / JOB / RUN)
        (place / "backupd.toml").touch(mode=0o600)
        (place / "backupd.toml").write_text(_configuration(place))
        rebuild = ("--config", str(place / "backupd.toml"), "catalogue", "rebuild", "--target", "vault")
        subprocess.run([sys.executable, "-m", "backupd", *rebuild], check=True, cwd=Path(__file__).parents[2])
        (place / "own").rename(folder / base)
    return Sound(machine, folder, backups, f"{identity}\n", recipients, library(folder))


def _configuration(base: Path) -> str:
    return f"""
        [catalogue]
        path = "{base}/own/catalogue.sqlite"
        [paths]
        run = "{base}/own/run"
        staging = "{base}/own/staging"
        log = "{base}/own/log"
        [hosts.db1]
        socket = "{base}/none.sock"
        user = "backupd"
        [targets.vault]
        type = "directory"
        path = "{base}/vault"
        [jobs.nightly]
        host = "db1"
        targets = ["vault"]
    """
