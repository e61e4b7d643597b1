"""MySQL's histograms, dropped; how the server answers was seen on 9.7."""

import re
from dataclasses import dataclass
from typing import Any

from backupd.mysql.histograms import drop_histograms


@dataclass
class Mysql:
    """A session of a server with histograms of these columns."""

    columns: list[tuple[str, str, str]]
    refuses: bool = False

    def query(self, statement: str, *_values: object) -> list[dict[str, str]]:
        if statement.startswith("SELECT"):
            return [dict(zip(("its_schema", "its_table", "name"), column, strict=True)) for column in self.columns]
        found = re.fullmatch(r"ANALYZE NO_WRITE_TO_BINLOG TABLE `(.+)`\.`(.+)` DROP HISTOGRAM ON `(.+)`", statement)
        assert found is not None
        if not self.refuses:
            self.columns.remove((found[1], found[2], found[3].replace("``", "`")))
        return [{"Msg_type": "Error" if self.refuses else "status", "Msg_text": "told as a row"}]


def test_every_one_is_dropped() -> None:
    server: Any = Mysql([("shop", "people", "email"), ("shop", "people", "odd`name"), ("crm", "notes", "text")])
    assert drop_histograms(server) == 0
    assert server.columns == []


def test_one_that_is_left_is_told() -> None:
    server: Any = Mysql([("shop", "people", "email")], refuses=True)
    assert drop_histograms(server) == 1
