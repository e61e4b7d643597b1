"""What keeps backups and their record in order: prune, recover, rebuild, audit, notices."""
