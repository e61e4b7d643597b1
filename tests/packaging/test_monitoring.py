"""docker/monitoring.compose.yaml: the daemon and Prometheus come up together and find each other.

Grafana's image comes from a registry, which need not be reachable: of it the files are tried that it is handed.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.docker.containers import COMPOSE, ROOT, build, docker
from tests.servers.ports import free_port
from tests.service.prometheus import Prometheus, eventually

FILE = ROOT / "docker" / "monitoring.compose.yaml"
OURS = ("backupd", "prometheus")
CONFIGURATION = """
[service]
zone = "UTC"
[hosts.db1]
socket = "/run/mysqld/mysqld.sock"
user = "backup"
[targets.vault]
type = "directory"
path = "{folder}/target"
[jobs.nightly]
host = "db1"
targets = ["vault"]
"""


@pytest.fixture(scope="module")
def surroundings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of the file: folders of this test's own, and a port that nobody has."""
    folder = tmp_path_factory.mktemp("machine")
    for name in ("config", "state", "log", "data", "target"):
        (folder / name).mkdir()
    (folder / "config" / "backupd.toml").write_text(CONFIGURATION.format(folder=folder))
    return {
        "CONFIG_FOLDER": f"{folder}/config",
        "STATE_FOLDER": f"{folder}/state",
        "LOG_FOLDER": f"{folder}/log",
        "DATADIR": f"{folder}/data",
        "TARGET": f"{folder}/target",
        "PROMETHEUS_PORT": str(free_port()),
    }


@pytest.fixture(scope="module")
def compose(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The beginning of each command. The daemon has no privilege here, which it needs for LVM only; the one capability
    that Docker does not give is what the pages' process reads the record with.
    """
    less = tmp_path_factory.mktemp("compose") / "less.yaml"
    less.write_text(yaml.safe_dump({"services": {"backupd": {"privileged": False, "cap_add": ["DAC_READ_SEARCH"]}}}))
    project = f"backupd-monitoring-{os.getpid()}"
    return [*COMPOSE, "-f", str(FILE), "-f", str(less), "-p", project]


def said(command: list[str], surroundings: dict[str, str]) -> str:
    """What it printed; it has succeeded."""
    done = subprocess.run(
        command, env=os.environ | surroundings, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def monitored(compose: list[str], surroundings: dict[str, str]) -> Iterator[Prometheus]:
    """The Prometheus of the file, beside the daemon; both are gone afterwards."""
    for image in OURS:  # one after the other: they share a base that is made once
        build(image)
    try:
        said([*compose, "up", "-d", *OURS], surroundings)
        found = Prometheus(f"http://127.0.0.1:{surroundings['PROMETHEUS_PORT']}")
        try:
            eventually(lambda: found.get("status/buildinfo"))
        except AssertionError:
            pytest.fail(said([*compose, "logs", "--tail=40"], surroundings), pytrace=False)
        yield found
    finally:
        said([*compose, "down", "--volumes"], surroundings)
        shutil.rmtree(surroundings["STATE_FOLDER"], ignore_errors=True)


def test_prometheus_scrapes_the_daemon_beside_it(monitored: Prometheus) -> None:
    monitored.becomes('up{job="backupd"}', 1)
    monitored.becomes('backupd_job_interval_seconds{backup_job="nightly"}', 86400)
    monitored.becomes('backupd_target_up{target="vault"}', 1)


def test_prometheus_has_the_rules(monitored: Prometheus) -> None:
    (group,) = eventually(lambda: monitored.get("rules")["groups"])
    assert "BackupdBackupTooOld" in {rule["name"] for rule in group["rules"]}


def test_prometheus_is_debians_and_no_superuser(monitored: Prometheus) -> None:
    entry = ["run", "--rm", "--entrypoint=sh", "backupd-prometheus", "-c"]
    assert docker(*entry, "id -un").strip() == "prometheus"
    assert docker(*entry, "dpkg-query --show --showformat='${Maintainer}' prometheus").strip()


# --- Grafana, by its files -------------------------------------------------------------------------------------------


@pytest.fixture
def grafana(compose: list[str], surroundings: dict[str, str]) -> dict[str, Any]:
    """Its service, as compose reads the file."""
    service: dict[str, Any] = yaml.safe_load(said([*compose, "config"], surroundings))["services"]["grafana"]
    return service


def mounted(service: dict[str, Any]) -> dict[str, Path]:
    """What is handed in: the path inside, and the file outside."""
    short = [volume.split(":") for volume in service["volumes"] if isinstance(volume, str)]
    long = [(volume["source"], volume["target"]) for volume in service["volumes"] if not isinstance(volume, str)]
    return {inside: Path(outside) for outside, inside, *_ in [*short, *long]}


def test_grafana_is_handed_files_that_there_are(grafana: dict[str, Any]) -> None:
    files = mounted(grafana)
    assert len(files) == 3
    assert [path for path in files.values() if not path.is_file()] == []


def test_grafana_finds_the_dashboard_and_the_prometheus_beside_it(
    grafana: dict[str, Any], surroundings: dict[str, str]
) -> None:
    files = mounted(grafana)
    (provider,) = yaml.safe_load(files["/etc/grafana/provisioning/dashboards/backupd.yml"].read_text())["providers"]
    (dashboard,) = [file for inside, file in files.items() if inside.startswith(provider["options"]["path"])]
    assert json.loads(dashboard.read_text())["title"] == "backupd"
    (source,) = yaml.safe_load(files["/etc/grafana/provisioning/datasources/backupd.yml"].read_text())["datasources"]
    port = surroundings["PROMETHEUS_PORT"]
    assert (
        source["url"].replace("$PROMETHEUS_PORT", str(grafana["environment"]["PROMETHEUS_PORT"])).endswith(f":{port}")
    )


def test_grafana_listens_on_this_machine_only(grafana: dict[str, Any]) -> None:
    assert grafana["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
