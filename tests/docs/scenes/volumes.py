"""A volume that was extended twice, as LVM reported it once; see `tests/fakes/surveyed.py`."""

import os

from backupd import wiring
from tests.docs.stage import Stage, host
from tests.fakes.surveyed import DATADIR, SurveyedHost


def play(stage: Stage) -> None:
    with host(stage) as db1:
        recorded = SurveyedHost("mixed", {"db1": DATADIR})
        db1.patch.setattr(wiring, "survey_sources", lambda _configuration, _catalogue: recorded.sources)
        db1.patch.setattr(os, "geteuid", lambda: 0)
        db1.types("volumes")
