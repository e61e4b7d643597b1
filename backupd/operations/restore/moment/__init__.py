"""Restores to a moment: a backup, rolled forward by the archive of its server's binlog, and the proof of it."""
