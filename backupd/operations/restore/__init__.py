"""From a backup back to files: a folder, a volume, tables, a clone; verification and drills."""
