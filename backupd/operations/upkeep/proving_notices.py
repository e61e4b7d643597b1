"""What is told of a proof host's work: the gravest problem of one `backupd prove`, and what else was wrong."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

from backupd.catalogue.endings import as_told
from backupd.notifications import Notifier
from backupd.operations.upkeep.failure_answers import answers_of_proving
from backupd.operations.upkeep.notices import error_detail
from backupd.vocabulary.errors import BackupdError, Busy, Cancelled, VerificationError
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.schedule import Notice, NoticeKind

_MOST = 20  # problems that are told one by one


@dataclass(frozen=True, slots=True)
class Problem:
    """What keeps a copy from being proven."""

    sentence: str  # it names the copy or the target; may hold words of strangers
    error: BackupdError
    machine: str = ""  # whose copy it is
    job: str = ""


@contextmanager
def proving_told(notifier: Notifier) -> Iterator[list[Problem]]:
    """The gravest of the problems that the block has entered is told when it ends, and raised; else what ends it.

    A copy that failed its drill goes before all else; then what came first. Nobody is told where another process does
    the same, or it was asked to stop.

    Raises:
        BackupdError: the error of that problem.
    """
    problems: list[Problem] = []
    try:
        yield problems
    except Exception as error:  # whatever it is: it is told, and goes on
        if not isinstance(error, (Busy, Cancelled)):
            notifier.tell(_notice(error, as_told(error).message, problems, answers_of_proving("", "")))
        raise
    if not problems:
        return
    failed = (problem for problem in problems if isinstance(problem.error, VerificationError))
    worst = next(failed, problems[0])
    notifier.tell(_notice(worst.error, worst.sentence, problems, answers_of_proving(worst.machine, worst.job)))
    raise worst.error


def _notice(error: Exception, sentence: str, problems: Sequence[Problem], answers: Mapping[str, str]) -> Notice:
    at = datetime.now(UTC)
    more = f"; {len(problems)} problems in all" if len(problems) > 1 else ""
    listed = [on_one_line(problem.sentence) for problem in problems[:_MOST]]
    detail = {
        **error_detail(as_told(error)),
        **answers,
        **({"all problems": "\n".join(listed)} if more else {}),
    }
    text = f"backupd prove: {on_one_line(sentence)}{more}"
    return Notice(NoticeKind.FAILED, "", at, f"prove {at.isoformat()}", text, detail)
