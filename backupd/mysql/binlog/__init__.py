"""The server's binlog as an archive needs it: received, read event by event, and applied again."""
