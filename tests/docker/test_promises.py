"""What tests/contract promises of the machine's own MariaDB, Debian 12's 10.11, holds on MariaDB 11 too."""

import inspect
from types import ModuleType

import pytest

from tests.contract import test_account, test_locks

# indirect, so that these tests share the session's servers with the others instead of asking for more of them
pytestmark = pytest.mark.parametrize("kind", ["mariadb-11"], indirect=True, scope="session")

SERVERS = {"mysql_server", "account"}  # the fixtures by which a test has a server
OF_ANOTHER_SERVER = {
    "test_the_facts_are_what_the_server_runs_with",  # the options of tests/contract's own
    # 11.8.6: SUPER has lost BINLOG MONITOR and REPLICA MONITOR too, so that more is missing
    "test_super_is_not_enough_to_lock",
    # 11.8.6: BACKUP STAGE is granted while an ALTER of ALGORITHM = COPY waits for a reader; FTWRL waits behind it
    "test_it_is_not_granted_while_an_alter_waits_for_its_table",
}


def promised(module: ModuleType) -> dict[str, object]:
    """The tests of a module that ask a server, and the fixtures, but for that server."""
    fixtures = {name: thing for name, thing in vars(module).items() if isinstance(thing, type(module.mysql_server))}
    tests = {name: thing for name, thing in vars(module).items() if name.startswith("test_")}
    asking = {name: test for name, test in tests.items() if SERVERS & set(inspect.signature(test).parameters)}
    asking = {name: test for name, test in asking.items() if name not in OF_ANOTHER_SERVER}
    return asking | {name: thing for name, thing in fixtures.items() if name != "mysql_server"}


globals().update(promised(test_account) | promised(test_locks))
