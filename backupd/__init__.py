"""backupd: snapshot-aware backups for MySQL and MariaDB on LVM, with the cost of every snapshot measured."""

__version__ = "0.1.0"
