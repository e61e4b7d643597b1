"""How a live run's progress is told through a file, and what becomes of the file."""

import logging
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from backupd.cli.run_progress import LiveFile, telling_everybody
from backupd.host.live_progress import LiveRuns, Progress
from backupd.vocabulary.records import Phase


@dataclass
class Clock:
    """Seconds that pass when a test says so."""

    seconds: float = 100.0

    def __call__(self) -> float:
        return self.seconds


@dataclass
class Told:
    """A run's file under two clocks that go together."""

    folder: Path
    clock: Clock = field(default_factory=Clock)

    def __post_init__(self) -> None:
        self.live = LiveRuns(self.folder)
        self.file = LiveFile(self.live, "r1", wall=self.clock, clock=self.clock)

    def now(self) -> Progress | None:
        return self.live.of("r1")


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", '{"phase": "tea"}', '{"phase": "copy", "since": 1, "at": 2, "colour": 3}', "\x00"]
)
def test_what_cannot_be_understood_is_no_progress(tmp_path: Path, text: str) -> None:
    live = LiveRuns(tmp_path)
    live.tell("r1", Progress(Phase.COPY, 1.0, 2.0))
    (path,) = (tmp_path / "live").iterdir()
    path.write_text(text)
    assert live.of("r1") is None


def test_each_phase_is_told_at_once_with_its_beginning(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.file.phase(Phase.PREFLIGHT)
    told.clock.seconds += 0.1
    told.file.phase(Phase.BASELINE)
    assert told.now() == Progress(Phase.BASELINE, since=100.1, at=100.1)


def test_a_copy_is_told_once_a_second(tmp_path: Path) -> None:
    told = Told(tmp_path)
    told.file.phase(Phase.COPY)
    seen = []
    for step in range(1, 26):
        told.clock.seconds = 100 + step / 10
        told.file.copied(step, 100)
        progress = told.now()
        assert progress is not None
        seen.append(progress.done)
    assert sorted(set(seen)) == [0, 10, 20]
    assert told.now() == Progress(Phase.COPY, since=100.0, at=102.0, done=20, total=100)


def test_nothing_is_left_when_the_run_has_ended_whatever_ended_it(tmp_path: Path) -> None:
    live = LiveRuns(tmp_path)
    with pytest.raises(KeyboardInterrupt), telling_everybody(live, "r1") as telling:
        telling.phase(Phase.COPY)
        assert live.told() == ("r1",)
        raise KeyboardInterrupt
    assert live.told() == ()
    assert list((tmp_path / "live").iterdir()) == []


def test_a_run_that_never_began_takes_nothing_of_its_namesake_s_away(tmp_path: Path) -> None:
    live = LiveRuns(tmp_path)
    live.tell("r1", Progress(Phase.COPY, 1.0, 2.0))
    with telling_everybody(live, "r1"):
        pass
    assert live.told() == ("r1",)


def test_forgetting_one_run_leaves_another_whose_id_begins_alike(tmp_path: Path) -> None:
    live = LiveRuns(tmp_path)
    for run_id in ("r1", "r1.2", "r12"):
        live.tell(run_id, Progress(Phase.COPY, 1.0, 2.0))
    (tmp_path / "live" / "r1.4711").write_text("half")
    live.forget("r1")
    assert live.told() == ("r1.2", "r12")
    assert sorted(path.name for path in (tmp_path / "live").iterdir()) == ["r1.2.json", "r12.json"]


def test_a_folder_that_takes_no_file_is_one_warning_and_no_more(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "live").write_text("a file where the folder should be")
    live = LiveRuns(tmp_path)
    with caplog.at_level(logging.WARNING), telling_everybody(live, "r1") as telling:
        for phase in Phase:
            telling.phase(phase)
    (warning,) = caplog.messages
    assert warning.startswith("the progress of this run is no longer reported: ")
