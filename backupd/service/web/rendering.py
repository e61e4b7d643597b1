"""How pages are made of templates, and how JSON is written.

Knows: the templates' folder and the words that only they use, JSON, and nothing of what is shown. Every value is
escaped, and shown `plain`.
"""

import json
import platform
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse

from backupd import __version__
from backupd.report import templating, words
from backupd.report.run_facts import outcome_of
from backupd.service.target_report import full_words
from backupd.vocabulary.errors import ExitStatus
from backupd.vocabulary.escaping import plain

_HERE = Path(__file__).parent
STATIC = _HERE / "static"
PLACES = (("/", "Overview"), ("/history", "History"), ("/schedule", "Schedule"), ("/targets", "Targets"))

Navigation = Sequence[tuple[str, str]]  # of the navigation: the path, and its name


@cache
def environment() -> Environment:
    """The templates of a host's pages."""
    return environment_of(_HERE / "templates", name="backupd", places=PLACES)


def environment_of(*folders: Path, name: str, places: Navigation) -> Environment:
    """The templates in these folders and, of those that they lack, the ones of a host's pages. `name`: of the site."""
    made = templating.environment(*folders, _HERE / "templates", shown=plain)
    made.filters |= {"since": _since, "meaning": _meaning, "outcome": outcome_of, "full": full_words}
    made.globals |= {"host": platform.node(), "version": __version__, "site_name": name, "places": places}
    return made


def read_templates(templates: Environment) -> None:
    """From now on no page reads a file."""
    for name in templates.list_templates():
        templates.get_template(name)


def page(request: Request, template: str, *, status: int = 200, **shown: Any) -> HTMLResponse:
    """A whole page of the application that is asked. `shown` is what its template asks for."""
    templates: Environment = request.app.state.templates
    text = templates.get_template(template).render(path=request.url.path, **shown)
    return HTMLResponse(text, status_code=status)


class AsciiJsonResponse(JSONResponse):
    """An answer for programs, in ASCII: who looks at it in a terminal is shown nothing that acts there."""

    def render(self, content: object) -> bytes:
        """What is no ASCII is escaped."""
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode("ascii")


def _meaning(exit_status: int) -> str:
    """In words; its number where it has none."""
    return next((one.meaning for one in ExitStatus if one == exit_status), f"exit status {exit_status}")


def _since(at: datetime | None, now: datetime) -> str:
    """`3 h ago`, `in 3 h`; a dash where there is no instant."""
    if at is None:
        return "-"
    seconds = (now - at).total_seconds()
    return f"{words.age(seconds)} ago" if seconds >= 0 else f"in {words.age(-seconds)}"
