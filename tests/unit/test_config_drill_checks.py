"""What a table `[jobs.NAME.drill.checks.NAME]` or `[prove.checks.NAME]` may be."""

from pathlib import Path

import pytest

from backupd.config import load
from backupd.config.effective import as_toml, as_values
from backupd.vocabulary.errors import ConfigurationError
from tests.unit.config_texts import MINIMAL

REST = MINIMAL + "[jobs.nightly.drill.checks.orders]\n"
OF_PROOFS = MINIMAL + '[prove.checks.orders]\njob = "nightly"\n'
GOOD = 'sql = "SELECT 1"\nat_least = 1\nat_most = 2.5\ntimeout = "90s"\n'


def written(folder: Path, keys: str, rest: str = REST) -> Path:
    path = folder / "backupd.toml"
    path.write_text(rest + keys)
    return path


def refusal(folder: Path, keys: str, rest: str = REST) -> ConfigurationError:
    with pytest.raises(ConfigurationError) as caught:
        load(written(folder, keys, rest))
    return caught.value


@pytest.mark.parametrize(("rest", "where"), [(REST, "jobs.nightly.drill.checks"), (OF_PROOFS, "prove.checks")])
@pytest.mark.parametrize(
    ("good", "bad", "fault"),
    [
        ('"SELECT 1"', '" ;\\n"', ".sql: has no statement"),
        ('"SELECT 1"', '""', ".sql: "),
        ('sql = "SELECT 1"\n', "", ".sql: is missing"),
        ("at_least = 1\n", 'at_least = "1"\n', '.at_least: "1" is not a number'),
        ("at_least = 1\n", "at_least = true\n", ".at_least: true is not a number"),
        ("at_least = 1\n", "at_least = -inf\n", ".at_least: -inf is not a number"),
        ("at_least = 1\n", f"at_least = -{10**400}\n", ".at_least: a number of more than 60 digits is larger than"),
        ("at_least = 1\n", "at_least = 3\n", ": at_least (3) is above at_most (2.5)"),
        ("at_least = 1\nat_most = 2.5\n", "", ": does not say what is expected"),
        ("at_most = 2.5", 'equals = "1"', ": has more than one expectation: equals, at_least"),
        ("at_most = 2.5", 'newer_than = "1h"', ": has more than one expectation: at_least, newer_than"),
        ("at_least = 1\nat_most = 2.5", "equals = 42", ".equals: 42 is not a text in quotes"),
        ("at_least = 1\nat_most = 2.5", 'newer_than = "soon"', '.newer_than: "soon" is not a duration'),
        ("at_least = 1\nat_most = 2.5", "newer_than = 0", ".newer_than: must be longer than zero"),
        ('"90s"', '"0s"', ".timeout: must be longer than zero"),
        ("at_most", "at_mots", ".at_mots: unknown key"),
        ("timeout", 'name = "x"\ntimeout', ".name: unknown key"),
    ],
)
def test_what_cannot_be_is_told_by_its_key(
    tmp_path: Path, good: str, bad: str, fault: str, rest: str, where: str
) -> None:
    assert good in GOOD
    error = refusal(tmp_path, GOOD.replace(good, bad), rest)
    assert f"{where}.orders{fault}" in error.message
    assert "faults" not in error.message
    assert error.hint


def test_a_name_that_no_check_can_have_is_told(tmp_path: Path) -> None:
    error = refusal(tmp_path, f'{GOOD}[jobs.nightly.drill.checks."new orders"]\n{GOOD}')
    assert 'jobs.nightly.drill.checks."new orders": use 1 to 41 of a-z, 0-9, _ and -' in error.message


@pytest.mark.parametrize(
    ("written", "fault"),
    [
        ("", "prove.checks.orders.job: is missing"),
        ('job = "a b"\n', "prove.checks.orders.job: use 1 to 41 of a-z"),
        ('job = "nightly"\nmachine = ""\n', "prove.checks.orders.machine: "),
        ('job = "nightly"\nhost = "db1"\n', "prove.checks.orders.host: unknown key"),
    ],
)
def test_a_check_of_a_proof_host_names_the_job_whose_backups_it_asks(tmp_path: Path, written: str, fault: str) -> None:
    assert fault in refusal(tmp_path, GOOD, f"{MINIMAL}[prove.checks.orders]\n{written}").message


def test_a_check_of_a_job_names_no_other(tmp_path: Path) -> None:
    assert "checks.orders.job: unknown key" in refusal(tmp_path, f'{GOOD}job = "nightly"\n').message


def test_a_proof_host_can_have_so_many_checks_for_each_job(tmp_path: Path) -> None:
    many = "".join(
        f'[prove.checks.{job[0]}{number}]\njob = "{job}"\n{GOOD}' for job in ("a", "b") for number in range(50)
    )
    assert len(load(written(tmp_path, "", MINIMAL + many)).prove.checks) == 100
    error = refusal(tmp_path, GOOD, f'{MINIMAL}{many}[prove.checks.last]\njob = "a"\n')
    assert "prove.checks: has 51 checks for job a" in error.message
    assert error.hint == "a job can have 50"


def test_a_table_in_the_wrong_place_is_told_the_right_one(tmp_path: Path) -> None:
    path = tmp_path / "backupd.toml"
    path.write_text(f"{MINIMAL}[jobs.nightly.checks.orders]\n{GOOD}")
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert caught.value.hint == "did you mean jobs.nightly.drill.checks?"


def test_there_can_be_so_many_that_all_are_kept_with_a_proof(tmp_path: Path) -> None:
    many = "".join(f"[jobs.nightly.drill.checks.c{number}]\n{GOOD}" for number in range(50))
    error = refusal(tmp_path, GOOD + many)
    assert "jobs.nightly.drill.checks: has 51 checks" in error.message
    assert error.hint == "a job can have 50"


@pytest.mark.parametrize(
    "expected",
    [
        "at_least = 1\nat_most = 2.5",
        "at_most = 9007199254740993",
        'equals = ""',
        'equals = "ä\\n"',
        'newer_than = "26h"',
    ],
)
def test_what_is_shown_of_checks_is_read_back_as_the_same(tmp_path: Path, expected: str) -> None:
    path = written(tmp_path, f'sql = """\nSELECT "é"\n  -- why\n"""\n{expected}\n')
    given = load(path)
    (check,) = given.jobs["nightly"].drill.checks.values()
    assert (check.name, check.timeout_seconds) == ("orders", 300)
    shown = tmp_path / "shown.toml"
    shown.write_text(as_toml(given))
    assert load(shown) == given
    of_proofs = load(written(tmp_path, f'machine = "db1-0a1b2c3d"\nsql = "SELECT 1"\n{expected}\n', OF_PROOFS))
    shown.write_text(as_toml(of_proofs))
    assert load(shown) == of_proofs
    assert (of_proofs.prove.checks["orders"].job, of_proofs.prove.checks["orders"].machine) == (
        "nightly",
        "db1-0a1b2c3d",
    )
    assert as_values(given, path)["jobs"]["nightly"]["drill"]["checks"]["orders"]["sql"] == check.sql


def test_moments_are_drilled_of_a_binlog_archive_only(tmp_path: Path) -> None:
    moment = '[jobs.nightly.drill]\nmoment = "random"\n'
    assert load(written(tmp_path, f"{moment}[jobs.nightly.binlog]\n", MINIMAL)).jobs["nightly"].drill.moment == "random"
    error = refusal(tmp_path, moment, MINIMAL)
    assert "jobs.nightly.drill.moment: there is no binlog archive whose moments a drill could prove" in error.message
    assert "[jobs.nightly.binlog]" in (error.hint or "")
