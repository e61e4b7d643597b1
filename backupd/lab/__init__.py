"""A machine with real LVM and a real server under load, on any Debian-like machine, from one command.

`lab.run` is the story from outside; `lab.guest` the one inside the user-mode kernel; `lab.workbench` is what both
kernels share: disks, volume, server, configuration, load. Nothing but `cli` and tests imports this package.
"""
