"""A table that rows come into for as long as it is there, and how many the server acknowledged.

Knows: that who inserts one row after the other has an answer or an error for each.
"""

import threading
from pathlib import Path

import pymysql

from backupd.host.scoped_thread import ScopedThread
from backupd.lab.server import SCHEMA

TABLE = f"{SCHEMA}.orders"
_PAUSE_SECONDS = 0.02
_TABLE = f"CREATE TABLE {TABLE} (id BIGINT AUTO_INCREMENT PRIMARY KEY, item VARCHAR(20) NOT NULL)"
_ORDER = f"INSERT INTO {TABLE} (item) VALUES ('a screw')"  # noqa: S608 - our own
_NO_SUCH_TABLE = 1146  # ER_NO_SUCH_TABLE


class Orders(ScopedThread):
    """Makes the table, and inserts until it is gone, or the block ends."""

    def __init__(self, socket: Path) -> None:
        self._socket, self._enough = socket, threading.Event()
        self.acknowledged = 0  # rows
        super().__init__("orders", self._insert, stop=self._enough.set)

    def _insert(self) -> None:
        """Raises whatever the server refuses, but that the table is gone."""
        connection = pymysql.connect(unix_socket=str(self._socket), user="lab_load", autocommit=True)
        with connection, connection.cursor() as cursor:
            cursor.execute(_TABLE)
            while not self._enough.wait(_PAUSE_SECONDS):
                try:
                    cursor.execute(_ORDER)
                except pymysql.ProgrammingError as error:
                    if error.args[0] != _NO_SUCH_TABLE:
                        raise
                    return
                self.acknowledged += 1
