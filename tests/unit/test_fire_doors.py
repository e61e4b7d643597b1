"""The doors of the campaigns: what goes through one is a point, and a fault there is what its door's contract says."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import backupd
from backupd.catalogue.store import Catalogue
from backupd.host import process
from backupd.host.claims import Claims
from backupd.host.filesystem import write_words
from backupd.host.own_files import replace_file
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import Busy, CatalogueError, CommandError, TargetError, UsageError
from backupd.vocabulary.records import Holding, HoldingKind
from tests.fakes.target import MACHINE
from tests.fire.doors import all_doors, spoken
from tests.fire.injecting import Fire
from tests.fire.points import ALWAYS, Fault, How, Passed, Point, When, from_lines, parsed, to_line
from tests.fire.target_doors import put_under_fire
from tests.fire.undoing import Patches

_ROOT = Path(backupd.__file__).parent
# Faces that start other commands of ours, whose effects are under fire in those, and the lab itself.
_STARTS_ITSELF = frozenset({"host/process.py", "service/pages_process.py", "cli/demo.py", "cli/demo_accident.py"})


@contextmanager
def under_fire(log: Path, fault: Fault | None = None) -> Iterator[None]:
    """Every door, recorded in the file."""
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        fire = Fire(fault=fault, log=descriptor, recording=True)
        with all_doors(fire), Patches() as patches:
            put_under_fire(DirectoryTarget, fire, patches)
            yield
    finally:
        os.close(descriptor)


def recorded(log: Path) -> list[Passed]:
    return list(from_lines(log.read_text().splitlines(keepends=True)))


def named(log: Path, begin: str) -> Point:
    """The first point whose name begins so."""
    return next(one.point for one in recorded(log) if one.point.name.startswith(begin))


def store(folder: Path) -> DirectoryTarget:
    folder.mkdir(exist_ok=True)
    return DirectoryTarget("store", folder, machine=MACHINE)


def written(target: DirectoryTarget, run_id: str) -> None:
    with target.writing("nightly", run_id, "data-1.tar.zst") as writer:
        writer.write(b"data")


def test_fault_is_what_its_text_says() -> None:
    fault = Fault(How.DIE, Point("sql SELECT a:b < mysql.locks.held", 3, When.AFTER))
    assert Fault.parse(str(fault)) == fault


def test_death_that_comes_soon_comes_in_the_middle_of_the_effect() -> None:
    fire = Fire(fault=Fault(How.DIE_SOON, Point("process sleep", 1, When.BEFORE)))
    receives, sends = os.pipe()
    child = os.fork()
    if child == 0:
        with fire.passing("process sleep"):
            os.write(sends, b"begun")
            signal.pause()
        os._exit(0)
    os.close(sends)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL
    with os.fdopen(receives, "rb") as told:
        assert told.read() == b"begun"


def test_record_is_read_as_it_was_written_without_a_line_that_was_cut() -> None:
    passed = Passed(Point("claim run < x", 1, When.BEFORE), ALWAYS | {How.HANG}, locked=True)
    lines = [to_line(passed) + "\n", '{"event": "granted", "at": 1.0}\n', '{"name": "cut']
    assert list(from_lines(lines)) == [passed]
    assert [told["event"] for told in parsed(lines) if "event" in told] == ["granted"]


def test_program_is_refused_before_it_ran_and_after(tmp_path: Path) -> None:
    made = tmp_path / "made"
    with under_fire(tmp_path / "log"):
        process.run(["touch", str(made)], timeout_seconds=5)
    made.unlink()
    point = named(tmp_path / "log", "process touch")
    for when, is_there in ((When.BEFORE, False), (When.AFTER, True)):
        fault = Fault(How.REFUSE, Point(point.name, 1, when))
        with under_fire(tmp_path / "log", fault), pytest.raises(CommandError):
            process.run(["touch", str(made)], timeout_seconds=5)
        assert made.exists() is is_there


def test_program_that_hangs_is_given_up_at_its_deadline_and_gone(tmp_path: Path) -> None:
    with under_fire(tmp_path / "log"):
        process.run(["true"], timeout_seconds=5)
    fault = Fault(How.HANG, named(tmp_path / "log", "process true"))
    with under_fire(tmp_path / "log", fault), pytest.raises(CommandError, match="did not end within 1 s"):
        process.run(["true"], timeout_seconds=1)
    events = [
        told for told in parsed(tmp_path.joinpath("log").read_text().splitlines(keepends=True)) if "event" in told
    ]
    assert [event["event"] for event in events] == ["fired", "hung", "killed"]
    assert process.start_time(events[-1]["pid"]) is None


def test_spawned_program_is_killed_while_it_works(tmp_path: Path) -> None:
    with under_fire(tmp_path / "log"), process.spawned(["sleep", "0"]) as child:
        child.wait()
    fault = Fault(How.KILL, named(tmp_path / "log", "spawned sleep"))
    with under_fire(tmp_path / "log", fault), process.spawned(["sleep", "30"]) as child:
        assert child.wait(60) < 0


def test_program_is_named_without_what_starts_it() -> None:
    full = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        "--",
        "ionice",
        "-c",
        "3",
        "nice",
        "-n",
        "19",
        "/bin/tar",
        "--create",
        "-7",
    ]
    assert spoken(full) == "tar --create"
    assert spoken(["env", "LC_ALL=C", "lvremove", "-y", "vg/x"]) == "lvremove -y"


def test_commit_that_fails_is_a_full_disk_and_nothing_was_written(tmp_path: Path) -> None:
    holding, log = Holding(HoldingKind.STAGING, "/x"), tmp_path / "log"
    with Catalogue.open(tmp_path / "catalogue") as catalogue:
        with pytest.raises(CatalogueError, match="no space"), catalogue.open_run("nightly", "db1", run_id="r1") as run:
            with under_fire(log):
                run.hold(holding)
                run.released(holding)
            with under_fire(log, Fault(How.REFUSE, named(log, "commit insert into holdings"))):
                run.hold(holding)
        assert catalogue.holdings("r1") == []


def test_claim_that_is_refused_is_busy(tmp_path: Path) -> None:
    with under_fire(tmp_path / "log"), Claims(tmp_path / "run").run("r1"):
        pass
    fault = Fault(How.REFUSE, named(tmp_path / "log", "claim run"))
    with under_fire(tmp_path / "log", fault), pytest.raises(Busy), Claims(tmp_path / "run").run("r1"):
        pass


def test_every_verb_on_a_file_is_a_point_and_can_find_no_room(tmp_path: Path) -> None:
    with under_fire(tmp_path / "log"):
        replace_file(tmp_path / "file", b"1", mode=0o600)
    names = {one.point.name.partition(" <")[0] for one in recorded(tmp_path / "log")}
    assert {"file create", "file fchmod", "file write", "file unlink", "file replace"} <= names
    fault = Fault(How.REFUSE, named(tmp_path / "log", "file replace"))
    with under_fire(tmp_path / "log", fault), pytest.raises(OSError, match="No space left"):
        replace_file(tmp_path / "file", b"2", mode=0o600)
    assert (tmp_path / "file").read_bytes() == b"1"


def test_file_that_python_opens_has_what_it_would_have_and_each_write_of_it_is_a_point(tmp_path: Path) -> None:
    text, log = "ä\r\nb\n" * 10_000, tmp_path / "log"
    with under_fire(log):
        write_words(tmp_path / "words", text, hint="nothing is lost")
    assert (tmp_path / "words").read_bytes().decode() == text
    names = [one.point.name.partition(" <")[0] for one in recorded(log) if one.point.when is When.BEFORE]
    assert names[0] == "file create"
    assert set(names[1:]) == {"file write"}
    fault = Fault(How.REFUSE, named(log, "file write"))
    with under_fire(log, fault), pytest.raises(UsageError, match="No space left"):
        write_words(tmp_path / "words", text, hint="nothing is lost")


@pytest.mark.parametrize(
    "begin", ["target write data-N", "target write a piece of data-N", "target end data-N", "file fsync"]
)
def test_object_that_is_refused_at_any_of_its_points_is_not_there(tmp_path: Path, begin: str) -> None:
    target = store(tmp_path / "store")
    with under_fire(tmp_path / "log"):
        written(target, "r1")
    with under_fire(tmp_path / "log", Fault(How.REFUSE, named(tmp_path / "log", begin))), pytest.raises(TargetError):
        written(target, "r2")
    assert target.objects("nightly", "r1") == {"data-1.tar.zst": 4}
    assert target.objects("nightly", "r2") == {}


def test_answer_that_is_lost_after_the_end_leaves_the_object(tmp_path: Path) -> None:
    target = store(tmp_path / "store")
    with under_fire(tmp_path / "log"):
        written(target, "r1")
    point = named(tmp_path / "log", "target end data-N")
    fault = Fault(How.REFUSE, Point(point.name, 1, When.AFTER))
    with under_fire(tmp_path / "log", fault), pytest.raises(TargetError):
        written(target, "r2")
    assert target.objects("nightly", "r2") == {"data-1.tar.zst": 4}


def test_doors_are_as_they_were_afterwards(tmp_path: Path) -> None:
    before = [os.open, os.rename, process._run, process._start, DirectoryTarget.publish, Claims._locked]
    inherited = "succeed" in vars(DirectoryTarget)
    with under_fire(tmp_path / "log"):
        assert os.open is not before[0]
    assert [os.open, os.rename, process._run, process._start, DirectoryTarget.publish, Claims._locked] == before
    assert ("succeed" in vars(DirectoryTarget)) is inherited


def test_no_module_starts_programs_past_the_door() -> None:
    """Else there were effects that no campaign knows of."""
    starts = re.compile(r"\b(subprocess\.(run|Popen|check_\w+|call)|os\.(fork|posix_spawn|system|popen)|_Child)\(")
    found = {path.relative_to(_ROOT) for path in _ROOT.rglob("*.py") if starts.search(path.read_text())}
    assert {str(path) for path in found if path.parts[0] != "lab"} == _STARTS_ITSELF
