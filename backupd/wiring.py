"""From the configuration to tools: the only module that knows which implementation serves which contract.

What only a probe, a bench, a restore or a survey works with is imported where it is made: a backup does without.
"""

import os
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.catalogue.store import Catalogue
from backupd.config import (
    AppriseConfig,
    AzureConfig,
    Configuration,
    DirectoryConfig,
    GcsConfig,
    HostConfig,
    JobConfig,
    LockConfig,
    LockStrategy,
    MailConfig,
    NotificationConfig,
    PingConfig,
    S3Config,
    SftpConfig,
    SnapshotConfig,
    WebhookConfig,
)
from backupd.host.claims import Claims
from backupd.host.filesystem import identity, room, sync_filesystem, used_bytes
from backupd.host.machine_ids import this_machine
from backupd.host.process import found
from backupd.load import WriteProbe
from backupd.load.counters import KernelCounters
from backupd.lvm import BlankVolumes
from backupd.lvm.mounting import LinuxMounts, mount_of, mounted_volume, mounts_below, own_roots
from backupd.lvm.scratch_disks import LinuxScratchDisks
from backupd.lvm.snapshots import LvmSnapshots
from backupd.mysql import Applier, Flusher, Lock
from backupd.mysql.canary import MysqlCanary
from backupd.mysql.counting import ServerCounters
from backupd.mysql.flushing import PageFlusher
from backupd.mysql.locks import ServerLock
from backupd.mysql.replication import ReplicaApplier
from backupd.mysql.server import MysqlServer
from backupd.mysql.session import Connect, connector
from backupd.notifications.fanout import Fanout, Subscriber
from backupd.operations import context
from backupd.operations.configured_servers import connect_to, login_of
from backupd.operations.ownership import RENEWAL_SECONDS
from backupd.operations.tools import (
    BenchTools,
    FilesystemRoom,
    HostFiles,
    HostTools,
    Instruments,
    Places,
    Tools,
    Versions,
)
from backupd.operations.upkeep.finishing import MaxRate
from backupd.operations.upkeep.releases import releases
from backupd.targets import Target
from backupd.targets.directory import DirectoryTarget
from backupd.vocabulary.errors import UsageError
from backupd.vocabulary.records import Holding
from backupd.vocabulary.volumes import MountPoint

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from backupd.config.fleet import FleetConfiguration
    from backupd.fleet import Agents
    from backupd.notifications import NotificationChannel
    from backupd.operations.measure.ground import Subject
    from backupd.operations.measure.volume_survey import Sources
    from backupd.vocabulary.schedule import Notice

_UNDISTURBED_SECONDS = 5.0
_LEAST_SECTOR = 512  # bytes
_LVM_CHUNK_SIZE = 4 << 10  # bytes: what LVM takes where it is not told (lvcreate(8), 2.03.16)


def target(configuration: Configuration, name: str, machine: str) -> Target:
    """The target of this name, as this machine's.

    Raises:
        UsageError: the configuration has none of this name (any more).
    """
    try:
        chosen = configuration.targets[name]
    except KeyError:
        raise UsageError(
            f"no target {name!r}", hint=f"configured targets: {', '.join(configuration.targets)}"
        ) from None
    match chosen:
        case DirectoryConfig():
            return DirectoryTarget(chosen.name, chosen.path, machine=machine, sentinel=chosen.sentinel)
        case SftpConfig():
            from backupd.targets.sftp import SftpTarget  # asyncssh takes a third of a second to load

            return SftpTarget(chosen, machine=machine)
        case S3Config():
            from backupd.targets.s3 import S3Target  # here: the AWS packages take half a second to load

            return S3Target(chosen, machine=machine)
        case AzureConfig():
            from backupd.targets.azure import azure_target  # its package may not be installed; so below

            return azure_target(chosen, machine=machine)
        case GcsConfig():
            from backupd.targets.gcs import gcs_target

            return gcs_target(chosen, machine=machine)


def fleet_agents(configuration: "FleetConfiguration") -> "AbstractContextManager[Agents]":
    """The agents of all hosts, which are reached by SSH; no connection is left behind the block."""
    from backupd.fleet.ssh_agents import ssh_agents  # asyncssh takes a third of a second to load

    return ssh_agents(configuration)


def notifier(configuration: Configuration) -> Fanout:
    """Whoever the configuration wants to be told. No secret of theirs is read before there is something to tell."""
    return Fanout(
        [
            Subscriber(chosen.name, frozenset(chosen.on), frozenset(chosen.jobs), _channel(chosen))
            for chosen in configuration.notifications.values()
        ]
    )


