"""What snapshots and layouts cost on this host: the probe, the bench, and the survey of volumes."""
