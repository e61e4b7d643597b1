"""One job that stores on a folder, an SFTP server and an S3 server at once, encrypted: what a DBA would type, in order.

Started in the lab, `backupd lab run -- python -m tests.bench.three_targets`, which `make demo-targets` does: a run,
verification, the same files restored from each target, a drill, a second run, what retention then says, the history.
Knows: how the servers are started and the lab's job is pointed at them. Refuses to judge: the first command that does
not end well ends it, with its status.
"""

import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from backupd.config.effective import as_toml
from backupd.config.reading import checked
from backupd.lab.site import guest_site
from tests.servers import s3server, sshd

_JOB = "nightly"
_TARGETS = ("store", "offsite", "bucket")  # the lab's own folder, SFTP, S3


def main() -> int:
    """The whole tour; the status of the first command that fails, else 0."""
    with tempfile.TemporaryDirectory(prefix="backupd-three-targets-") as name, _served(Path(name)) as environment:
        return _tour(Path(name), environment)


@contextmanager
def _served(folder: Path) -> Iterator[Mapping[str, str]]:
    """Both servers answer, and the environment names a configuration that stores on all three."""
    identity, credentials, away = folder / "backupd.key", folder / "credentials", folder / "sftp"
    away.mkdir()
    subprocess.run(["age-keygen", "-o", identity], check=True, capture_output=True)
    recipient = subprocess.run(
        ["age-keygen", "-y", identity], check=True, capture_output=True, text=True
    ).stdout.strip()
    with ExitStack() as owed:
        ssh = owed.enter_context(sshd.serving(folder / "ssh"))
        service = owed.enter_context(s3server.serving(folder / "s3"))
        service.write_credentials(credentials)
        document = tomllib.loads(guest_site().configuration.read_text())
        for table in (ssh.configuration("offsite", away), service.configuration("bucket", credentials)):
            document["targets"] |= tomllib.loads(table)["targets"]
        document["jobs"][_JOB] |= _job(recipient)
        configuration = folder / "backupd.toml"
        configuration.write_text(as_toml(checked(document, configuration)))
        yield {**os.environ, "BACKUPD_CONFIG": str(configuration), "BACKUPD_IDENTITY": str(identity)}


def _job(recipient: str) -> dict[str, Any]:
    return {
        "targets": list(_TARGETS),
        "encryption": {"recipients": [recipient]},
        "copy": {"streams": 2},
        "retention": {"keep_last": 1},
    }


def _tour(folder: Path, environment: Mapping[str, str]) -> int:
    restored = {target: folder / "restored" / target for target in _TARGETS}
    steps: list[Sequence[str]] = [
        ("run", _JOB),
        ("verify", "latest"),
        *(("restore", "latest", "--target", target, "--to", str(to)) for target, to in restored.items()),
        ("drill",),
        ("run", _JOB),
        ("prune", "--dry-run"),
        ("history",),
    ]
    for words in steps:
        if status := _typed(words, environment):
            return status
        if words[0] == "drill":
            _say_whether_alike(restored)
    return 0


def _typed(words: Sequence[str], environment: Mapping[str, str]) -> int:
    _say(f"$ backupd {' '.join(words)}")
    return subprocess.run([shutil.which("backupd") or "backupd", *words], env=environment, check=False).returncode


def _say_whether_alike(restored: Mapping[str, Path]) -> None:
    first, *others = restored.values()
    different = [difference for other in others for difference in _differences(filecmp.dircmp(first, other))]
    _say(f"restored from {', '.join(restored)}: {'; '.join(different) or 'the same files'}")


def _say(line: str) -> None:
    sys.stdout.write(f"\n{line}\n")
    sys.stdout.flush()


def _differences(compared: "filecmp.dircmp[str]") -> Iterator[str]:
    _, unequal, unreadable = filecmp.cmpfiles(compared.left, compared.right, compared.common_files, shallow=False)
    yield from (*compared.left_only, *compared.right_only, *unequal, *unreadable)
    for below in compared.subdirs.values():
        yield from _differences(below)


if __name__ == "__main__":
    sys.exit(main())
