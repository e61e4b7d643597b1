"""What is accepted, and told by `config check` and the daemon: no backup stops for what is only useless elsewhere."""

from pathlib import Path

import pytest

from backupd.config import load
from backupd.config.warnings import warnings_of
from tests.unit.config_texts import MINIMAL

CANARY = "c4n4ry-s3cr3t"
BUCKET = '[targets.bucket]\ntype = "s3"\nbucket = "backups"\naccept_unencrypted = true\n'
MAIL = '[notifications.m]\ntype = "mail"\nsender = "a@example.com"\nrecipients = ["b@example.com"]\n'
HOOK = '[jobs.nightly.hooks.h]\ncommand = ["/bin/true"]\nwhen = '


def told(folder: Path, more: str) -> list[str]:
    """It is read, and these are its warnings."""
    file = folder / "backupd.toml"
    file.write_text(f"{MINIMAL}{more}\n")
    file.chmod(0o640)
    return list(warnings_of(load(file), file))


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (f'{BUCKET}lock_for = "365d"', "targets.bucket.lock_for: locks nothing without lock_mode; add lock_mode"),
        (f'{BUCKET}lock_mode = "governance"\nlock_for = "1ms"', "targets.bucket.lock_for: is less than an hour; any"),
        (f'{BUCKET}part_size = "6GiB"', "targets.bucket.part_size: 6 GiB is more than the 5 GiB that the store takes"),
        ('[service]\naddress = "0.0.0.0"', 'service.address: "0.0.0.0" can be reached from other machines, but no'),
        ('[service]\ndigest = "0 8 * * Mon"', "service.digest: nobody is told, because no notification has"),
        (f"{MAIL}on = []", "notifications.m.on: is empty, so nobody is told"),
        (
            f'[notifications.w]\ntype = "webhook"\nurl = "http://a/{CANARY}"\ntoken_file = "/t"',
            "notifications.w.url: is http, over which the token is not sent",
        ),
        (f'{HOOK}["before-run", "after-run", "before-run"]', "jobs.nightly.hooks.h.when: names a point twice"),
    ],
)
def test_what_is_useless_or_refused_elsewhere_is_told_and_stops_nothing(tmp_path: Path, more: str, said: str) -> None:
    (only,) = told(tmp_path, more)
    assert only.startswith(said)
    assert CANARY not in only


@pytest.mark.parametrize(
    "more",
    [
        "",
        f'{BUCKET}lock_for = "7d"',  # the default, which `config show` printed beside no lock_mode
        f'{BUCKET}lock_mode = "governance"\nlock_for = "1h"\npart_size = "5GiB"',
        '[service]\naddress = "0.0.0.0"\ntoken_file = "/t"',
        f'[service]\ndigest = "0 8 * * Mon"\n{MAIL}',
        '[notifications.w]\ntype = "webhook"\nurl = "http://127.0.0.1:8080/hook"\ntoken_file = "/t"',
        '[notifications.w]\ntype = "webhook"\nurl = "https://hooks.example.com/hook"\ntoken_file = "/t"',
        '[jobs.nightly.settle]\nfile_size = "2GiB"',  # a run asks for the room
        MAIL.replace("b@", "jos\u00e9@"),  # a server with SMTPUTF8 takes it
        f'{HOOK}["before-run", "after-run"]',
    ],
)
def test_of_what_is_as_it_should_be_nothing_is_told(tmp_path: Path, more: str) -> None:
    assert told(tmp_path, more) == []


@pytest.mark.parametrize(
    ("cron", "blackout", "missed"),
    [
        ("0 3 * * *", "02:00-06:00", "nothing ever starts"),
        ("0 3 * * *", "02:00-04:00", ""),
        ("0 3 * * *", "Mon-Sat 02:00-06:00", "6 of 7 times of a week are always missed, such as Mon 03:00"),
        ("0 3 * * Sun", "Sat 22:00-06:00", "nothing ever starts"),
        ("0 3 * * Sun", "Mon-Fri 22:00-06:00", ""),
        ("0 3 1 * *", "Mon-Sat 02:00-06:00", "6 of 7 times"),
        ("0 3 29 2 *", "Sun-Fri 02:00-06:00", "6 of 7 times"),
        ("*/30 3-4 * * *", "02:00-06:00", "nothing ever starts"),
        ("30 23 * * Sun", "Sun 23:00-02:00", "nothing ever starts"),
        ("30 23 * * Sun", "Sun 23:00-00:30", ""),
    ],
)
def test_what_a_blackout_always_keeps_from_starting_is_told(
    tmp_path: Path, cron: str, blackout: str, missed: str
) -> None:
    schedule = f'[jobs.nightly.schedules.drill]\ncron = "{cron}"\nstart_within = "1h"\nblackout = ["{blackout}"]'
    found = told(tmp_path, schedule)
    assert len(found) == bool(missed)
    assert all(
        one.startswith(f"jobs.nightly.schedules.drill.blackout: {missed}")
        and "it lasts longer than start_within (1h)" in one
        for one in found
    )


def test_a_spread_may_bring_a_schedule_out_of_its_blackout(tmp_path: Path) -> None:
    schedule = (
        '[jobs.nightly.schedules.drill]\ncron = "0 3 * * *"\nstart_within = "1h"\nblackout = ["02:00-06:00"]\nspread = '
    )
    assert told(tmp_path, f'{schedule}"2h"') == []
    assert "nothing ever starts" in told(tmp_path, f'{schedule}"90m"')[0]


def test_a_group_that_may_write_the_file_is_told(tmp_path: Path) -> None:
    told(tmp_path, "")
    file = tmp_path / "backupd.toml"
    file.chmod(0o660)
    (only,) = warnings_of(load(file), file)
    assert only.startswith(f"{file}: is writable by group ")


def test_a_file_that_has_gone_meanwhile_is_no_matter(tmp_path: Path) -> None:
    told(tmp_path, "")
    file = tmp_path / "backupd.toml"
    read = load(file)
    file.unlink()
    assert list(warnings_of(read, file)) == []
