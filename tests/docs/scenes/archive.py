"""A server whose binlog is archived: orders are spoilt, and put back from a backup; then somebody drops their table.

All of it is real but how the backup came to be there: no volume of LVM's is at hand.
"""

import subprocess
from datetime import UTC, datetime

from backupd.mysql.canary import MysqlCanary
from backupd.mysql.session import Session
from tests.archive_site import Site, another_second
from tests.contract.mariadb import mariadb, wait_until
from tests.docs.stage import Stage

_ORDERS = 48_211
_SCHEMA = (
    "CREATE DATABASE shop",
    "CREATE TABLE shop.customers (id INT PRIMARY KEY, name VARCHAR(40))",
    "INSERT INTO shop.customers SELECT seq, CONCAT('customer ', seq) FROM t.seq_1_to_500",
    "CREATE TABLE shop.orders (id INT PRIMARY KEY, customer INT NOT NULL, total DECIMAL(9, 2), note VARCHAR(200),"
    " CONSTRAINT orders_customer FOREIGN KEY (customer) REFERENCES customers (id))",
    f"INSERT INTO shop.orders SELECT seq, 1 + seq % 500, seq % 977, REPEAT(MD5(seq), 4) FROM t.seq_1_to_{_ORDERS}",
)
_SPOILT = (
    "DELETE FROM shop.orders WHERE id BETWEEN 1000 AND 4119",
    f"INSERT INTO shop.orders SELECT {_ORDERS} + seq, 1 + seq % 500, seq % 977, 'of today' FROM t.seq_1_to_964",
    "UPDATE shop.orders SET note = 'spoilt' WHERE id <= 17",
)
_WHAT_TAKES_ROWS = ("--kind", "drop,truncate,delete")
_INTO_LIVE = ("restore", "latest-good:nightly", "--tables", "shop.orders", "--into", "live", "--as", "restored_1121")


def play(stage: Stage) -> None:
    with mariadb("--binlog-format=ROW") as server:
        site = Site(stage.folder, server, keys='segment_age = "1s"')
        stage.call(stage.folder, "/srv")
        text = site.configuration.read_text().replace('host = "db1"\n', 'host = "db1"\ncanary = true\n')
        live = f'[hosts.live]\nsocket = "{server.socket}"\nuser = "root"\n'
        site.configuration.write_text(text + live)

        def typed(*words: str) -> None:
            done = subprocess.run(
                site.command(*words), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True
            )
            stage.typed(" ".join(["backupd", *words]), done.stdout)

        with server.session() as root:
            for statement in _SCHEMA:
                root.execute(statement)
            site.back_up(f"{datetime.now(UTC):%Y%m%d-%H%M%S}-7c1e")
            with site.archiving():
                MysqlCanary(server.connect()).minute()
                for statement in _SPOILT:
                    root.execute(statement)
                typed(*_INTO_LIVE)
                dropped = _accident(site, root)
                typed("binlog", "list", "nightly")
                typed("binlog", "status")
                typed("binlog", "search", "nightly", "--table", "shop.orders", *_WHAT_TAKES_ROWS, "--since", "1h")
                typed("restore", "--to", str(site.base / "restored"), "--before-gtid", dropped)
                typed("drill", "--to-time", "random")


def _accident(site: Site, root: Session) -> str:
    """Minutes as the receiver writes them, orders, and the drop, whose GTID it is; all of it is archived."""
    for number in range(3):
        MysqlCanary(site.server.connect()).minute()
        root.execute(f"INSERT INTO shop.orders VALUES ({60_000 + number}, 1, 9.99, 'new')")
        another_second()
    root.execute("DELETE FROM shop.orders WHERE id < 20")
    another_second()
    root.execute("DROP TABLE shop.orders")
    gtid = str(root.value("SELECT @@global.gtid_binlog_pos"))
    wait_until(lambda: site.stored(gtid))
    return gtid
