"""The configuration that a lab makes ready for `backupd`: the only place that knows its text.

Knows: its jobs, `nightly` and `old-defaults`, their target, where the lab's server answers.
"""

from backupd.lab.site import LabSite

SNAPSHOT = 'size = "20%"'
OLD_DEFAULTS = "old-defaults"  # a job


def text(site: LabSite, *, snapshot: str = SNAPSHOT) -> str:
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

{_job("nightly", snapshot)}"""


def write(site: LabSite) -> None:
    """The file and the folders that it names exist."""
    for folder in (site.etc, site.state, site.backups):
        folder.mkdir(parents=True, exist_ok=True)
    site.configuration.write_text(text(site), encoding="utf-8")


def add_old_defaults(site: LabSite) -> None:
    """From now on there is the job `old-defaults` as well.

    It does what backupd did before it went by the disks and by what waiting can save, as far as settings bring it back.
    """
    job = _job(OLD_DEFAULTS, f'{SNAPSHOT}\nchunk_size = "64KiB"')
    with site.configuration.open("a", encoding="utf-8") as file:
        file.write(f"\n{job}\n[jobs.{OLD_DEFAULTS}.settle]\nprobe = true\n")


def add_archive(site: LabSite, job: str) -> None:
    """From now on the job archives the server's binlog as well."""
    with site.configuration.open("a", encoding="utf-8") as file:
        file.write(f'\n[jobs.{job}.binlog]\nspool = "{site.state}/binlog"\n')


def _job(name: str, snapshot: str) -> str:
    return f"""[jobs.{name}]
host = "lab"
targets = ["store"]
canary = true

[jobs.{name}.snapshot]
{snapshot}
"""
