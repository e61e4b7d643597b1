"""One backup: read `run.run_backup` first. The other modules are its steps and their checks."""
