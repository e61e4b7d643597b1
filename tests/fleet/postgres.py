"""A PostgreSQL server of the tests' own: a temporary folder, a socket in it, an unprivileged user, no port.

It can be away: stopped as by a power cut, and started again on what it had.
"""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_SECONDS = 60.0
_MEMORY = Path("/dev/shm")


class PostgresServer:
    """One server on one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._user = pwd.getpwnam("nobody") if os.geteuid() == 0 else None  # it refuses to be root
        self._process: subprocess.Popen[bytes] | None = None
        self._databases = 0

    @property
    def url(self) -> str:
        """Of its database."""
        return f"postgresql://backupd@/postgres?host={self.folder}"

    def fresh_url(self) -> str:
        """Of a database that is empty."""
        self._databases += 1
        name = f"fleet{self._databases}"
        self._run([_program("createdb"), "-h", str(self.folder), "-U", "backupd", name])
        return f"postgresql://backupd@/{name}?host={self.folder}"

    def install(self) -> None:
        """The folder has an empty database."""
        if self._user is not None:
            os.chown(self.folder, self._user.pw_uid, self._user.pw_gid)
        argv = [_program("initdb"), f"--pgdata={self.folder}/data", "--username=backupd", "--auth=trust", "--no-sync"]
        # A locale that sorts unlike C: no query may depend on that.
        self._run([*argv, "--encoding=UTF8", "--locale=C.UTF-8"])

    def start(self) -> None:
        """It answers."""
        uid, gid, groups = self._as_user()
        with (self.folder / "log").open("ab") as said:
            self._process = subprocess.Popen(
                [
                    *(_program("postgres"), "-D", f"{self.folder}/data", "-k", str(self.folder)),
                    *("-c", "listen_addresses=", "-c", "shared_buffers=32MB", "-c", "max_connections=60"),
                ],
                stdout=said,
                stderr=said,
                cwd=self.folder,
                start_new_session=True,
                user=uid,
                group=gid,
                extra_groups=groups,
            )
        self._run([_program("pg_isready"), "-h", str(self.folder), "-t", "1"], until=self._process)

    def stop(self) -> None:
        """It is gone at once, as by a power cut, and so are all connections."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.send_signal(3)  # SIGQUIT: "immediate shutdown"
            self._process.wait(_SECONDS)
            self._process = None

    def _run(self, argv: list[str], *, until: "subprocess.Popen[bytes] | None" = None) -> None:
        uid, gid, groups = self._as_user()
        while True:
            done = subprocess.run(
                argv, capture_output=True, cwd=self.folder, check=False, user=uid, group=gid, extra_groups=groups
            )
            if done.returncode == 0:
                return
            if until is None or until.poll() is not None:
                raise RuntimeError(done.stdout.decode() + done.stderr.decode() + self._log())

    def _log(self) -> str:
        log = self.folder / "log"
        return log.read_text() if log.exists() else ""

    def _as_user(self) -> tuple[int | None, int | None, list[int] | None]:
        return (None, None, None) if self._user is None else (self._user.pw_uid, self._user.pw_gid, [])


@contextmanager
def postgres() -> Iterator[PostgresServer]:
    """One that answers, and is gone after the block."""
    folder = Path(tempfile.mkdtemp(prefix="backupd-postgres-", dir=_MEMORY if _MEMORY.is_dir() else None))
    server = PostgresServer(folder)
    try:
        server.install()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder)


def _program(name: str) -> str:
    """Debian keeps the server's programs of each version in a folder of its own, out of everybody's path."""
    found = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"))
    path = str(found[-1]) if found else shutil.which(name)
    if path is None:
        raise RuntimeError(f"{name} is not installed: make setup-fleet")
    return path
