"""A configuration in which nothing could be left out, as TOML."""

HOST = '[hosts.db1]\nsocket = "/run/mysqld/mysqld.sock"\nuser = "backupd"\n'
TARGET = '[targets.vault]\ntype = "directory"\npath = "/srv/backups"\n'
JOB = '[jobs.nightly]\nhost = "db1"\ntargets = ["vault"]\n'
MINIMAL = HOST + TARGET + JOB
