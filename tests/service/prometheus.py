"""A real Prometheus, Debian's, over one daemon: what a test may ask of it.

Knows: its options and its API (2.42). Refuses to know what is scraped.
"""

import json
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.servers.ports import ADDRESS, free_port

_PATIENCE_SECONDS = 60.0

Answer = TypeVar("Answer")


class Prometheus:
    """One that runs; `url` is where it listens."""

    def __init__(self, url: str) -> None:
        self.url = url

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series that it evaluates to now, each with `metric` and `value`.

        Raises:
            AssertionError: Prometheus cannot evaluate it; with what it says.
        """
        found = self.get("query", query=expression)
        assert found["resultType"] == "vector", found
        return list(found["result"])

    def value(self, expression: str) -> float:
        """Of an expression that evaluates to one series.

        Raises:
            AssertionError: it evaluates to none, or to several.
        """
        found = self.query(expression)
        assert len(found) == 1, (expression, found)
        return float(found[0]["value"][1])

    def becomes(self, expression: str, wanted: float) -> None:
        """Of an expression that evaluates to one series: soon. A scrape of a busy machine may fail, the next one tells.

        Raises:
            AssertionError: it does not; with what it evaluates to.
        """
        eventually(lambda: self.value(expression), accept=lambda found: found == wanted)

    def get(self, path: str, **parameters: str) -> Any:
        """The data of an answer of the API."""
        address = f"{self.url}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(address, timeout=10) as answer:
                told = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{path} {parameters}: {error.read().decode()}") from error
        assert told["status"] == "success", told
        return told["data"]


def eventually(
    ask: Callable[[], Answer],
    *,
    accept: Callable[[Answer], bool] = bool,
    within_seconds: float = _PATIENCE_SECONDS,
) -> Answer:
    """The first answer that is accepted; a refused connection is an answer, too.

    Raises:
        AssertionError: there was none in time; with the last one.
    """
    deadline = time.monotonic() + within_seconds
    last: object = None
    while time.monotonic() < deadline:
        try:
            found = ask()
        except (OSError, AssertionError) as error:
            last = error
        else:
            if accept(found):
                return found
            last = found
        time.sleep(0.1)
    raise AssertionError(f"after {within_seconds:.0f} s: {last!r}")


@contextmanager
def prometheus(folder: Path, *, scraping: dict[str, Any], rules: Path, every: str = "1s") -> Iterator[Prometheus]:
    """It scrapes so often and evaluates the rules as often, for the length of the block."""
    settings = {
        "global": {"scrape_interval": every, "evaluation_interval": every},
        "rule_files": [str(rules)],
        "scrape_configs": [scraping],
    }
    (folder / "prometheus.yml").write_text(yaml.safe_dump(settings))
    port = free_port()
    command = [
        "prometheus",
        f"--config.file={folder}/prometheus.yml",
        f"--storage.tsdb.path={folder}/series",
        f"--web.listen-address={ADDRESS}:{port}",
        "--log.level=warn",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
    try:
        found = Prometheus(f"http://{ADDRESS}:{port}")
        eventually(lambda: found.get("status/buildinfo"))
        yield found
    finally:
        process.kill()
        process.wait()
