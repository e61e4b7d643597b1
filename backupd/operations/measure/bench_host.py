"""The host that a bench measures on: its kernel, its programs, its memory."""

import os

from backupd.load.fio import FIO
from backupd.load.sysbench import SYSBENCH
from backupd.lvm.version import lvm_version, mdadm_version
from backupd.vocabulary.benches import BenchHost


def bench_host(with_fio: bool, with_mdadm: bool) -> BenchHost:
    """On what is measured.

    Raises:
        CommandError: a program that is needed is missing.
    """
    return BenchHost(
        kernel=os.uname().release,
        lvm=lvm_version(),
        sysbench=SYSBENCH.installed_version(),
        fio=FIO.installed_version() if with_fio else None,
        mdadm=mdadm_version() if with_mdadm else None,
        memory=os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        processors=os.cpu_count() or 1,
    )
