"""backupd beside its rivals, on the same disks under the same load: `make bench-peers`.

Who takes part, and with what settings, stands in `contenders`; what a round shows, in `figures`; when the server has
come to rest before one, in `calm`; what is done in the machine, in `rounds`; how some of them have their work done
outside it, in `outside`. `bench_peers` starts the machines.
"""
