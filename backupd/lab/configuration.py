"""The configuration that a lab makes ready for `backupd`: the only place that knows its text.

Knows: the job `nightly`, its target, where the lab's server answers. Refuses to know what the keys do.
"""

from backupd.lab.site import Site

SNAPSHOT = 'size = "20%"'


def text(site: Site, *, snapshot: str = SNAPSHOT) -> str:
    """A complete backupd.toml: host `lab`, target `store` (DIR/backups outside), job `nightly`."""
    return f"""[catalogue]
path = "{site.catalogue}"

[hosts.lab]
socket = "{site.socket}"
user = "backupd"
password_file = "{site.password_file}"

[targets.store]
type = "directory"
path = "{site.backups}"

[jobs.nightly]
host = "lab"
targets = ["store"]
canary = true

[jobs.nightly.snapshot]
{snapshot}
"""


def write(site: Site) -> None:
    """The file and the folders that it names exist."""
    for folder in (site.etc, site.state, site.backups):
        folder.mkdir(parents=True, exist_ok=True)
    site.configuration.write_text(text(site), encoding="utf-8")
