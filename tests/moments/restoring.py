"""Drawn moments are restored by the command that a person types, and servers that are started there are compared."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from backupd.vocabulary.servers import Flavour
from tests.moments.drawn import Drawn
from tests.moments.history import History
from tests.moments.tables import sums_on

_STANDS_AT = {Flavour.MARIADB: "SELECT @@global.gtid_slave_pos", Flavour.MYSQL: "SELECT @@global.gtid_executed"}


def differences(history: History, moments: Sequence[Drawn], folder: Path) -> list[str]:
    """In what servers on these moments are not as the witness has it."""
    found = (difference(history, moment, folder / f"to-{number}") for number, moment in enumerate(moments))
    return [told for told in found if told]


def difference(history: History, moment: Drawn, to: Path) -> str:
    """In what a server on this moment is not as the witness has it; empty: in nothing. The folder is gone then."""
    said = history.site.run("restore", "--to", str(to), *moment.options).stdout
    with history.ground.started_on(to) as server, server.session() as root:
        found = (root.value(_STANDS_AT[history.ground.flavour]), dict(sums_on(root)))
    shutil.rmtree(to)
    expected = (_gtid(history, moment), dict(history.record.contents[moment.count]))
    assert f"GTID {expected[0]}, " in said, (moment, said)
    return "" if found == expected else f"{moment.name} {moment.options}: {found}, not {expected}"


def _gtid(history: History, moment: Drawn) -> str:
    """As the server tells what it has executed: its own transactions from the first on, for nobody else wrote."""
    last = history.record.log[moment.count - 1].gtid
    if history.ground.flavour is Flavour.MARIADB:
        return last
    uuid, _, number = last.partition(":")
    return f"{uuid}:1-{number}"
