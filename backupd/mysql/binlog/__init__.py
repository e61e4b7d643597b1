"""The server's binlog: what its events say, how it is received, and how it is applied to a restored copy."""
