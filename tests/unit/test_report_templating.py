"""Templates need not remember to escape: their environment does, in reports and in the web pages alike."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from backupd.report import templating
from backupd.report.templating import environment
from backupd.vocabulary.escaping import on_one_line, plain

HOSTILE = "<b>\"'&\x1b[31m\u202eevil"
SHOWN = "&lt;b&gt;&#34;&#39;&amp;\\x1b[31m\\u202eevil"


def filled(template: str, *, how: Callable[[str], str] = on_one_line, **shown: object) -> str:
    return environment(Path("/nonexistent"), shown=how).from_string(template).render(**shown)


@pytest.mark.parametrize(
    "template",
    [
        "{{ said }}",
        '<p title="{{ said }}">',
        "{% macro p(words) %}{{ words }}{% endmacro %}{{ p(said) }}",
        "{% macro p() %}{{ caller() }}{% endmacro %}{% call p() %}{{ said }}{% endcall %}",
        "{{ [said, said]|join(', ') }}",
        "{% set kept %}{{ said }}{% endset %}{{ kept }}",
    ],
)
def test_words_from_outside_are_escaped_wherever_a_template_prints_them(template: str) -> None:
    printed = filled(template, said=HOSTILE)
    assert SHOWN in printed
    assert printed.replace(SHOWN, "").isascii()
    assert printed.isprintable()


def test_what_is_no_text_is_escaped_as_the_text_it_becomes() -> None:
    class Named:
        def __str__(self) -> str:
            return HOSTILE

    assert filled("{{ said }}", said=Named()) == SHOWN
    assert filled("{{ said }}", said=Path(HOSTILE)) == SHOWN
    assert filled("{{ number }} {{ 1.5 }} {{ 3|many('run') }}", number=7) == "7 1.5 3 runs"


def test_only_markup_is_left_alone() -> None:
    assert filled("{{ one }}{{ other|safe }}{{ other }}", one=Markup("<i>"), other="<u>") == "<i><u>&lt;u&gt;"


def test_lines_end_only_where_whoever_makes_the_environment_lets_them() -> None:
    assert filled("{{ said }}", said="a\nb\x1b") == "a\\nb\\x1b"
    assert filled("{{ said }}", said="a\nb\x1b", how=plain) == "a\nb\\x1b"


def test_a_name_that_a_template_was_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError):
        filled("{{ forgotten }}")


def test_reports_take_nothing_for_markup_but_what_report_draws_and_its_style() -> None:
    folder = Path(templating.__file__).parent / "templates"
    text = "".join(path.read_text() for path in folder.iterdir())
    assert set(re.findall(r"(\S+) *\| *(?:safe|e|escape|forceescape)\b", text)) == {
        *("picture", "calendar"),  # drawn by modules of `report`, which escape what they are given
        "page_style()",
    }
    assert "autoescape" not in text
