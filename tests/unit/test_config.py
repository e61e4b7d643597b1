"""The configuration: what is accepted, and every way of refusing a file."""

import dataclasses
from collections.abc import Callable
from datetime import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backupd import config
from backupd.config import (
    BinlogConfig,
    Configuration,
    HostConfig,
    JobConfig,
    LockStrategy,
    SnapshotConfig,
    SnapshotSize,
    TargetKind,
    load,
    locate,
)
from backupd.config.effective import as_toml
from backupd.config.reading import checked
from backupd.config.wording import keys_of
from backupd.vocabulary.errors import ConfigurationError
from backupd.vocabulary.faults import quoted
from backupd.vocabulary.schedule import Deadline
from backupd.vocabulary.volumes import AUTO, PvsGone
from tests.unit.config_texts import HOST, JOB, MINIMAL, TARGET, refusal

Write = Callable[[str], Path]

NO_TIME = "is neither a time of day nor how long a run may take"
PV = "5QIaKV-SFG5-a8ZD-j1dl-iO3z-jV8Q-Rycilc"
NO_PV = "neither the uuid of a physical volume nor a path under /dev"


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(text: str) -> Path:
        path = tmp_path / "backupd.toml"
        path.write_text(text)
        return path

    return write


def test_each_name_is_there_that_the_package_says_it_has() -> None:
    """They are imported when they are first asked for."""
    assert [name for name in config.__all__ if not hasattr(config, name)] == []
    assert not hasattr(config, "CatalogConfig")


def test_a_minimal_file_is_enough_and_the_defaults_are_the_documented_ones(write: Write) -> None:
    job = load(write(MINIMAL)).jobs["nightly"]
    assert (job.name, job.host, job.targets, job.every_seconds, job.canary) == (
        "nightly",
        "db1",
        ("vault",),
        86400,
        False,
    )
    assert (job.lock.strategy, job.lock.wait_timeout_seconds, job.lock.tries) == ("auto", 2, 10)
    assert (job.lock.pause_seconds, job.lock.hold_budget_seconds, job.lock.blocker_age_seconds) == (5, 10, 10)
    assert (job.lock.preflush, job.lock.preflush_wait_seconds) == (False, 60)
    assert job.snapshot == SnapshotConfig(size="auto", chunk_size="auto", pvs=(), stripes="auto")
    assert (job.settle.window_seconds, job.settle.duty, job.settle.max_wait_seconds) == (1, 0.1, 1800)
    assert (job.settle.file_size, job.settle.block_size, job.settle.threshold) == (8 << 20, 16 << 10, 1.25)
    assert (job.settle.plateau_windows, job.settle.plateau_looks, job.settle.quiet_share) == (6, 60, 0.2)
    assert job.settle.patience == 1.0
    assert (job.limits.max_penalty, job.limits.max_replica_lag_seconds, job.limits.max_cow_fill) == (None, None, 0.9)
    assert (job.copy.level, job.copy.threads, job.copy.max_rate, job.copy.must_finish_by) == (1, 1, None, None)
    assert (job.retention.keep_last, job.retention.daily, job.retention.yearly) == (7, 0, 0)


def test_every_kind_of_value_arrives_typed(write: Write) -> None:
    text = MINIMAL + (
        'every = "12h"\ncanary = true\n'
        '[jobs.nightly.lock]\nstrategy = "backup-stage"\nwait_timeout = "5s"\npause = "500ms"\n'
        '[jobs.nightly.snapshot]\nsize = "5GiB"\nchunk_size = "4KiB"\npvs = ["/dev/sdd"]\nstripes = 2\n'
        'pvs_gone = "refuse"\n'
        '[jobs.nightly.limits]\nmax_penalty = 8\nmax_replica_lag = "5m"\n'
        '[jobs.nightly.copy]\nmax_rate = "50MiB"\nmust_finish_by = "06:00"\n'
        '[hosts.far]\naddress = "db.example"\nport = 3307\nuser = "u"\npassword_env = "DB_PASSWORD"\n'
    )
    configuration = load(write(text))
    job = configuration.jobs["nightly"]
    assert (job.every_seconds, job.canary, job.lock.strategy) == (43200, True, LockStrategy.BACKUP_STAGE)
    assert (job.lock.wait_timeout_seconds, job.lock.pause_seconds) == (5, 0.5)
    assert job.snapshot == SnapshotConfig(
        size=SnapshotSize(bytes=5 << 30), chunk_size=4096, pvs=("/dev/sdd",), pvs_gone=PvsGone.REFUSE, stripes=2
    )
    assert (job.limits.max_penalty, job.limits.max_replica_lag_seconds) == (8, 300)
    assert (job.copy.max_rate, job.copy.must_finish_by) == (50 << 20, Deadline(clock=time(6)))
    far = configuration.hosts["far"]
    assert (far.name, far.address, far.port, far.password_env) == ("far", "db.example", 3307, "DB_PASSWORD")
    assert configuration.targets["vault"].type is TargetKind.DIRECTORY
    assert configuration.targets["vault"].path == Path("/srv/backups")


