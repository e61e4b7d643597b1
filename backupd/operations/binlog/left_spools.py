"""Segments that wait for a target in the spool of a job whose archive is configured no more: nobody sends them.

Knows: that the archive was turned off, or its job renamed or removed, while a target was away.
"""

from collections.abc import Iterator

from backupd.catalogue.store import Catalogue
from backupd.config import Configuration
from backupd.report.words import many
from backupd.vocabulary.records import Finding, Level


def left_in_spools(
    configuration: Configuration, catalogue: Catalogue, *, check_of: str | None = None
) -> Iterator[Finding]:
    """Of each such job what waits. The check of a job tells its own, and those of jobs that have no check any more.

    Raises:
        CatalogueError: the catalogue cannot be read.
    """
    jobs = configuration.jobs
    archived = {name for name, job in jobs.items() if job.binlog is not None}
    for job, count in sorted(catalogue.waiting_jobs().items()):
        if job not in archived and (check_of in (None, job) or job not in jobs):
            yield Finding(
                "binlog spool",
                Level.WARNING,
                f"left in the binlog spool of job {job}, for a target that lacks it: {many(count, 'segment')};"
                " no archive of that job is configured",
                f"configure [jobs.{job}.binlog] with that spool and these targets once more, and remove it when"
                f" `backupd binlog status {job}` says that nothing waits",
                attention=job == check_of,
            )
