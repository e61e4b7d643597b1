"""Under fire: commands of backupd that are made to die, stop, be slow, be refused or hang wherever they have an effect.

`points` is what a fault is, `doors` where one can be put in, `under_fire` the command in which one is. In a lab's
machine `inside` puts in one after the other, and `judging` says what of their outcome breaks a promise. `campaign` runs
it from outside: `make campaign OF=faults`.
"""
