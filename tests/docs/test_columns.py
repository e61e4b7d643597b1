"""What the pages print of the history has the columns that the command prints."""

import re

from backupd.report.history_columns import history_table
from tests.docs.places import ROOT, documents


def heads(line: str) -> list[str]:
    return re.split(r" {2,}", line.strip())


def test_every_history_that_a_page_prints_has_the_columns_of_the_command() -> None:
    printed = [
        (path.relative_to(ROOT), line)
        for path in documents()
        for line in path.read_text().splitlines()
        if re.match(r"RUN +JOB +STATUS ", line)
    ]
    assert len(printed) >= 2
    assert [(path, line) for path, line in printed if heads(line) != heads(history_table([], own=""))] == []
