"""Volumes of every layout that LVM has snapshots of: a good run under writes, and its proof."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.lab.inside.host import GATE_OFF, SITE, Changes, Host, tool, until
from tests.lab.inside.inside_good_run import names_in
from tests.lab.inside.places import mounted, volume
from tests.lab.inside.servers import SecondServer, second_server

OWN = f"{SITE.volume_group}/own"
SMALL: Changes = {**GATE_OFF, "jobs.nightly.snapshot.size": "96MiB"}
_UNWATCHED = ("--yes", "--config", "activation/monitoring=0")


@dataclass(frozen=True)
class Layout:
    """How a volume is made, in place of the lab's, on PVs by their letters; and what a run then says of it."""

    name: str
    made: str
    then: tuple[str, ...]
    layout: str
    words: str
    further: bool = False  # in `make test-all` alone

    def __str__(self) -> str:
        return self.name


CACHE_POOL = "lvcreate --type cache-pool --name fast --size 64m labvg {b}"
CACHE_VOLUME = ("lvcreate --name fast --size 64m labvg {b}", "lvchange --activate n labvg/fast")
LINEAR = Layout("linear", "--size 320m labvg {e}", (), "linear", "is linear (1 segment)")
LAYOUTS = [
    Layout(
        "mixed",
        "--stripes 2 --size 192m labvg {c} {d}",
        ("lvextend --stripes 1 --size +128m labvg/own {e}",),
        "mixed",
        "is mixed, 2 stripes",
    ),
    Layout(
        "raid1",
        "--type raid1 --mirrors 1 --size 320m labvg {c} {d}",
        (),
        "linear",
        "is linear (1 segment)",
        further=True,
    ),
    Layout(
        "cache",
        "--size 320m labvg {e}",
        (CACHE_POOL, "lvconvert --type cache --cachemode writeback --cachepool labvg/fast labvg/own"),
        "linear",
        "behind a cache on {b}",
    ),
    Layout(
        "cachevol",
        "--stripes 2 --size 320m labvg {c} {d}",
        (*CACHE_VOLUME, "lvconvert --type cache --cachevol labvg/fast labvg/own"),
        "striped",
        "behind a cache on {b}",
        further=True,
    ),
    Layout(
        "writecache",
        "--size 320m labvg {e}",
        (*CACHE_VOLUME, "lvconvert --type writecache --cachevol labvg/fast labvg/own"),
        "linear",
        "behind a writecache on {b}",
        further=True,
    ),
]


def letters() -> dict[str, str]:
    """The lab's four disks, by the names that the layouts use."""
    return dict(zip("bcde", tool("pvs", "--noheadings", "--options", "pv_name").split(), strict=True))


@contextmanager
def laid_out(layout: Layout) -> Iterator[Path]:
    """A volume of that layout; its device."""
    disks = letters()
    tool("modprobe", "--all", "dm-raid", "raid1", "dm-cache", "dm-cache-smq", "dm-writecache")
    with volume("own", *layout.made.format(**disks).split()):
        for command in layout.then:
            program, *words = command.format(**disks).split()
            tool(program, *_UNWATCHED, *words)
        yield Path("/dev") / OWN


@contextmanager
def served(layout: Layout, at: Path, *options: str) -> Iterator[SecondServer]:
    """A server whose datadir is the root of a file system on such a volume, lost+found and all."""
    with laid_out(layout) as device, mounted(str(device), at), second_server(at, *options) as server:
        yield server


def synced() -> bool:
    """The legs of a raid1 are alike."""
    return float(tool("lvs", "--noheadings", "--options", "sync_percent", OWN)) == 100


def proven(host: Host, changes: Changes) -> dict[str, Any]:
    """A good run, and a drill that finds everything as it was recorded; the run's document."""
    document: dict[str, Any] = host.backupd("run", "nightly", "--json", changes=changes).document
    drill = host.backupd("drill", document["run_id"], "--json", changes=changes).document
    assert drill["status"] == "proven", drill
    assert {check["name"] for check in drill["checks"] if check["ok"]} >= {"binlog position", "canary", "tables"}
    return document


@pytest.mark.parametrize(
    "layout", [pytest.param(one, marks=[pytest.mark.matrix] if one.further else []) for one in LAYOUTS], ids=str
)
def test_backup_of_a_volume_that_is(layout: Layout, host: Host, tmp_path: Path) -> None:
    with served(layout, tmp_path / "mounted") as server, server.written_to():
        if layout.name == "raid1":
            until(synced)
        changes = {**SMALL, **server.asked_by("nightly")}
        checked = host.backupd("check", "nightly", "--json", changes=changes).document["findings"]
        told = {finding["name"]: finding["detail"] for finding in checked}
        document = proven(host, changes)
    assert layout.words.format(**letters()) in told["layout"]
    assert document["snapshot"]["layout"] == layout.layout
    folder = Path(document["backup"]["location"])
    assert json.loads((folder / "manifest.json").read_text())["volume"] == OWN
    assert {"ibdata1", "ib_logfile0"} <= {name.strip("/") for name in names_in(folder / "data-1.tar.zst")}


def test_binlog_on_another_volume_stands_still_with_the_data(host: Host, tmp_path: Path) -> None:
    with ExitStack() as owed:
        owed.enter_context(volume("logs", "--size", "64m", SITE.volume_group))
        logs = owed.enter_context(mounted(f"/dev/{SITE.volume_group}/logs", tmp_path / "logs"))
        words = (f"--log-bin={logs}/binlog", f"--relay-log={logs}/relay")
        server = owed.enter_context(served(LINEAR, tmp_path / "mounted", *words))
        owed.enter_context(server.written_to())
        document = proven(host, {**SMALL, **server.asked_by("nightly")})
    folder = Path(document["backup"]["location"])
    assert not [name for name in names_in(folder / "data-1.tar.zst") if "binlog.0" in name]
    assert [name for name in names_in(folder / "binlog.tar.zst") if name.endswith(document["position"]["binlog_file"])]