def _channel(chosen: NotificationConfig) -> "NotificationChannel":
    """Imported here: a run that tells nobody need not load what mail and the web take."""
    match chosen:
        case MailConfig():
            from backupd.notifications.mail import Mail

            return Mail(chosen, _page_of_mail)
        case WebhookConfig():
            from backupd.notifications.webhook import Webhook

            return Webhook(chosen)
        case PingConfig():
            from backupd.notifications.ping import Ping

            return Ping(chosen)
        case AppriseConfig():
            from backupd.notifications.apprise import Apprise

            return Apprise(chosen)


def _page_of_mail(notice: "Notice") -> str:
    """Imported here: templates take longer to load than the rest of a run that tells nothing."""
    from backupd.report.notice_html import notice_page

    return notice_page(notice)


def blank_volumes(*, overwrite_leftovers: bool = False) -> BlankVolumes:
    """Logical volumes of this host that a restore can fill; also such as have data that nobody needs."""
    from backupd.lvm.blank import LvmBlankVolumes

    return LvmBlankVolumes(overwrite_leftovers=overwrite_leftovers)


def host_tools(configuration: Configuration, machine: str) -> HostTools:
    """What acts on the host whatever the job, and marks what it makes there as this machine's."""
    kernel = KernelCounters()
    snapshots, scratch_disks, mounting = LvmSnapshots(machine), LinuxScratchDisks(machine), LinuxMounts()
    target_of = partial(_target_of, configuration)
    return HostTools(
        snapshots=snapshots,
        mounts=mounting,
        files=HostFiles(
            mount_of=mount_of,
            mounts_below=mounts_below,
            identity=identity,
            sync=sync_filesystem,
            used_bytes=used_bytes,
            room=lambda path: FilesystemRoom(*room(path)),
            write_counters=kernel.disk,
            disk_counters=lambda path: kernel.disk(kernel.number_of(path)),
            in_flight=kernel.in_flight,
            roots=lambda: own_roots(configuration.paths.run),
            remove_abandoned=_remove_abandoned,
        ),
        places=Places(
            run=configuration.paths.run,
            staging=configuration.paths.staging,
            catalogue=configuration.catalogue.path,
            spools=tuple({job.copy.spool for job in configuration.jobs.values() if job.copy.spool is not None}),
        ),
        claims=Claims(configuration.paths.run),
        releases=releases(
            *(snapshots, scratch_disks, mounting),
            blank_volumes=blank_volumes,
            target_of=target_of,
            applier_of=lambda host: ReplicaApplier(
                connect_to(
                    *(configuration, host),
                    became="whose replica applier was stopped",
                    hint="START REPLICA SQL_THREAD there, or put the host back into the configuration",
                ),
                temporary_tables_wait_seconds=0.0,  # it only starts appliers here
            ),
            flusher_of=lambda host: PageFlusher(
                connect_to(
                    *(configuration, host),
                    became="whose server was told to write its dirty pages",
                    hint="put the host back into the configuration, then `backupd recover`",
                )
            ),
            loaded_into=lambda host: connect_to(
                *(configuration, host),
                became="into which a table was being loaded",
                hint="put the host back into the configuration, then `backupd recover`",
            ),
        ),
        scratch_disks=scratch_disks,
        target_of=target_of,
        machine=this_machine(),
        renewal_seconds=RENEWAL_SECONDS,
    )


def finishing(configuration: Configuration) -> MaxRate:
    """How fast what dead runs had copied whole may be read back."""
    jobs = configuration.jobs
    return lambda job: jobs[job].copy.max_rate if job in jobs else None


def _remove_abandoned() -> tuple[Path, ...]:
    from backupd.mysql.scratch_places import remove_abandoned_folders

    return remove_abandoned_folders()


def tools(configuration: Configuration, job: JobConfig, machine: str) -> Tools:
    """Everything that acts, for one job of this machine.

    Raises:
        ConfigurationError: the host's password cannot be had.
    """
    host = host_tools(configuration, machine)
    connect = connect_to(configuration, job.host)
    return Tools(
        **{each.name: getattr(host, each.name) for each in fields(host)},
        server=MysqlServer(connect),
        lock=_lock(connect, job.lock),
        applier=_applier(job, connect),
        flusher=_flusher(job, connect),
        canary=MysqlCanary(connect) if job.canary else None,
        work_counters=ServerCounters(connect),
        undisturbed_seconds=_UNDISTURBED_SECONDS,
        probe=_probe(job),
        targets=tuple(target(configuration, name, machine) for name in job.targets),
    )


def subject(configuration: Configuration, *, job_name: str | None, volume: str | None) -> "Subject":
    """What is to be probed: a job's volume with the job's settings, or a volume by name with LVM's own.

    Raises:
        UsageError: both or neither are named, or there is no such job.
    """
    from backupd.operations.measure.ground import Subject

    if (job_name is None) == (volume is None):
        raise UsageError("name a job or a volume", hint="backupd probe JOB, or backupd probe --volume VG/LV")
    if job_name is None:
        return Subject(lambda: mounted_volume(volume or ""), SnapshotConfig(chunk_size=_LVM_CHUNK_SIZE))
    chosen = context.job(configuration, job_name)
    host = configuration.hosts[chosen.host]
    limit = chosen.limits.max_cow_fill
    return Subject(lambda: _data_mount(host), chosen.snapshot, max_pool_fill=limit, job=chosen.name, host=chosen.host)


