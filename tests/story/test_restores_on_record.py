"""The audit chain tells of every restore that began, also of one that failed, and keeps nobody from restoring."""

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from backupd.catalogue.audit import AuditEntry
from backupd.catalogue.store import Catalogue
from backupd.host.operator_name import Operator, operator
from backupd.operations.restore.on_record import Deed, on_record
from backupd.vocabulary.errors import Cancelled, CatalogueError, Refused, VerificationError

TO = Path("/srv/back")


@pytest.fixture
def catalogue(tmp_path: Path) -> Iterator[Catalogue]:
    with Catalogue.open(tmp_path / "catalogue.db") as found:
        yield found


def rows(catalogue: Catalogue) -> list[AuditEntry]:
    return catalogue.audit_entries(limit=None)[::-1]


@pytest.mark.parametrize(("deed", "word"), [(Deed.RESTORE, "restore"), (Deed.CLONE, "clone")])
def test_a_deed_has_a_row_of_its_beginning_and_of_its_end(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch, deed: Deed, word: str
) -> None:
    told: list[str] = []
    ticks = iter((100.0, 10900.0))
    monkeypatch.setattr("backupd.operations.restore.on_record.time", SimpleNamespace(monotonic=ticks.__next__))
    with on_record(catalogue, "r1", deed, TO, (), telling=told.append, tables=["shop.a"]):
        began = rows(catalogue)[-1]
    ended = rows(catalogue)[-1]
    assert [(row.event, row.subject) for row in (began, ended)] == [(f"{word}-started", "r1"), (f"{word}-ended", "r1")]
    assert (began.detail["to"], began.detail["tables"]) == (str(TO), ["shop.a"])
    assert (ended.detail["outcome"], ended.detail["attempt"]) == ("success", began.detail["attempt"])
    assert ended.detail["seconds"] == 10800.0
    assert {(row.detail["operator"], row.detail["uid"]) for row in (began, ended)} == {
        (operator().name, operator().uid)
    }
    assert (catalogue.audit_trail().chain.first_fault, told) == (None, [])


@pytest.mark.parametrize(
    ("error", "outcome", "code"),
    [
        (VerificationError("a frame is damaged", hint=""), "failed", "verification-error"),
        (Refused("it is in use", hint=""), "refused", "refused"),
        (Cancelled("stopped by SIGTERM", hint=""), "cancelled", "cancelled"),
        (RuntimeError("a bug"), "failed", "internal"),
    ],
)
def test_a_deed_that_fails_has_its_end_told_with_the_error(
    catalogue: Catalogue, error: Exception, outcome: str, code: str
) -> None:
    with (
        pytest.raises(type(error)) as raised,
        on_record(catalogue, "r1", Deed.RESTORE, TO, (), telling=lambda _line: None),
    ):
        raise error
    ended = rows(catalogue)[-1]
    assert raised.value is error
    assert (ended.event, ended.detail["outcome"], ended.detail["code"]) == ("restore-ended", outcome, code)
    assert str(error) in ended.detail["error"]


def test_what_a_person_should_look_at_is_told_with_the_end(catalogue: Catalogue) -> None:
    with on_record(catalogue, "r1", Deed.RESTORE, "vg0/new", (), telling=lambda _line: None) as done:
        done.attentions.append("it is still mounted")
    told = rows(catalogue)[-1].detail
    assert (told["to"], told["outcome"], told["attentions"]) == ("vg0/new", "attention", ["it is still mounted"])


def test_a_catalogue_that_cannot_be_written_keeps_nobody_from_a_restore(
    catalogue: Catalogue, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Catalogue, *steps: object) -> None:
        raise CatalogueError("database or disk is full", hint="free some room")

    monkeypatch.setattr(Catalogue, "_write", full)
    told: list[str] = []
    with on_record(catalogue, "r1", Deed.RESTORE, TO, (), telling=told.append):
        restored = True
    assert restored
    assert told == [
        f"attention: this could not be recorded in the audit trail ({event}): database or disk is full"
        for event in ("restore-started", "restore-ended")
    ]


def test_a_folder_whose_name_is_no_text_is_told_all_the_same(catalogue: Catalogue) -> None:
    with on_record(catalogue, "r1", Deed.RESTORE, Path("/srv/\udcff"), (), telling=lambda _line: None):
        pass
    assert rows(catalogue)[-1].detail["to"] == "/srv/\N{REPLACEMENT CHARACTER}"


def test_root_by_sudo_is_the_person_who_called_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 0)
    assert operator({"SUDO_USER": "ann", "SUDO_UID": "1000"}) == Operator("ann", 1000)
    assert operator({"SUDO_USER": "ann\x1b[2J", "SUDO_UID": "1000"}) == Operator("ann?[2J", 1000)
    for strange in ({}, {"SUDO_USER": "ann"}, {"SUDO_USER": "ann", "SUDO_UID": "-1"}, {"SUDO_UID": "1000"}):
        assert operator(strange) == Operator("root", 0)


def test_who_is_not_root_can_claim_no_other_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getuid", lambda: 4_000_000_000)  # no account of this host has it
    assert operator({"SUDO_USER": "ann", "SUDO_UID": "1000"}) == Operator("", 4_000_000_000)
