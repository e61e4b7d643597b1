"""The page of exit statuses, and the errors that end with each."""

from collections.abc import Iterator

from backupd.vocabulary import errors
from backupd.vocabulary.errors import BackupdError, ExitStatus


def page() -> str:
    """The table of statuses, then the errors by their stable codes."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    yield "# Exit statuses"
    yield ""
    yield "| status | meaning |"
    yield "|---|---|"
    for status in ExitStatus:
        yield f"| {status.value} | {status.meaning} |"
    yield ""
    yield "`backupd lab run` ends with its command's own status; 125 when the lab itself failed, 124 at its deadline."
    yield ""
    yield "## Error codes"
    yield ""
    yield "With `--json` an error is a document too: `error.code` is one of these, `error.message` says what happened,"
    yield "`error.hint` what to do about it."
    yield ""
    yield "| code | status | when |"
    yield "|---|---|---|"
    for kind in _kinds():
        said = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
        yield f"| `{kind('').code}` | {kind.exit_status.value} | {said} |"


def _kinds() -> list[type[BackupdError]]:
    found = [one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, BackupdError)]
    return [one for one in found if one is not BackupdError]
