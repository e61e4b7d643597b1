"""When phases began, from durations alone."""

from backupd.report.timeline import PhaseSpan, spans
from backupd.vocabulary.records import Phase


def test_phases_follow_one_another_and_release_comes_before_verification() -> None:
    found = spans({Phase.VERIFY: 4.0, Phase.RELEASE: 1.0, Phase.COPY: 10.0, Phase.PREFLIGHT: 2.0})
    assert found == (
        PhaseSpan(Phase.PREFLIGHT, 0.0, 2.0),
        PhaseSpan(Phase.COPY, 2.0, 10.0),
        PhaseSpan(Phase.RELEASE, 12.0, 1.0),
        PhaseSpan(Phase.VERIFY, 13.0, 4.0),
    )


def test_the_snapshot_lies_inside_the_lock_and_takes_no_time_of_its_own() -> None:
    found = spans({Phase.LOCK_WAIT: 1.0, Phase.LOCK_HOLD: 0.5, Phase.SNAPSHOT: 0.4, Phase.SETTLE: 9.0})
    assert [(span.phase, span.begin) for span in found] == [
        (Phase.LOCK_WAIT, 0.0),
        (Phase.LOCK_HOLD, 1.0),
        (Phase.SNAPSHOT, 1.0),
        (Phase.SETTLE, 1.5),
    ]
    assert found[-1].end == 10.5


def test_the_phase_that_goes_on_has_its_seconds_so_far() -> None:
    found = spans({Phase.PREFLIGHT: 2.0}, now=(Phase.COPY, 30.0))
    assert found[-1] == PhaseSpan(Phase.COPY, 2.0, 30.0, whole=False)


def test_a_run_that_came_to_nothing_has_no_spans() -> None:
    assert spans({}) == ()
