"""What the lab's servers differ in: whose packages they are, what their programs are called, which options they take.

Knows: one value for each kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from backupd.lab.options import ServerKind
from backupd.vocabulary.servers import Flavour


@dataclass(frozen=True, slots=True)
class Distribution:
    """Whose packages a server comes from when they are not the machine's own."""

    suite: str
    packages: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Software:
    """One kind of server."""

    flavour: Flavour
    program: str  # its name; it is in /usr/sbin
    install: str  # the program that makes an empty datadir
    install_options: tuple[str, ...]
    options: tuple[str, ...]  # lines of its option file that the other kinds do not know
    log_tables: Mapping[str, str]  # name and engine: rows that no transaction protects
    origin: Distribution | None = None
    programs: tuple[str, ...] = ()  # of that distribution, by path: what a person in the machine finds first


# `loose_`: only MariaDB from 10.11.12 on knows that variable; its default maps 8 TiB, more than a user-mode kernel's
# address space has. `wsrep_…`: else it spends two seconds on guessing its network address.
_MARIADB_OPTIONS = (
    "loose_innodb_buffer_pool_size_max = 512M",
    "loose_wsrep_node_address = 127.0.0.1",
    "loose_wsrep_node_incoming_address = 127.0.0.1",
)
_MYISAM = {"myisam_log": "MyISAM"}
_WITH_ARIA = MappingProxyType({**_MYISAM, "aria_log": "Aria TRANSACTIONAL=0"})

# `secure_file_priv`: its default names a folder that only the package's scripts make, and without it MySQL 9.7 does
# not start.
_MYSQL_OPTIONS = (
    "mysqlx = OFF",
    "secure_file_priv = NULL",
    "gtid_mode = ON",
    "enforce_gtid_consistency = ON",
)

# mariadb-install-db is a shell script: it needs a shell and the programs that it calls.
_SCRIPT_NEEDS = ("dash", "coreutils", "sed", "hostname")

_MARIADB = Software(
    flavour=Flavour.MARIADB,
    program="mariadbd",
    install="mariadb-install-db",
    install_options=("--user=root", "--skip-test-db", "--auth-root-authentication-method=socket"),
    options=_MARIADB_OPTIONS,
    log_tables=_WITH_ARIA,
)

SOFTWARE: Mapping[ServerKind, Software] = MappingProxyType(
    {
        ServerKind.MARIADB_10: _MARIADB,
        ServerKind.MARIADB_11: replace(
            _MARIADB,
            origin=Distribution("trixie", ("mariadb-server-core", "mariadb-client-core", *_SCRIPT_NEEDS)),
            programs=("/usr/sbin/mariadbd", "/usr/sbin/mysqld", "/usr/bin/mariadb-install-db"),
        ),
        ServerKind.MYSQL_9: Software(
            flavour=Flavour.MYSQL,
            program="mysqld",
            install="mysqld",
            install_options=("--initialize-insecure",),
            options=_MYSQL_OPTIONS,
            log_tables=MappingProxyType(_MYISAM),
            origin=Distribution("sid", ("mysql-server-core",)),
            programs=("/usr/sbin/mysqld", "/usr/bin/mysqlbinlog"),
        ),
    }
)