def _data_mount(host: HostConfig) -> MountPoint:
    """The file system of the server's datadir.

    Raises:
        ServerError: the server does not report.
        SnapshotError: the datadir is not there.
    """
    return mount_of(MysqlServer(connector(login_of(host))).facts().datadir)


def survey_sources(configuration: Configuration, catalogue: Catalogue | None) -> "Sources":
    """Whom a survey of the host's volumes asks; without a catalogue no job had a run, and nothing there is ours."""
    from backupd.lvm.fullreport import landscape
    from backupd.lvm.uses import uses
    from backupd.operations.measure.volume_survey import Sources

    return Sources(
        landscape=landscape,
        uses=uses,
        datadir=lambda host: _data_mount(configuration.hosts[host]),
        last_volume=catalogue.last_volume if catalogue is not None else lambda _: None,
        machine=catalogue.identity().name if catalogue is not None else "",
        past=catalogue.snapshot_lives if catalogue is not None else lambda _: (),
        tunings=catalogue.tunings() if catalogue is not None else {},
    )


def instruments() -> Instruments:
    """What a probe measures with."""
    from backupd.catalogue import probes  # noqa: F401 - writes the result, when the package may have been upgraded
    from backupd.load.direct_reader import DirectReader
    from backupd.load.fileprobe import SysbenchProbe
    from backupd.load.sysbench import SYSBENCH
    from backupd.lvm.version import lvm_version

    return Instruments(
        file_probe=SysbenchProbe,
        reader=DirectReader(),
        counters=KernelCounters(),
        load_average=lambda: os.getloadavg()[0],
        versions=lambda with_sysbench: Versions(
            kernel=os.uname().release,
            lvm=lvm_version(),
            sysbench=SYSBENCH.installed_version() if with_sysbench else None,
        ),
    )


def bench_tools(machine: str) -> BenchTools:
    """What a bench works with, on this machine."""
    from backupd.catalogue import benches  # noqa: F401 - as above
    from backupd.load.fileload import FileLoads
    from backupd.load.fio import FioLoads
    from backupd.load.sectors import sector_size
    from backupd.lvm.scratch import LvmScratchVolumes
    from backupd.operations.measure.bench_host import bench_host
    from backupd.vocabulary.scratch_layouts import Medium

    return BenchTools(
        volumes=LvmScratchVolumes(machine),
        loads={Medium.FILE: FileLoads(), Medium.RAW: FioLoads()},
        counters=KernelCounters(),
        sector_size=lambda disk: sector_size(disk) or _LEAST_SECTOR,
        load_average=lambda: os.getloadavg()[0],
        host=bench_host,
        probing=instruments(),
    )


def _lock(connect: Connect, wanted: LockConfig) -> Lock:
    match wanted.strategy:
        case LockStrategy.NONE:
            from backupd.mysql.unlocked import NoLock

            return NoLock(connect)
        case LockStrategy.AUTO | LockStrategy.FTWRL | LockStrategy.BACKUP_STAGE:
            return ServerLock(connect, wanted, strategy=wanted.strategy)


def _applier(job: JobConfig, connect: Connect) -> Applier | None:
    if not job.lock.stop_applier:
        return None
    return ReplicaApplier(connect, temporary_tables_wait_seconds=job.lock.temporary_tables_wait_seconds)


def _flusher(job: JobConfig, connect: Connect) -> Flusher | None:
    return PageFlusher(connect, wait_seconds=job.lock.preflush_wait_seconds) if job.lock.preflush else None


def _probe(job: JobConfig) -> WriteProbe | None:
    if not (job.settle.enabled and job.settle.probe and found("sysbench")):
        return None
    from backupd.load.fileprobe import SysbenchProbe
    from backupd.vocabulary.gauges import FileLoad, Mode

    settle = job.settle
    return SysbenchProbe(FileLoad(Mode.DIRECT, settle.threads, block_size=settle.block_size, area=settle.file_size))


def _target_of(configuration: Configuration, holding: Holding) -> Target:
    """That has this copy or upload, as the machine's that made it.

    Raises:
        UsageError: the configuration has no target of this name any more.
    """
    name = holding.detail["target"]
    if name not in configuration.targets:
        raise UsageError(
            f"target {name!r} is no longer in the configuration",
            hint=f"put target {name} back until `backupd recover` has done its work there",
        )
    return target(configuration, name, holding.detail["machine"])
