"""`backupd volumes`: what it prints, with or without a configuration, and what it ends with."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from backupd import wiring
from backupd.catalogue.store import Catalogue
from backupd.config import CatalogueConfig, Configuration
from backupd.operations.measure.volume_survey import Sources
from backupd.vocabulary.errors import ExitStatus, ServerError, SnapshotError
from tests.cli.terminal import Ended, Terminal
from tests.fakes.surveyed import DATADIR, SurveyedHost
from tests.story.world import World


class Surveyed:
    """`backupd volumes` on a recorded host; `catalogue` is what the command had of it."""

    def __init__(self, terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
        self.terminal = terminal
        self.host = SurveyedHost("mixed", {"db1": DATADIR})
        self.catalogue: Catalogue | None = None
        monkeypatch.setattr(wiring, "survey_sources", self._sources)
        monkeypatch.setattr(os, "geteuid", lambda: 0)
        monkeypatch.setenv("COLUMNS", "80")

    def volumes(self, *words: str) -> Ended:
        return self.terminal.run("volumes", *words)

    def _sources(self, configuration: Configuration, catalogue: Catalogue | None) -> Sources:
        self.catalogue = catalogue
        if catalogue is None:
            return self.host.sources
        return replace(self.host.sources, last_volume=catalogue.last_volume)


@pytest.fixture
def surveyed(world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Surveyed:
    return Surveyed(Terminal(world, monkeypatch, capsys), monkeypatch)


# --- bad input --------------------------------------------------------------------------------------------------------


def test_without_root_it_is_one_sentence_and_nothing_is_asked(
    surveyed: Surveyed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    ended = surveyed.volumes()
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert ended.stderr == "error: only root may list volumes: LVM needs it\nhint: sudo backupd volumes\n"


def test_unknown_group_is_status_2_and_told_with_those_there_are(surveyed: Surveyed) -> None:
    ended = surveyed.volumes("vg9")
    assert (ended.status, ended.stdout) == (ExitStatus.USAGE, "")
    assert ended.stderr == "error: no volume group 'vg9'\nhint: there are: labvg\n"


def test_unknown_volume_as_a_document_too(surveyed: Surveyed) -> None:
    ended = surveyed.volumes("labvg/nosuch", "--json")
    assert ended.status == ExitStatus.USAGE
    assert ended.document["error"] == {
        "code": "usage-error",
        "message": "no logical volume labvg/nosuch",
        "hint": "labvg has: data, own",
    }


def test_host_without_lvm_is_status_7_and_says_what_to_install(
    surveyed: Surveyed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.undo()  # the real sources
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr("backupd.host.process._environment", lambda: {"PATH": str(tmp_path)})
    ended = Terminal(surveyed.terminal.world, monkeypatch, surveyed.terminal._capsys).run("volumes")
    assert (ended.status, ended.stdout) == (ExitStatus.SNAPSHOT, "")
    assert ended.stderr == (
        "error: LVM could not report: program not found: lvm\nhint: install the package that has lvm\n"
    )


def test_lvm_that_fails_is_told(surveyed: Surveyed, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing() -> None:
        raise SnapshotError("LVM could not report: locked")

    monkeypatch.setattr("tests.fakes.surveyed.recorded", lambda state: failing())
    ended = surveyed.volumes("--json")
    assert ended.status == ExitStatus.SNAPSHOT
    assert ended.document["error"]["message"] == "LVM could not report: locked"


# --- what it tells ----------------------------------------------------------------------------------------------------


def test_every_volume_is_told_with_server_and_job(surveyed: Surveyed) -> None:
    ended = surveyed.volumes()
    assert (ended.status, ended.stderr) == (ExitStatus.OK, "")
    assert ended.stdout.startswith("labvg: 7.4 GiB on 4 PVs, 3.3 GiB free, extents of 4.0 MiB, 2 volumes\n\n")
    assert ended.stdout.endswith(
        "\n\n"
        "labvg/data  used    mounted on /srv/mysql (xfs)\n"
        "            server  the data directory of host db1\n"
        "            job     nightly: its snapshot of 832.0 MiB fits\n"
        "            room    3.3 GiB for snapshots in the group, by PV as above\n"
        "labvg/own   room    3.3 GiB for snapshots in the group, by PV as above\n"
    )


@pytest.mark.parametrize("columns", ["40", "80", "300"])
def test_pictures_are_as_wide_as_the_terminal_and_never_beyond_80(
    surveyed: Surveyed, monkeypatch: pytest.MonkeyPatch, columns: str
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    bars = [line for line in surveyed.volumes().stdout.splitlines() if line.startswith(("ubd", "   │", "   |"))]
    assert max(map(len, bars)) == min(int(columns), 80)
    assert len(bars) >= 10


def test_one_volume_has_its_group_s_disks_and_letter(surveyed: Surveyed) -> None:
    text = surveyed.volumes("labvg/own").stdout
    assert "B  own: 15 extents, mixed" in text
    assert "A  data" not in text
    assert "/dev/ubdb  1.8 GiB" in text


def test_document_has_everything_in_bytes_and_extents(surveyed: Surveyed) -> None:
    document = surveyed.volumes("--json").document
    assert list(document) == ["schema", "groups", "unused_pvs", "elsewhere"]
    (group,) = document["groups"]
    extent = 4 << 20
    assert {key: value for key, value in group.items() if key not in ("pvs", "volumes")} == {
        "name": "labvg",
        "extent_size": extent,
        "extents": 4 * 471,
        "free_extents": 833,
        "free": 833 * extent,
        "exported": False,
        "spares": [],
    }
    assert group["pvs"][0] == {
        "name": "/dev/ubdb",
        "size": 1975517184,
        "extents": 471,
        "free_extents": 127,
        "free": 127 * extent,
        "allocatable": True,
        "missing": False,
        "occupied": [
            {"first": 0, "count": 342, "volume": "data", "part": None},
            {"first": 342, "count": 2, "volume": "own", "part": None},
            {"first": 344, "count": 127, "volume": None, "part": None},
        ],
    }
    data, own = group["volumes"]
    uuid, device = data.pop("uuid"), data.pop("device")
    assert (len(uuid), device) == (38, "254:0")
    by_pv = {"/dev/ubdb": 127 * extent, "/dev/ubdc": 126 * extent, "/dev/ubdd": 124 * extent, "/dev/ubde": 456 * extent}
    assert data == {
        "name": "data",
        "full_name": "labvg/data",
        "kind": "volume",
        "active": True,
        "open": True,
        "size": 1036 * extent,
        "extents": 1036,
        "layout": "mixed",
        "stripes": 3,
        "stripe_size": 65536,
        "pvs": ["/dev/ubdb", "/dev/ubdc", "/dev/ubdd", "/dev/ubde"],
        "segments": [
            {
                "first": 0,
                "count": 1026,
                "kind": "striped",
                "stripes": 3,
                "stripe_size": 65536,
                "places": [[{"pv": pv, "first": 0, "count": 342}] for pv in ("/dev/ubdb", "/dev/ubdc", "/dev/ubdd")],
            },
            {
                "first": 1026,
                "count": 10,
                "kind": "linear",
                "stripes": 1,
                "stripe_size": None,
                "places": [[{"pv": "/dev/ubde", "first": 0, "count": 10}]],
            },
        ],
        "parts": [],
        "pool": None,
        "cache": None,
        "origin": None,
        "tags": [],
        "run_id": None,
        "conditions": [],
        "uses": [{"kind": "mounted", "by": "/srv/mysql", "filesystem": "xfs"}],
        "hosts": [{"name": "db1", "known_from": "server"}],
        "jobs": [
            {
                "name": "nightly",
                "known_from": "server",
                "snapshot_bytes": 208 * extent,
                "fits": True,
                "refusal": None,
                "hint": None,
            }
        ],
        "snapshots": [],
        "room": {"free": 833 * extent, "by_pv": by_pv, "pool": None},
    }
    assert own["layout"] == "mixed"


@pytest.mark.parametrize("state", ["thin", "cache", "raid", "snapshots", "partial", "unused", "exported"])
def test_document_of_every_kind_of_volume_can_be_printed(surveyed: Surveyed, state: str) -> None:
    surveyed.host.state = state
    document = surveyed.volumes("--json").document
    names = {one["name"] for group in document["groups"] for one in group["volumes"]}
    assert "data" in names
    for group in document["groups"]:
        for one in group["volumes"]:
            assert (one["device"] is None) == (not one["active"])


# --- what it goes by --------------------------------------------------------------------------------------------------


def test_it_works_without_a_configuration_and_makes_no_catalogue(
    surveyed: Surveyed, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    nowhere = tmp_path / "nowhere" / "backupd.toml"
    monkeypatch.setattr("backupd.operations.context.DEFAULT_PATH", nowhere)
    monkeypatch.setattr("backupd.operations.context.locate", lambda explicit, environment: nowhere)
    default = Configuration(catalogue=CatalogueConfig(path=nowhere.with_name("catalogue.sqlite")))
    monkeypatch.setattr("backupd.config.Configuration", lambda: default)  # this machine's own may be there
    ended = surveyed.terminal.type("volumes")
    assert (ended.status, surveyed.catalogue) == (ExitStatus.OK, None)
    assert "labvg/own" in ended.stdout
    assert not nowhere.parent.exists()


def test_a_catalogue_that_is_not_there_is_not_made(surveyed: Surveyed, world: World) -> None:
    assert surveyed.volumes().status == ExitStatus.OK
    assert not world.places.catalogue.exists()


def test_catalogue_tells_where_a_silent_server_s_last_run_was(surveyed: Surveyed) -> None:
    assert surveyed.terminal.run("run", "nightly").status == ExitStatus.OK
    surveyed.host.answers = {"db1": ServerError("it does not answer")}
    data = surveyed.volumes("--json").document["groups"][0]["volumes"][0]
    assert data["hosts"] == [{"name": "db1", "known_from": "last run"}]
    assert surveyed.volumes().stdout.count("(from its last run: the server does not answer)") == 2


def test_silent_server_without_a_run_is_unknown(surveyed: Surveyed) -> None:
    surveyed.host.answers = {"db1": ServerError("it does not answer")}
    assert surveyed.volumes().stdout.endswith(
        "\n\nHOST  JOBS     ITS DATA\ndb1   nightly  unknown: it does not answer\n"
    )
    assert surveyed.volumes("--json").document["elsewhere"] == [
        {"name": "db1", "jobs": ["nightly"], "known": False, "detail": "it does not answer"}
    ]
