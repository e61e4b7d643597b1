"""This host: its processes, signals, threads and file systems, and what backupd keeps on it for itself."""