def test_a_pv_can_be_named_by_its_uuid_and_one_by_its_path_beside_it(write: Write) -> None:
    text = MINIMAL + f'[jobs.nightly.snapshot]\npvs = ["{PV}", "/dev/sdd"]\n'
    assert load(write(text)).jobs["nightly"].snapshot.pvs == (PV, "/dev/sdd")


def test_a_local_time_of_toml_is_a_clock_time_too(write: Write) -> None:
    path = write(MINIMAL + "[jobs.nightly.copy]\nmust_finish_by = 06:30:00\n")
    assert load(path).jobs["nightly"].copy.must_finish_by == Deadline(clock=time(6, 30))


@pytest.mark.parametrize(
    ("text", "deadline"),
    [
        ("06:00", Deadline(clock=time(6))),
        ("06:00:30", Deadline(clock=time(6, 0, 30))),
        ("Sun 06:00", Deadline(clock=time(6), day=6)),
        ("30h", Deadline(within_seconds=108000)),
    ],
)
def test_a_copys_deadline_may_be_days_ahead(write: Write, text: str, deadline: Deadline) -> None:
    configuration = load(write(MINIMAL + f'[jobs.nightly.copy]\nmust_finish_by = "{text}"\n'))
    assert configuration.jobs["nightly"].copy.must_finish_by == deadline
    assert load(write(as_toml(configuration))) == configuration
    assert f'must_finish_by = "{text}"' in as_toml(configuration)


def test_a_configuration_cannot_be_changed(write: Write) -> None:
    configuration = load(write(MINIMAL))
    with pytest.raises(dataclasses.FrozenInstanceError):
        configuration.jobs["nightly"].lock.tries = 3  # type: ignore[misc]
    with pytest.raises(TypeError):
        configuration.jobs["other"] = configuration.jobs["nightly"]  # type: ignore[index]


def test_tables_can_be_made_in_python_by_their_attributes_names() -> None:
    job = JobConfig(name="a", host="h", targets=("t",), every_seconds=3600.0)
    assert job.every_seconds == 3600


# --- which file -------------------------------------------------------------------------------------------------------


def test_the_option_goes_before_the_variable_and_the_variable_before_the_default() -> None:
    environment = {"BACKUPD_CONFIG": "/from/variable"}
    assert locate(Path("/from/option"), environment) == Path("/from/option")
    assert locate(None, environment) == Path("/from/variable")
    assert locate(None, {}) == locate(None, {"BACKUPD_CONFIG": ""}) == Path("/etc/backupd/backupd.toml")


def test_a_missing_file_is_named_with_the_command_that_writes_one(tmp_path: Path) -> None:
    error = refusal(tmp_path / "none.toml")
    assert error.message == f"no configuration at {tmp_path / 'none.toml'}"
    assert "backupd config init" in error.hint


def test_a_folder_in_place_of_the_file_is_a_sentence(tmp_path: Path) -> None:
    assert refusal(tmp_path).message == f"cannot read {tmp_path}: is a directory"


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("[hosts.db1]\nsocket = /run/mysqld.sock\n", 2, 10),
        ("[jobs.a\n", 1, 8),
        ('[a]\nb = "unterminated\n', 2, 18),
        ("[a]\nb = [1,", 2, 8),
    ],
)
def test_broken_toml_is_told_with_line_and_column(write: Write, text: str, line: int, column: int) -> None:
    error = refusal(write(text))
    assert "is not TOML" in error.message
    assert f"line {line}, column {column}" in error.message
    assert error.hint


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("9" * 5000, "has a number of more than 4300 digits"),
        ("[" * 3000 + "]" * 3000, "has lists or tables nested too deeply"),
        ("0x" + "f" * 5000, "jobs.nightly.every: a number of more than 60 digits is"),
    ],
    ids=["decimal", "nested", "hexadecimal"],
)
def test_what_python_cannot_read_is_a_fault_as_any_other(write: Write, value: str, words: str) -> None:
    error = refusal(write(f"{MINIMAL}every = {value}\n"))
    assert words in error.message
    assert error.hint


