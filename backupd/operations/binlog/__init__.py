"""The archive of a job's binlog: received, cut, sealed, stored; and read again."""
