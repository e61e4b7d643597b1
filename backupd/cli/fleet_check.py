"""`backupd fleet check`: are the hosts what fleet.toml says?"""

import typer

from backupd.cli.invocation import JsonOption
from backupd.cli.output import print_document, print_text, say, say_findings
from backupd.vocabulary.errors import ConfigurationError, ExitStatus


def check(ctx: typer.Context, *, json: JsonOption = False) -> None:
    """Check the fleet's configuration, then ask every host whether it is what the file says. Changes nothing.

    Hosts are asked side by side. The exit status is 5 where a backup would be refused or one host could be taken for
    another, and 3 where something needs attention.
    """
    from datetime import UTC, datetime

    from backupd import wiring
    from backupd.host.signals import cancellable
    from backupd.operations.fleet.fleet_context import fleet, notified
    from backupd.operations.fleet.fleet_findings import fleet_findings
    from backupd.operations.fleet.host_survey import ask_hosts
    from backupd.report.fleet_check_text import fleet_check_document, hosts_table
    from backupd.vocabulary.records import Level

    file = fleet(ctx.obj.config)
    configuration, untold, told = file.configuration, None, None
    try:
        if (notifying := notified(configuration.control)) is not None:
            told = wiring.notifier(notifying).subscribers
    except ConfigurationError as error:
        untold = error
    with cancellable(), wiring.fleet_agents(configuration) as agents:
        asked = ask_hosts(configuration.hosts, agents, at_once=configuration.control.ask_at_once)
    seen = {host: one.seen for host, one in asked.items()}
    findings = fleet_findings(file, asked, now=datetime.now(UTC), untold=untold, told=told)
    if json:
        print_document(fleet_check_document(configuration, seen, findings))
    else:
        print_text(hosts_table(configuration, seen))
        say("")
        say_findings(findings)
        if not findings:
            say("every host is what the file says")
    if findings:
        refused = any(finding.level is Level.REFUSED for finding in findings)
        raise typer.Exit(ExitStatus.REFUSED if refused else ExitStatus.ATTENTION)