def test_text_that_is_not_utf8_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "backupd.toml"
    path.write_bytes(b"# fine\n# caf\xe9\n")
    assert refusal(path).message == f"{path} is not UTF-8 text (at line 2)"


# --- faults -----------------------------------------------------------------------------------------------------------


def test_an_unknown_key_is_refused_with_the_nearest_known_one(write: Write) -> None:
    path = write(MINIMAL + '[jobs.nightly.snapshot]\nchunksize = "64KiB"\n')
    error = refusal(path)
    assert error.message == f"{path}: jobs.nightly.snapshot.chunksize: unknown key"
    assert error.hint == "did you mean chunk_size?"


def test_a_key_in_the_wrong_table_is_refused_with_the_right_place(write: Write) -> None:
    assert refusal(write(MINIMAL + 'chunk_size = "64KiB"\n')).hint == "did you mean jobs.nightly.snapshot.chunk_size?"


@pytest.mark.parametrize("key", ["every_seconds = 3", 'name = "other"', "__class__ = 1"])
def test_an_attribute_of_ours_is_no_key_of_the_file(write: Write, key: str) -> None:
    path = write(MINIMAL + key + "\n")
    assert refusal(path).message == f"{path}: jobs.nightly.{key.split(' ')[0]}: unknown key"


def test_an_unknown_table_is_refused(write: Write) -> None:
    error = refusal(write(MINIMAL + "[host.db2]\n"))
    assert "host: unknown key" in error.message
    assert error.hint == "did you mean hosts?"


def test_all_faults_are_reported_at_once_each_with_its_path_and_hint(write: Write) -> None:
    error = refusal(
        write(
            '[hosts.db1]\nsocket = "mysqld.sock"\nusr = "backupd"\n'
            '[targets.vault]\ntype = "ftp"\npath = "/srv/backups"\n'
            '[jobs.nightly]\nhost = "db2"\ntargets = ["vualt"]\n'
            '[jobs.nightly.snapshot]\nchunk_size = "3KiB"\n'
            '[jobs.nightly.copy]\nlevel = 20\nthreads = "two"\n'
            '[jobs."Weekly!"]\ntargets = []\n'
            '[jobs.owner]\nhost = "db1"\ntargets = ["vault"]\n'
        )
    )
    lines = [line.strip() for line in error.message.splitlines()]
    assert lines[0].endswith("14 faults")
    for told in (
        'hosts.db1.socket: "mysqld.sock" is not an absolute path',
        "hosts.db1.usr: unknown key",
        "hosts.db1.user: is missing",
        'targets.vault.type: "ftp" is not one of directory, sftp, s3, azure, gcs',
        'jobs.nightly.host: there is no host "db2"',
        'jobs.nightly.targets[0]: there is no target "vualt"',
        "hint: did you mean vault?",
        "jobs.nightly.snapshot.chunk_size: 3 KiB is not a power of two from 4 KiB to 512 KiB",
        "hint: the nearest is 4KiB",
        "jobs.nightly.copy.level: 20 is not at most 19",
        'jobs.nightly.copy.threads: "two" is not a whole number',
        "jobs.owner: cannot be a job's name",
        "hint: every target uses a folder of that name for owner records",
        'jobs."Weekly!".host: is missing',
        'jobs."Weekly!".targets: lists no target',
        'jobs."Weekly!": use 1 to 41 of a-z, 0-9, _ and -, beginning with a letter or a digit',
    ):
        assert told in lines, error.message


def test_what_is_left_to_backupd_may_be_written_out(write: Write) -> None:
    settle = load(write(MINIMAL + '[jobs.nightly.settle]\nprobe = "auto"\n')).jobs["nightly"].settle
    assert settle == load(write(MINIMAL)).jobs["nightly"].settle
    assert settle.probe is AUTO


