"""`python -m backupd` is `backupd`: how the daemon starts its runs, whatever `PATH` says."""

from backupd.cli.main import main

main()
