"""An auditor's evidence for machines: a plain document, and rows of CSV.

Knows: the keys and the columns. They are only ever added.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from backupd.host.ssh_signature import NAMESPACE, PRINCIPAL, DocumentKey
from backupd.report.evidence import Evidence, EvidenceKind, EvidenceRow
from backupd.report.evidence_text import check_words as check_in_words
from backupd.report.evidence_text import copies_words, signature_lines, title
from backupd.report.json_document import Document, iso
from backupd.report.words import csv_text
from backupd.vocabulary.storage import Backup

_COLUMNS = (
    *("kind", "at", "job", "run_id", "machine", "copies", "operator", "outcome", "good", "seconds"),
    *("restore_within_seconds", "longer_than_restore_within", "followed_by", "followed_at", "checks", "remarks"),
)


def evidence_document(
    evidence: Evidence, chain: Mapping[str, Any], *, key: DocumentKey | None, name: str | None
) -> Document:
    """What `report --evidence --json` prints; `chain` is what `audit verify --json` does. Times are seconds."""
    signed = key is not None and name is not None
    return {
        "machine": evidence.machine,
        "job": evidence.job,
        "since": evidence.since.isoformat(),
        "until": iso(evidence.until),
        "at": evidence.at.isoformat(),
        "counts": {kind.value: _count(evidence.rows, kind) for kind in EvidenceKind},
        "unknown": list(evidence.unknown),
        "audit_chain": dict(chain),
        "rows": [_row(row) for row in evidence.rows],
        "signature": {
            "signed": signed,
            "file": f"{name}.sig" if signed else None,
            "public_key": key.public if key is not None and signed else None,
            "fingerprint": key.fingerprint if key is not None and signed else None,
            "namespace": NAMESPACE,
            "principal": PRINCIPAL,
            "how": list(signature_lines(key, name)),
        },
    }


def evidence_csv(evidence: Evidence, signature: Sequence[str]) -> str:
    """What the document is and what is not known, the verdict on the audit chain, each row, and the signature.

    What is no row of evidence has its kind (`document`, `not-known`, `audit-chain`, `signature`) and its words in
    `remarks`.
    """
    return csv_text(_COLUMNS, _lines(evidence, signature))


def _lines(evidence: Evidence, signature: Sequence[str]) -> Iterator[Mapping[str, object]]:
    yield {"kind": "document", "at": evidence.at.isoformat(), "machine": evidence.machine, "remarks": title(evidence)}
    yield from ({"kind": "not-known", "remarks": words} for words in evidence.unknown)
    for words in evidence.chain:
        yield {"kind": "audit-chain", "good": _flag(evidence.chain_sound), "remarks": words}
    for row in evidence.rows:
        yield {
            "kind": row.kind.value,
            "at": iso(row.at),
            "job": row.job,
            "run_id": row.run_id,
            "machine": row.machine,
            "copies": "; ".join(copies_words(row)),
            "operator": row.operator,
            "outcome": row.outcome,
            "good": _flag(row.good),
            "seconds": None if row.seconds is None else round(row.seconds, 3),
            "restore_within_seconds": row.within_seconds,
            "longer_than_restore_within": _flag(row.too_long) if row.within_seconds is not None else "",
            "followed_by": None if row.followed is None else row.followed.run_id,
            "followed_at": None if row.followed is None else row.followed.at.isoformat(),
            "checks": "; ".join(map(check_in_words, row.checks)),
            "remarks": "; ".join(row.remarks),
        }
    yield from ({"kind": "signature", "remarks": words} for words in signature)


def _flag(value: bool | None) -> str:
    return "" if value is None else "yes" if value else "no"


def _count(rows: Sequence[EvidenceRow], kind: EvidenceKind) -> dict[str, int]:
    of_kind = [row for row in rows if row.kind is kind]
    return {
        "all": len(of_kind),
        "good": sum(row.good is True for row in of_kind),
        "not_good": sum(row.good is False for row in of_kind),
        "longer_than_restore_within": sum(row.too_long for row in of_kind),
    }


def _row(row: EvidenceRow) -> Document:
    return {
        "kind": row.kind.value,
        "at": iso(row.at),
        "job": row.job,
        "run_id": row.run_id,
        "machine": row.machine,
        "targets": list(row.targets),
        "copies": [_copy(copy) for copy in row.copies],
        "operator": row.operator,
        "outcome": row.outcome,
        "good": row.good,
        "seconds": row.seconds,
        "restore_within_seconds": row.within_seconds,
        "longer_than_restore_within": row.too_long if row.within_seconds is not None else None,
        "checks": [asdict(check) for check in row.checks],
        "remarks": list(row.remarks),
        "followed": None if row.followed is None else {"run_id": row.followed.run_id, "at": iso(row.followed.at)},
    }


def _copy(copy: Backup) -> Document:
    return {
        "target": copy.target,
        "location": copy.location,
        "bytes_stored": copy.bytes_stored,
        "sha256": copy.sha256,
        "manifest_digest": copy.manifest_digest,
        "encrypted_for": list(copy.recipients),
        "verified_at": iso(copy.verified_at),
        "broken": copy.broken,
        "removed_at": iso(copy.removed_at),
        "removed_because": copy.removed_because,
    }