@pytest.mark.parametrize(
    ("table", "setting", "fact"),
    [
        ("", "every = 0", "every: must be longer than zero"),
        ("", 'canary = "on"', 'canary: "on" is not true or false'),
        ("", "canary = 1", "canary: 1 is not true or false"),
        ("settle", "probe = 1", 'settle.probe: 1 is not true, false or "auto"'),
        ("settle", 'probe = "maybe"', 'settle.probe: "maybe" is not true, false or "auto"'),
        ("lock", 'strategy = "flush"', 'lock.strategy: "flush" is none of auto, ftwrl, backup-stage or none'),
        ("lock", 'wait_timeout = "500ms"', "lock.wait_timeout: 500ms is not a whole number of seconds from 1s up"),
        ("lock", 'wait_timeout = "1.5s"', "lock.wait_timeout: 1500ms is not a whole number of seconds from 1s up"),
        ("lock", 'wait_timeout = "2GiB"', 'lock.wait_timeout: "2GiB" has no known unit of time'),
        ("lock", "tries = 0", "lock.tries: 0 is not at least 1"),
        ("lock", "tries = 2.5", "lock.tries: 2.5 is not a whole number"),
        ("lock", "tries = true", "lock.tries: true is not a whole number"),
        ("lock", 'hold_budget = "0s"', "lock.hold_budget: must be longer than zero"),
        ("lock", "preflush = 60", "lock.preflush: 60 is not true or false"),
        ("lock", 'preflush_wait = "0s"', "lock.preflush_wait: must be longer than zero"),
        ("lock", 'preflush_wait = "10%"', 'lock.preflush_wait: "10%" is not a duration'),
        ("snapshot", 'size = "0%"', 'snapshot.size: "0%" is not above 0% and up to 100%'),
        ("snapshot", 'size = "120%"', 'snapshot.size: "120%" is not above 0% and up to 100%'),
        ("snapshot", 'size = "20"', 'snapshot.size: "20" has no known unit of size'),
        ("snapshot", "size = 0", "snapshot.size: has no size"),
        ("snapshot", 'chunk_size = "1MiB"', "snapshot.chunk_size: 1 MiB is not a power of two from 4 KiB to 512 KiB"),
        ("snapshot", 'chunk_size = "64K"', 'snapshot.chunk_size: "64K" is ambiguous'),
        ("snapshot", 'pvs = ["sdd"]', f'snapshot.pvs[0]: "sdd" is {NO_PV}'),
        ("snapshot", f'pvs = ["{PV[:-1]}"]', f'snapshot.pvs[0]: "{PV[:-1]}" is {NO_PV}'),
        ("snapshot", f'pvs = ["{PV}\\n"]', f'snapshot.pvs[0]: "{PV}\\n" is {NO_PV}'),
        ("snapshot", 'pvs = ["/dev/../etc/passwd"]', f'snapshot.pvs[0]: "/dev/../etc/passwd" is {NO_PV}'),
        ("snapshot", f'pvs = ["uuid:{PV}"]', f'snapshot.pvs[0]: "uuid:{PV}" is {NO_PV}'),
        ("snapshot", 'pvs_gone = "fail"', 'snapshot.pvs_gone: "fail" is none of anywhere or refuse'),
        ("snapshot", 'pvs = "/dev/sdd"', 'snapshot.pvs: "/dev/sdd" is not a list'),
        ("snapshot", "stripes = 0", "snapshot.stripes: 0 is not a number of stripes"),
        ("snapshot", "stripes = 129", "snapshot.stripes: 129 is not a number of stripes"),
        ("snapshot", "stripes = true", "snapshot.stripes: true is not a number of stripes"),
        ("snapshot", 'stripes = "2"', 'snapshot.stripes: "2" is not a number of stripes'),
        ("settle", "duty = 0.6", "settle.duty: 0.6 is not at most 0.5"),
        ("settle", "duty = 0", "settle.duty: 0 is not above 0"),
        ("settle", "threshold = nan", "settle.threshold: nan is not a finite number"),
        ("settle", 'file_size = "4KiB"', "settle.file_size: 4 KiB is less than 1 MiB"),
        ("settle", "window = 0", "settle.window: 0s is not a whole number of seconds from 1s up"),
        ("limits", "max_penalty = 1.0", "limits.max_penalty: 1.0 is not above 1"),
        ("limits", "max_cow_fill = 1.1", "limits.max_cow_fill: 1.1 is not at most 1"),
        ("copy", 'must_finish_by = "25:00"', f'copy.must_finish_by: "25:00" {NO_TIME}'),
        ("copy", 'must_finish_by = "6:00"', f'copy.must_finish_by: "6:00" {NO_TIME}'),
        ("copy", 'must_finish_by = "Sunday 06:00"', f'copy.must_finish_by: "Sunday 06:00" {NO_TIME}'),
        ("copy", "must_finish_by = 30", f"copy.must_finish_by: 30 {NO_TIME}"),
        ("copy", 'must_finish_by = "0h"', f'copy.must_finish_by: "0h" {NO_TIME}'),
        ("copy", 'must_finish_by = "Sun"', f'copy.must_finish_by: "Sun" {NO_TIME}'),
        ("copy", 'spool = "spool"', 'copy.spool: "spool" is not an absolute path'),
        ("copy", f'spool = "/{"x" * 256}"', f"copy.spool: {quoted('/' + 'x' * 256)} has a name of more than 255 bytes"),
        ("copy", 'spool = "/spool"\nspool_size = 0', "copy.spool_size: 0 B is less than 64 MiB"),
        ("copy", 'spool_size = "1GiB"', "copy.spool_size: there is no spool"),
        ("copy", 'max_rate = "fast"', 'copy.max_rate: "fast" is not a size'),
        ("binlog", 'segment_size = "1KiB"', "binlog.segment_size: 1 KiB is less than 64 KiB"),
        ("binlog", 'segment_size = "2GiB"\nspool_limit = "4GiB"', "binlog.segment_size: 2 GiB is more than 1 GiB"),
        ("binlog", 'segment_age = "500ms"', "binlog.segment_age: 500ms is less than 1s"),
        ("binlog", 'spool = "spool"', 'binlog.spool: "spool" is not an absolute path'),
        ("binlog", 'segment_size = "1MiB"\nspool_limit = "3MiB"', "binlog.spool_limit: 3 MiB is less than 64 MiB"),
        (
            "binlog",
            'segment_size = "512MiB"\nspool_limit = "1000MiB"',
            "binlog.spool_limit: is 1000MiB, but a segment can have 512MiB",
        ),
        ("binlog", "server_id = 0", "binlog.server_id: 0 is not the id of a server"),
        ("binlog", "server_id = 4294967296", "binlog.server_id: 4294967296 is not the id of a server"),
        ("binlog", 'client = "mariadb-binlog"', 'binlog.client: "mariadb-binlog" is not an absolute path'),
        ("binlog", 'segment_sise = "1MiB"', "binlog.segment_sise: unknown key"),
        ("retention", "keep_last = 0", "retention.keep_last: 0 is not at least 1"),
        ("retention", "daily = -1", "retention.daily: -1 is not at least 0"),
    ],
)
def test_a_value_that_cannot_be_is_refused_in_words(write: Write, table: str, setting: str, fact: str) -> None:
    header = f"[jobs.nightly.{table}]\n" if table else ""
    path = write(MINIMAL + header + setting + "\n")
    error = refusal(path)
    assert error.message == f"{path}: jobs.nightly.{fact}"
    assert error.hint


