"""Metrics without a daemon: a file that node_exporter reads (its textfile collector).

Knows: what node_exporter wants of the file.
"""

from pathlib import Path

from backupd.catalogue.store import Catalogue
from backupd.config import Configuration
from backupd.host.own_files import replace_file
from backupd.service.machine_view import ONCE_SECONDS, own_eyes
from backupd.service.metrics import Metrics
from backupd.service.site import Site
from backupd.vocabulary.errors import UsageError

_SUFFIX = ".prom"


def exposition_once(configuration: Configuration, catalogue: Catalogue) -> bytes:
    """What a daemon would tell Prometheus now."""
    site, seen = Site(configuration, catalogue), own_eyes(configuration)
    return Metrics(site, live=seen.live, rooms=seen.rooms, patience_seconds=ONCE_SECONDS).exposition()


def write_textfile(path: Path, text: bytes) -> None:
    """The file has this text and anybody may read it, whatever the umask; a reader sees the old or the new, whole.

    It need not outlive a power cut, and is not synced. prometheus_client's own writer leaves it 0600 under a umask of
    077 (0.22 to 0.26), which node_exporter's user cannot read.

    Raises:
        UsageError: node_exporter would not read a file of this name, or its folder is not there.
        OSError: it could not be written.
    """
    if path.suffix != _SUFFIX:
        raise UsageError(f"{path} does not end in {_SUFFIX}", hint="node_exporter reads only such files")
    if not path.parent.is_dir():
        raise UsageError(
            f"folder {path.parent} does not exist",
            hint=("use the folder of node_exporter's --collector.textfile.directory"),
        )
    replace_file(path, text, mode=0o644)
