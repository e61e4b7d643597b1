"""What is told, as the page of a mail: nothing is fetched, nothing runs; light, dark and on a phone.

Knows: what is large and what is small print; every word is one of the text that goes with it. Programs for mail leave
out a part of what pages are written with: its colours are no variables, and its tables need no style to be read.
"""

from dataclasses import dataclass

from backupd.notifications.words import known, title
from backupd.vocabulary.schedule import Notice, NoticeKind, NoticeTable

_SMALL_PRINT = {"at", "due", "machine", "run", "exit status", "error", "more"}
_GRAVE = {"CRITICAL", "NONE", "UNREACHABLE"}  # cells of a digest
_TONES = {
    NoticeKind.FAILED: "bad",
    NoticeKind.MISSED: "bad",
    NoticeKind.ALARM: "bad",
    NoticeKind.RETRYING: "doubt",
    NoticeKind.ATTENTION: "doubt",
    NoticeKind.SUCCEEDED: "good",
    NoticeKind.RECOVERED: "good",
    NoticeKind.OVER: "good",
}


@dataclass(frozen=True, slots=True)
class _Answer:
    """What stands below its own name."""

    name: str
    lines: list[str]
    table: NoticeTable | None

    @property
    def is_grave(self) -> bool:
        """Whether it is what nobody wants to read."""
        return self.lines[0].startswith("NO:")

    @property
    def is_typed(self) -> bool:
        """Whether it is what a program has said, or is to be told: written with letters of one width."""
        return len(self.lines) > 1 or self.name == "type now"

    @property
    def link(self) -> str:
        """Empty where there is none: a stranger's words are never one."""
        return self.lines[0] if self.name == "page" and self.lines[0].startswith(("https://", "http://")) else ""


def notice_page(notice: Notice) -> str:
    """The whole page: the sentence, each answer below its name, then by what it is told apart from others."""
    from backupd.report.templating import report

    detail = known(notice)
    of_all = notice.kind is NoticeKind.DIGEST  # its sentence is the title
    return report(
        "notice.html",
        title=title(notice),
        subtitle="",
        tone=("doubt" if "alarms" in notice.tables else "good") if of_all else _TONES.get(notice.kind, ""),
        grave=_GRAVE,
        sentence=[] if of_all else notice.text.split("\n"),
        answers=[
            _Answer(name, said.split("\n"), notice.tables.get(name))
            for name, said in detail.items()
            if name not in _SMALL_PRINT
        ],
        small={name: said for name, said in detail.items() if name in _SMALL_PRINT},
    )
