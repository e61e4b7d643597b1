"""Where the pages of a fleet are: their addresses, with strangers' names encoded."""

from datetime import date
from urllib.parse import quote, urlencode

from backupd.report.fleet_calendar import CalendarLinks
from backupd.vocabulary.fleet import FleetBackup


def backup_path(backup_id: str) -> str:
    """Of a backup's page."""
    return f"/backups/{quote(backup_id, safe='')}"


def cluster_path(cluster: str) -> str:
    """Of the history of a cluster."""
    return f"/history?{urlencode({'cluster': cluster})}"


def night_path(night: date) -> str:
    """Of a night's page."""
    return f"/nights/{night}"


def path_of(backup: FleetBackup) -> str:
    """Of this backup's page."""
    return backup_path(backup.owed.id)


CALENDAR = CalendarLinks(backup=backup_path, cluster=cluster_path, night=night_path)
