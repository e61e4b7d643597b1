"""What a table `[jobs.NAME.hooks.NAME]` may be."""

from pathlib import Path

import pytest

from backupd.config import HookPoint, load
from backupd.config.effective import as_toml
from backupd.vocabulary.errors import ConfigurationError
from tests.unit.config_texts import MINIMAL

REST = MINIMAL + "[jobs.nightly.hooks.cache]\n"
GOOD = 'when = ["before-copy", "after-run"]\ncommand = ["/usr/local/bin/hook", "", "-x"]\ntimeout = "5s"\n'


def written(folder: Path, keys: str) -> Path:
    path = folder / "backupd.toml"
    path.write_text(REST + keys)
    return path


@pytest.mark.parametrize(
    ("good", "bad", "fault"),
    [
        ('"before-copy"', '"before-unlock"', '.when[0]: "before-unlock" is none of before-run, '),
        ('["before-copy", "after-run"]', "[]", ".when: a list is empty"),
        ('"/usr/local/bin/hook", "", "-x"', "", ".command: has no program"),
        ("/usr/local/bin/hook", "hook", '.command: "hook" is not an absolute path'),
        ('"-x"', "7", ".command[2]: 7 is not a text in quotes"),
        ('"5s"', '"0s"', ".timeout: must be longer than zero"),
        ("timeout", "timeuot", ".timeuot: unknown key"),
        ("timeout", 'name = "x"\ntimeout', ".name: unknown key"),
    ],
)
def test_what_cannot_be_is_told_by_its_key(tmp_path: Path, good: str, bad: str, fault: str) -> None:
    assert good in GOOD
    with pytest.raises(ConfigurationError) as caught:
        load(written(tmp_path, GOOD.replace(good, bad)))
    assert f"jobs.nightly.hooks.cache{fault}" in caught.value.message


def test_what_is_shown_of_hooks_is_read_back_as_the_same(tmp_path: Path) -> None:
    given = load(written(tmp_path, GOOD))
    (hook,) = given.jobs["nightly"].hooks.values()
    assert (hook.when, hook.timeout_seconds) == ((HookPoint.BEFORE_COPY, HookPoint.AFTER_RUN), 5)
    shown = tmp_path / "shown.toml"
    shown.write_text(as_toml(given))
    assert load(shown) == given
