"""Drawn moments are restored by the command that a person types, and servers that are started there are compared."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

from backupd.policy import gtid
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
    told = re.findall(r"^position: \S+, GTID (\S+), ", said, re.MULTILINE)
    assert [gtid.same(each, expected[0]) for each in told] == [True], (moment, said)
    same = found[1] == expected[1] and gtid.same(found[0], expected[0])
    return "" if same else f"{moment.name} {moment.options}: {found}, not {expected}"


def _gtid(history: History, moment: Drawn) -> str:
    """As the server tells what it has executed: its own transactions from the first on, and what it had of others."""
    last = history.record.log[moment.count - 1].gtid
    separator = "-" if history.ground.flavour is Flavour.MARIADB else ":"
    own, _, number = last.partition(separator)
    others = [each for each in history.before.split(",") if each and each.partition(separator)[0] != own]
    return ",".join([*others, last if history.ground.flavour is Flavour.MARIADB else f"{own}:1-{number}"])
