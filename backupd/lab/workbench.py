"""What a lab consists of on either kernel: disks, volume, server, configuration, load, one inside the other."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path

from backupd.lab import configuration, disks, load, programs, server
from backupd.lab.plan import Plan
from backupd.lab.site import LabSite

Milestone = Callable[[str], None]


def without_udev() -> None:
    """LVM, dmsetup and mdadm, ours and the command's, make their own device nodes: no udev runs here."""
    os.environ["DM_DISABLE_UDEV"] = "1"
    os.environ["MDADM_NO_UDEV"] = "1"


def prepare(site: LabSite, plan: Plan, raw: Sequence[Path], reached: Milestone) -> None:
    """Volume, file system, server data and rows are on the raw devices; nothing of them is in use any more."""
    with disks.presented(plan.disks, raw, site) as physical:
        disks.restrict_lvm(site, physical, with_udev=plan.has_udev)
        disks.make_volume(site, plan, physical)
        reached("volume")
        with _server_at_hand(site, plan):
            server.install(site, plan.server)
            reached("datadir")
            with server.running(site, plan.server, fast_and_loose=True):
                server.fill(site, plan.server, plan.rows)
                reached("rows")
        reached("stopped")


@contextmanager
def _server_at_hand(site: LabSite, plan: Plan) -> Iterator[None]:
    """The volume is mounted and the plan's kind of server can be started on it."""
    with (
        disks.active(site),
        disks.mounted(site.volume_path, site.mount_point),
        programs.found_first(site, plan.server),
    ):
        yield


@contextmanager
def working(site: LabSite, plan: Plan, raw: Sequence[Path], reached: Milestone) -> Iterator[tuple[Path, ...]]:
    """On prepared devices: a server under load and a ready configuration, for the length of the block.

    Of `raw` the last ones are the plan's spare disks; what they are called in the block is what it is given.
    """
    with (
        load.generator(site, plan) as wait_for_load,
        disks.presented(plan.disks, raw, site) as physical,
    ):
        disks.restrict_lvm(site, physical, with_udev=plan.has_udev)
        reached("disks")
        with _server_at_hand(site, plan):
            reached("volume")
            with server.running(site, plan.server):
                server.set_password(site)
                configuration.write(site)
                reached("server")
                wait_for_load()
                reached("load")
                yield physical[len(physical) - plan.spare_disks :]


def become_the_operator(site: LabSite, *, python: str, home: Path, spare_disks: Sequence[Path] = ()) -> None:
    """This process's environment and folder, and so its children's, are those in which `backupd` just works."""
    usual = os.environ.get("PATH", "/usr/bin:/bin")
    ours = (str(_folder_with_backupd(site, python)), str(Path(python).parent))
    os.environ.update(
        PATH=":".join([str(site.programs), *ours, "/usr/local/sbin:/usr/sbin:/sbin", usual]),
        HOME=str(home),
        LC_ALL="C",
        BACKUPD_LAB="1",
        BACKUPD_CONFIG=str(site.configuration),
        BACKUPD_LAB_SPARE_DISKS=" ".join(map(str, spare_disks)),
    )
    os.environ.pop("PYTHONPATH", None)
    os.chdir(home)


def spare_sentence(spare_disks: Sequence[Path]) -> str:
    """Where the spare disks are, for a person."""
    return f"spare disks, empty: {' '.join(map(str, spare_disks))} (also in $BACKUPD_LAB_SPARE_DISKS)"


def _folder_with_backupd(site: LabSite, python: str) -> Path:
    """Where the environment of that Python has `backupd`; a folder of ours when it runs from a bare checkout."""
    installed = Path(python).parent
    if (installed / "backupd").exists():
        return installed
    site.programs.mkdir(parents=True, exist_ok=True)
    checkout = Path(str(resources.files("backupd"))).parent
    script = site.programs / "backupd"
    script.write_text(
        f"#!{python}\nimport sys\n\nsys.path.insert(0, {str(checkout)!r})\n"
        "from backupd.cli.main import main\n\nmain()\n",
        encoding="utf-8",
    )
    script.chmod(0o755)
    return site.programs


def bring_out(site: LabSite, out: Path) -> None:
    """Catalogue and logs are in `out`; what does not exist is left out.

    The catalogue goes through SQLite's own backup, so that what is still in its write-ahead log comes along.
    """
    if site.catalogue.exists():
        with closing(sqlite3.connect(site.catalogue)) as inside, closing(sqlite3.connect(":memory:")) as whole:
            inside.backup(whole)
            (out / "catalogue.sqlite").write_bytes(whole.serialize())
    for log in (site.load_log, site.heartbeat_log, site.server_log):
        if log.exists():
            shutil.copyfile(log, out / log.name)
