"""What each machine took, at the end of a run: which group to look at when the whole takes too long."""

import pytest


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for key in ("passed", "failed") for report in terminalreporter.stats.get(key, ())]
    took = {
        report.nodeid: seconds
        for report in reports
        for name, seconds in getattr(report, "user_properties", ())
        if name == "machine_seconds"
    }
    if took:
        terminalreporter.section(f"machines, {sum(took.values()):.0f} s in all")
    for nodeid, seconds in sorted(took.items(), key=lambda one: -one[1]):
        terminalreporter.write_line(f"{seconds:7.1f}s {nodeid.partition('::')[2]}")
    for report in reports:
        for name, line in getattr(report, "user_properties", ()):
            if name == "figure":
                terminalreporter.write_line(f"{report.nodeid.partition('::')[2]}: {line}")
