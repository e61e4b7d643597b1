"""Small systems in folders of their own, made from Debian's archive. Needs root, for chroot."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RELEASES = ("bookworm", "trixie")
LONG = 900  # seconds


def output(*argv: str | Path, timeout: int = 60) -> str:
    done = subprocess.run(
        [str(part) for part in argv], cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
    )
    assert done.returncode == 0, f"{argv}: {done.stdout}\n{done.stderr}"
    return done.stdout


class Root:
    """A small Debian in a folder, with a package or without."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def run(self, *argv: str) -> str:
        """A command in it, with processes of its own that end with it."""
        root = self.folder
        inside = f'mount -t proc proc "{root}/proc" && exec chroot "{root}" env -i PATH=/usr/sbin:/usr/bin "$@"'
        isolated = ["unshare", "--mount", "--pid", "--fork", "--kill-child"]
        return output(*isolated, "sh", "-c", inside, "sh", *argv, timeout=300)

    def dpkg(self, *arguments: str) -> str:
        return self.run("env", "DEBIAN_FRONTEND=noninteractive", "dpkg", *arguments)

    def files(self, *below: str) -> set[str]:
        """Whatever there is below these folders."""
        return {str(path.relative_to(self.folder)) for place in below for path in (self.folder / place).rglob("*")}


def root_of(release: str, folder: Path, *options: str) -> Root:
    """A minimal system of this release."""
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    # An archive may be a frozen one, whose Release file has expired.
    always = ["--mode=root", "--variant=minbase", '--aptopt=Acquire::Check-Valid-Until "false"']
    output("mmdebstrap", "--quiet", *always, *options, release, folder, timeout=LONG)
    return Root(folder)
