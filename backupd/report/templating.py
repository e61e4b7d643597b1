"""How templates are filled, those of the reports and those of the web pages: what is escaped, and words for figures.

Knows: Jinja, and nothing of what is shown. Escaping is the environment's doing: a template cannot forget it, only
refuse it with `safe`. Import this module late: Jinja takes longer to load than most commands take to answer.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from backupd.report import words
from backupd.report.svg import page_style
from backupd.vocabulary.escaping import on_one_line


def environment(*folders: Path, shown: Callable[[str], str]) -> Environment:
    """For the templates in these folders; of two with one name the first is taken.

    Whatever they print goes through `shown` (`on_one_line` or `plain`) and is escaped for HTML; only `Markup` is left
    alone. A name that a template was not given is an error (`jinja2.UndefinedError`).
    """
    made = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        auto_reload=False,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        finalize=lambda value: value if isinstance(value, Markup) else shown(str(value)),
    )
    made.filters |= {
        "size": words.size,
        "duration": words.duration,
        "ratio": words.ratio,
        "share": words.share,
        "figure": words.figure,
        "instant": words.instant,
        "age": words.age,
        "many": words.many,
    }
    return made


def report(template: str, *, title: str, subtitle: str, **shown: object) -> str:
    """A whole report, as the text of an HTML file. `shown` is what its template asks for."""
    return _reports().get_template(template).render(title=title, subtitle=subtitle, **shown)


@cache
def _reports() -> Environment:
    made = environment(Path(__file__).parent / "templates", shown=on_one_line)
    made.filters["capital"] = lambda said: f"{said[:1].upper()}{said[1:]}"
    made.globals["page_style"] = page_style
    return made
