"""The timers of systemd's that start a job beside, or in place of, `backupd serve`."""

from pathlib import Path

ENABLED = Path("/etc/systemd/system/timers.target.wants")


def timer_of(job: str) -> str:
    """The unit's name."""
    return f"backupd-run@{job}.timer"


def has_timer(job: str) -> bool:
    """Whether it is enabled: `systemctl enable` makes this link (systemctl(1))."""
    return (ENABLED / timer_of(job)).is_symlink()
