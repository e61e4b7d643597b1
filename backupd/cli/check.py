"""`backupd check`: may this job run now?"""

from typing import Annotated

import typer

from backupd.cli.output import print_document, say_findings
from backupd.vocabulary.errors import ExitStatus


def check(
    ctx: typer.Context,
    job: Annotated[str, typer.Argument(metavar="JOB")],
    *,
    notify: Annotated[bool, typer.Option("--notify", help="Notify of what is refused or needs attention.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")] = False,
) -> None:
    """Check all prerequisites for JOB, each with a hint. Changes nothing.

    The exit status is 5 where a backup would be refused, and 3 where it would need attention.
    """
    from backupd import wiring
    from backupd.catalogue.database import DAMAGED
    from backupd.cli.documents import check_document
    from backupd.cli.failure_answers import failure_answers
    from backupd.operations import context
    from backupd.operations.backup import preflight
    from backupd.operations.binlog import archive_preflight
    from backupd.operations.binlog.left_spools import left_in_spools
    from backupd.operations.ownership import ownership_of
    from backupd.operations.upkeep.notices import check_refused, check_warned
    from backupd.service import receivers
    from backupd.vocabulary.records import Level

    configuration = context.configuration(ctx.obj.config)
    chosen = context.job(configuration, job)
    with context.catalogue(configuration) as catalogue:
        identity, last, past = catalogue.identity(), catalogue.last_stored_bytes(job), catalogue.snapshot_lives(job)
        tunings, faults = catalogue.tunings(), catalogue.faults(values=False)
        tools = wiring.tools(configuration, chosen, identity.name)
        whose = preflight.of_identity(identity, tools.machine)
        ours = whose.level is not Level.REFUSED
        require_ours = ownership_of(catalogue, tools).require_ours if ours else lambda _target: False
        found = preflight.examine(
            chosen,
            tools,
            last_stored_bytes=last,
            last_copy=catalogue.last_copy(job),
            past=past,
            tunings=tunings,
            require_ours=require_ours,
        )
        answers = failure_answers(configuration).of_check(job, catalogue=catalogue)
        left = (*left_in_spools(configuration, catalogue, check_of=job),)
    damage = preflight.of_catalogue(faults, hint=DAMAGED)
    archiving = (*archive_preflight.examine(configuration, chosen, identity.name),)
    archiving += (*receivers.findings(configuration, job, tools.claims),)
    findings = (whose, *damage, *found.findings, *archiving, *left)
    if json:
        print_document(check_document(job, findings))
    else:
        say_findings(findings)
    refused = any(finding.level is Level.REFUSED for finding in findings)
    notice = check_refused(job, findings, answers=answers) if refused else check_warned(job, findings)
    if notice is None:
        return
    if notify:
        wiring.notifier(configuration).tell(notice)
    raise typer.Exit(ExitStatus.REFUSED if refused else ExitStatus.ATTENTION)
