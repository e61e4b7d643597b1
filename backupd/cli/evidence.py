"""`backupd report --evidence`: what an auditor asks for, in a document that can be signed.

Knows: which forms are written where. Nothing is written before all of it is put together and signed.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from backupd.cli.audit import checked, examination, verdict_lines
from backupd.cli.instants import span
from backupd.cli.output import document_text, print_document, print_text, write_report
from backupd.vocabulary.errors import UsageError

if TYPE_CHECKING:
    from backupd.config import Configuration
    from backupd.host.ssh_signature import DocumentKey
    from backupd.operations.upkeep.audit import AuditResult
    from backupd.report.evidence import Evidence
    from backupd.report.json_document import Document


@dataclass(frozen=True, slots=True)
class EvidenceRequest:
    """What was asked for on the command line."""

    job: str | None
    since: str
    until: str | None
    html: Path | None
    csv: Path | None
    output: Path | None  # what would else be printed
    json: bool

    @property
    def files(self) -> list[Path]:
        """That are written, with a signature beside each where there is a key."""
        return [path for path in (self.html, self.csv, self.output) if path is not None]


def report_evidence(config: Path | None, wanted: EvidenceRequest) -> None:
    """Write or print the evidence; then raise where the audit chain is not sound.

    Raises:
        UsageError: the time or the job is none; two documents are to go into one file, or one cannot be written.
        ConfigurationError: the key cannot be used; nothing is written then.
        VerificationError: the audit chain is broken, as the document that was written says.
        TargetError: not all manifests could be read, as the document that was written says.
    """
    from backupd.operations import context

    configuration = context.configuration(config)
    names = [name for path in wanted.files for name in (path.absolute(), _beside(path).absolute())]
    if len(set(names)) < len(names):
        raise UsageError("two documents cannot go into one file", hint="give each of them a name of its own")
    key = _key(configuration) if wanted.files else None
    evidence, found = _gathered(configuration, wanted)
    texts = {path: _text(wanted, path, evidence, found, key) for path in wanted.files}
    signatures = {} if key is None else {_beside(path): key.sign(text) for path, text in texts.items()}
    for path, text in (texts | signatures).items():
        write_report(path, text, hint="run `backupd report --evidence` again")
    if wanted.output is None and wanted.json:
        print_document(_document(evidence, found, None, None))
    elif wanted.output is None:
        print_text(_text(wanted, None, evidence, found, None).rstrip("\n"))
    found.require_sound()


def _beside(path: Path) -> Path:
    return path.with_name(f"{path.name}.sig")


def _key(configuration: "Configuration") -> "DocumentKey | None":
    from backupd.host.ssh_signature import document_key

    path = configuration.evidence.signing_key
    return None if path is None else document_key(path, named="evidence.signing_key")


def _gathered(configuration: "Configuration", wanted: EvidenceRequest) -> "tuple[Evidence, AuditResult]":
    from backupd.operations import context
    from backupd.report.evidence import Evidence, EvidenceSources, evidence_rows, not_known

    now = datetime.now(UTC)
    since, until = span(wanted.since, wanted.until, now=now)
    since = since or datetime.min.replace(tzinfo=UTC)
    within = {
        name: job.restore_within_seconds
        for name, job in configuration.jobs.items()
        if job.restore_within_seconds is not None
    }
    with context.catalogue(configuration) as catalogue:
        context.require_known_job(lambda: configuration, catalogue, wanted.job)
        machine = catalogue.identity().name
        runs, entries, trail = catalogue.told_since(since)
    found = checked(configuration, trail, machine)
    sources = EvidenceSources(machine, since, runs, entries, within)
    evidence = Evidence(
        *(machine, wanted.job, since, until, now),
        rows=evidence_rows(sources, job=wanted.job, until=until),
        unknown=tuple(not_known(sources)),
        chain_sound=found.is_whole and not found.all_flaws,
        chain=tuple(verdict_lines(found)),
    )
    return evidence, found


def _text(
    wanted: EvidenceRequest, path: Path | None, evidence: "Evidence", found: "AuditResult", key: "DocumentKey | None"
) -> str:
    """What is written to this file, or printed where there is none; with its last line feed."""
    from backupd.report.evidence_document import evidence_csv
    from backupd.report.evidence_html import evidence_page
    from backupd.report.evidence_text import evidence_text, signature_lines

    name = None if path is None else path.name
    signature = signature_lines(key, name)
    if path is not None and path == wanted.html:
        return evidence_page(evidence, signature)
    if path is not None and path == wanted.csv:
        return evidence_csv(evidence, signature)
    if wanted.json:
        return document_text(_document(evidence, found, key, name)) + "\n"
    return evidence_text(evidence, signature) + "\n"


def _document(evidence: "Evidence", found: "AuditResult", key: "DocumentKey | None", name: str | None) -> "Document":
    from backupd.report.evidence_document import evidence_document

    return evidence_document(evidence, examination(found), key=key, name=name)
