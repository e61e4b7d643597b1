"""Schedules in the configuration: what is refused, what is written back, and which zone a schedule goes by."""

from pathlib import Path

import pytest

from backupd.config import Configuration, load
from backupd.config.effective import as_toml
from backupd.service.timetables import timetables, zone_of, zone_of_machine
from backupd.vocabulary.errors import ConfigurationError
from backupd.vocabulary.schedule import Activity
from tests.unit.config_texts import MINIMAL

BASE = f"""
[service]
{{service}}
{MINIMAL}
{{job}}
[jobs.nightly.schedules.backup]
{{backup}}
"""


def configured(folder: Path, backup: str = 'cron = "30 2 * * *"', *, service: str = "", job: str = "") -> Configuration:
    path = folder / "backupd.toml"
    path.write_text(BASE.format(backup=backup, service=service, job=job))
    return load(path)


def refusal(folder: Path, backup: str, *, job: str = "") -> ConfigurationError:
    with pytest.raises(ConfigurationError) as raised:
        configured(folder, backup, job=job)
    return raised.value


@pytest.mark.parametrize(
    ("line", "key", "fact"),
    [
        ('cron = "30 25 * * *"', "cron", '"25" is not a valid hour'),
        ('cron = "0 0 30 2 *"', "cron", "never occurs: there is no such day"),
        ('cron = "@nightly"', "cron", "has 1 field,"),
        ('cron = "0 0 * * *"\nzone = "CEST"', "zone", 'unknown time zone "CEST"'),
        ('cron = "0 0 * * *"\nzone = "/etc/passwd"', "zone", "unknown time zone"),
        ('cron = "0 0 * * *"\nblackout = ["8-18"]', "blackout[0]", '"8-18" is not a time window'),
        ('cron = "0 0 * * *"\nblackout = ["24:00-01:00"]', "blackout[0]", "is not a time window"),
        ('cron = "0 0 * * *"\nblackout = ["mon 08:00-09:00"]', "blackout[0]", "is not a time window"),
        ('cron = "0 0 * * *"\nblackout = ["00:00-00:00"]', "blackout", "leave no minute of the week free"),
        (
            ('cron = "0 0 * * *"\nblackout = ["08:00-20:00", "19:00-08:00"]'),
            "blackout",
            "leave no minute of the week free",
        ),
        ('cron = "0 0 * * *"\nstart_within = 0', "start_within", "must be longer than zero"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key_and_a_hint(tmp_path: Path, line: str, key: str, fact: str) -> None:
    error = refusal(tmp_path, line)
    assert f"jobs.nightly.schedules.backup.{key}: " in error.message
    assert fact in error.message
    assert error.hint


@pytest.mark.parametrize(
    ("lines", "key", "fact"),
    [
        ("retries = -1", "retries", "-1 is not at least 0"),
        ("retries = 21", "retries", "21 is not at most 20"),
        ("retries = 1.5", "retries", "not a whole number"),
        ("retry_after = 0", "retry_after", "must be longer than zero"),
        ('retries = 1\nretry_after = "4h"', "retry_after", "is 4h, but a backup must start within 4h"),
        ('retries = 1\nstart_within = "10m"', "retry_after", "is 15m, but a backup must start within 10m"),
    ],
)
def test_tries_that_cannot_be_are_refused(tmp_path: Path, lines: str, key: str, fact: str) -> None:
    error = refusal(tmp_path, f'cron = "30 2 * * *"\n{lines}')
    assert f"jobs.nightly.schedules.backup.{key}: " in error.message
    assert fact in error.message
    assert error.hint


def test_a_backup_without_retries_needs_no_time_for_them(tmp_path: Path) -> None:
    schedule = configured(tmp_path, 'cron = "30 2 * * *"\nstart_within = "10m"').jobs["nightly"].schedules.backup
    assert schedule is not None
    assert (schedule.retries, schedule.retry_after_seconds) == (0, 900)


def test_only_a_backup_is_tried_again(tmp_path: Path) -> None:
    drill = '[jobs.nightly.schedules.drill]\ncron = "0 4 * * *"\nretries = 2'
    error = refusal(tmp_path, f'cron = "30 2 * * *"\n{drill}')
    assert "jobs.nightly.schedules.drill.retries" in error.message


def test_two_wrong_values_are_told_at_once(tmp_path: Path) -> None:
    message = refusal(tmp_path, 'cron = "a b c d e"\nzone = "Nowhere"').message
    assert '"a" is not a valid minute' in message
    assert '"Nowhere"' in message


@pytest.mark.parametrize("blackout", ["08:00-18:00", "Mon-Fri 22:00-04:00", "Sat-Mon 00:00-00:00", "Sun 01:30-01:45"])
def test_a_blackout_is_shown_as_it_was_written(tmp_path: Path, blackout: str) -> None:
    shown = as_toml(configured(tmp_path, f'cron = "0 0 * * *"\nblackout = ["{blackout}"]'))
    assert f'blackout = ["{blackout}"]' in shown


# --- how often the server's binlogs must reach back -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cron", "every", "gap"),
    [
        ("30 2 * * 1-5", "24h", "3d"),
        ("0 4 * * Sun", "24h", "7d"),
        ("0 4 1 * *", "7d", "31d"),
        ("0 */6 * * *", "1h", "6h"),
    ],
)
def test_a_schedule_that_leaves_more_time_than_every_says_is_refused(
    tmp_path: Path, cron: str, every: str, gap: str
) -> None:
    error = refusal(tmp_path, f'cron = "{cron}"', job=f'every = "{every}"')
    assert "jobs.nightly.every: " in error.message
    assert f'every = "{gap}"' in error.hint
    assert configured(tmp_path, f'cron = "{cron}"', job=f'every = "{gap}"').jobs["nightly"].schedules.backup


def test_a_night_of_25_hours_is_no_reason_to_refuse(tmp_path: Path) -> None:
    assert configured(tmp_path, service='zone = "Europe/Berlin"').jobs["nightly"].every_seconds == 86400


def test_no_other_activity_is_compared_with_every(tmp_path: Path) -> None:
    weekly = 'cron = "30 2 * * *"\n[jobs.nightly.schedules.drill]\ncron = "0 5 * * Sat"'
    assert configured(tmp_path, weekly).jobs["nightly"].schedules.drill


# --- zones ------------------------------------------------------------------------------------------------------------


def test_a_schedules_zone_goes_before_the_services_and_that_before_the_machines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", ":America/Lima")
    named = configured(tmp_path, 'cron = "0 0 * * *"\nzone = "Asia/Tokyo"', service='zone = "Europe/Berlin"')
    assert timetables(named)["nightly", Activity.BACKUP].zone == "Asia/Tokyo"
    assert zone_of(named) == "Europe/Berlin"
    assert timetables(configured(tmp_path, service='zone = "UTC"'))["nightly", Activity.BACKUP].zone == "UTC"
    assert timetables(configured(tmp_path))["nightly", Activity.BACKUP].zone == "America/Lima"


@pytest.mark.parametrize(
    ("link", "note", "zone"),
    [
        ("/usr/share/zoneinfo/Europe/Berlin", "", "Europe/Berlin"),
        ("../usr/share/zoneinfo/posix/America/Argentina/Salta", "", "America/Argentina/Salta"),
        ("", "Asia/Kathmandu\n", "Asia/Kathmandu"),
        ("", "", "UTC"),
        ("/usr/share/zoneinfo/Europe/Berlin", "Asia/Kathmandu\n", "Europe/Berlin"),
    ],
)
def test_the_machines_zone_is_what_its_files_name(
    tmp_path: Path, link: str | None, note: str | None, zone: str
) -> None:
    localtime, timezone = tmp_path / "localtime", tmp_path / "timezone"
    if link:
        localtime.symlink_to(link)
    if note:
        timezone.write_text(note)
    assert zone_of_machine({}, localtime=localtime, note=timezone) == zone


def test_a_machine_whose_zone_has_no_name_is_an_error_with_what_to_write(tmp_path: Path) -> None:
    localtime = tmp_path / "localtime"
    localtime.write_bytes(b"TZif2")
    with pytest.raises(ConfigurationError) as raised:
        zone_of_machine({}, localtime=localtime, note=tmp_path / "none")
    assert "in [service]" in raised.value.hint
    with pytest.raises(ConfigurationError, match="is not an IANA time zone"):
        zone_of_machine({"TZ": "EST5EDT4,M3.2.0,M11.1.0"}, localtime=localtime, note=tmp_path / "none")