def test_the_binlog_is_archived_where_a_job_has_its_table_and_nowhere_else(write: Write) -> None:
    assert load(write(MINIMAL)).jobs["nightly"].binlog is None
    configuration = load(write(MINIMAL + "[jobs.nightly.binlog]\n"))
    archive = configuration.jobs["nightly"].binlog
    assert archive == BinlogConfig()
    assert (archive.segment_size, archive.segment_age_seconds, archive.spool_limit) == (16 << 20, 5, 1 << 30)
    assert load(write(as_toml(configuration))) == configuration


@pytest.mark.parametrize(
    ("host", "fact"),
    [
        ('user = "u"', "hosts.db1: does not say where the server is"),
        ('user = "u"\nsocket = "/s"\naddress = "h"', "hosts.db1: has both a socket and an address"),
        ('socket = "/s"', "hosts.db1.user: is missing"),
        ('user = ""\nsocket = "/s"', 'hosts.db1.user: "" is an empty text'),
        ('user = "u"\naddress = "h"\nport = 0', "hosts.db1.port: 0 is not at least 1"),
        (
            'user = "u"\nsocket = "/s"\npassword_file = "/p"\npassword_env = "P"',
            "hosts.db1: has 2 sources for one password: password_file, password_env",
        ),
    ],
)
def test_a_host_says_once_where_and_who(write: Write, host: str, fact: str) -> None:
    path = write(f"[hosts.db1]\n{host}\n" + TARGET + JOB)
    error = refusal(path)
    assert error.message == f"{path}: {fact}"
    assert error.hint


def test_an_option_file_may_say_where_and_who_instead(write: Write) -> None:
    host = load(write('[hosts.db1]\ndefaults_file = "/root/.my.cnf"\n' + TARGET + JOB)).hosts["db1"]
    assert host == HostConfig(name="db1", defaults_file=Path("/root/.my.cnf"))


