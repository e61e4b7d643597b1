"""How a binlog file is laid out: its magic, the header of each event, and the types that backupd has to know.

The layout is MariaDB's knowledge base's ("Replication Protocol: 2-Binlog Event" and the pages of the events) and
MySQL's `libs/mysql/binlog/event/`; both were compared with what MariaDB 10.11.19 and MySQL 9.7.4 write.
"""

import struct
from typing import Final

MAGIC: Final = b"\xfebin"
HEADER: Final = struct.Struct("<IBIIIH")  # time, type, server id, length with this header, end position, flags
HEADER_BYTES: Final = HEADER.size
CHECKSUM_BYTES: Final = 4  # behind an event, where the format description says that there are any
ARTIFICIAL: Final = 0x20  # flag: made for this reader; it is in no file of the server's
IN_USE: Final = 0x01  # flag of a format description: the server has the file open, or died with it. In no checksum

QUERY: Final = 2
STOP: Final = 3
ROTATE: Final = 4
FORMAT_DESCRIPTION: Final = 15
XID: Final = 16
EXECUTE_LOAD_QUERY: Final = 18  # LOAD DATA as a statement
TABLE_MAP: Final = 19
INCIDENT: Final = 26
HEARTBEAT: Final = 27
GTID: Final = 33
ANONYMOUS_GTID: Final = 34
PREVIOUS_GTIDS: Final = 35
XA_PREPARE: Final = 38
PARTIAL_UPDATE_ROWS: Final = 39
TRANSACTION_PAYLOAD: Final = 40
HEARTBEAT_V2: Final = 41
TAGGED_GTID: Final = 42
BINLOG_CHECKPOINT: Final = 161
MARIADB_GTID: Final = 162
GTID_LIST: Final = 163
START_ENCRYPTION: Final = 164
QUERY_COMPRESSED: Final = 165

#: What begins a transaction: an event of its GTID, or of MySQL's that it has none.
BEGINNINGS: Final = frozenset((MARIADB_GTID, GTID, ANONYMOUS_GTID, TAGGED_GTID))

WRITE_ROWS: Final = frozenset((23, 30, 166, 169))
UPDATE_ROWS: Final = frozenset((24, 31, PARTIAL_UPDATE_ROWS, 167, 170))
DELETE_ROWS: Final = frozenset((25, 32, 168, 171))
ROWS: Final = WRITE_ROWS | UPDATE_ROWS | DELETE_ROWS
ROWS_V2: Final = frozenset((30, 31, 32, PARTIAL_UPDATE_ROWS, 169, 170, 171))  # with a part that may be of any length
ROWS_COMPRESSED: Final = frozenset(range(166, 172))
HEARTBEATS: Final = frozenset((HEARTBEAT, HEARTBEAT_V2))

# Of no transaction: what begins and ends a file, and what the server notes between transactions.
BETWEEN_TRANSACTIONS: Final = frozenset(
    (
        *(STOP, ROTATE, FORMAT_DESCRIPTION, HEARTBEAT, HEARTBEAT_V2, PREVIOUS_GTIDS),
        *(BINLOG_CHECKPOINT, GTID_LIST, START_ENCRYPTION),
    )
)
