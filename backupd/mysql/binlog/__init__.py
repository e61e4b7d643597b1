"""The server's binlog: what is in its files, and how they are archived and applied."""