@pytest.mark.parametrize("text", ["", HOST + TARGET, HOST + TARGET + "[jobs]\n"])
def test_a_file_without_a_job_is_refused(write: Write, text: str) -> None:
    error = refusal(write(text))
    assert "jobs: no job is configured" in error.message
    assert "[jobs.NAME]" in error.hint


@pytest.mark.parametrize(("targets", "fact"), [("[]", "lists no target"), ('["vault", "vault"]', "a target twice")])
def test_a_job_needs_targets_each_of_them_once(write: Write, targets: str, fact: str) -> None:
    error = refusal(write(HOST + TARGET + f'[jobs.nightly]\nhost = "db1"\ntargets = {targets}\n'))
    assert fact in error.message


@pytest.mark.parametrize("name", ["Nightly", "-a", '"a b"', '""', '"../x"', "a" * 42, '"é"', '"a\\n"'])
def test_a_name_that_could_not_be_part_of_a_path_and_a_tag_is_refused(write: Write, name: str) -> None:
    error = refusal(write(HOST + TARGET + f'[jobs.{name}]\nhost = "db1"\ntargets = ["vault"]\n'))
    assert "use 1 to 41 of a-z, 0-9, _ and -, beginning with a letter or a digit" in error.message


def test_a_name_may_have_forty_one_characters(write: Write) -> None:
    name = "a" + "-_9z" * 10
    assert name in load(write(HOST + TARGET + f'[jobs.{name}]\nhost = "db1"\ntargets = ["vault"]\n')).jobs


@pytest.mark.parametrize(
    "text", ["hosts = 3\n", "[[hosts]]\n", "jobs = []\n", "hosts.db1 = 3\n", "jobs.nightly.lock = 1"]
)
def test_a_value_where_a_table_belongs_is_refused_in_words(write: Write, text: str) -> None:
    error = refusal(write(text))
    assert "is not a table" in error.message
    assert "it begins with a line [" in f"{error.message} {error.hint}"


# --- nothing secret is ever told --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "setting",
    [
        'password = "hunter2"',
        'passwd = "hunter2"',
        'password_file = "hunter2"',
        'password_env = "hunter2!"',
        'password_credential = "/hunter2"',
        'defaults_file = "hunter2"',
        'password_file = ["hunter2"]',
        'paswd = { x = "hunter2" }',
    ],
)
def test_a_password_in_the_file_is_refused_without_being_told(write: Write, setting: str) -> None:
    error = refusal(write(HOST + setting + "\n" + TARGET + JOB))
    assert error.hint
    shown: BaseException | None = error
    while shown is not None:
        assert "hunter2" not in f"{shown} {shown!r} {getattr(shown, 'hint', '')}"
        shown = shown.__cause__ or shown.__context__


def test_a_password_key_is_answered_with_the_four_right_ways(write: Write) -> None:
    hint = refusal(write(HOST + 'password = "x"\n' + TARGET + JOB)).hint
    for key in ("password_file", "password_env", "password_credential", "defaults_file"):
        assert key in hint


KEYS = st.sampled_from(
    [*keys_of(Configuration), *keys_of(HostConfig), *keys_of(JobConfig), *keys_of(SnapshotConfig), "name"]
)
VALUES = st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["5GiB", "10s", "/a", "%"])
TABLES = st.recursive(
    VALUES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(KEYS | st.text(max_size=3), inner, max_size=4)
)


@given(st.dictionaries(KEYS, TABLES, max_size=5))
def test_whatever_is_in_the_file_each_fault_is_one_line_with_one_hint(document: dict[str, object]) -> None:
    with pytest.raises(ConfigurationError) as refused:
        checked(document | {"hosts": {"db1": {}}}, Path("/x.toml"))
    first, *lines = refused.value.message.split("\n")
    assert first == f"/x.toml: {len(lines) // 2} faults"
    assert all(": " in line and not line.startswith("    ") for line in lines[::2])
    assert all(line.startswith("    hint: ") for line in lines[1::2])


@pytest.mark.parametrize(
    "text",
    [
        MINIMAL.replace('user = "backupd"\n', 'user = "backupd"\npassword_file = "/etc/a\\nb = 3"\n'),
        f'{MINIMAL}snapshot.size = "0.00000000001%"\n',
        f'{MINIMAL}snapshot.size = "33.333333333333333%"\n',
    ],
    ids=["line feed", "least share", "long share"],
)
def test_what_is_shown_is_read_back_as_the_same(write: Write, text: str) -> None:
    given = load(write(text))
    assert load(write(as_toml(given))) == given


def test_an_empty_configuration_is_a_value() -> None:
    assert dict(Configuration().jobs) == {}
