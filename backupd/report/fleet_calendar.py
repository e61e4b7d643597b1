"""A calendar of nights as a table of HTML: a row for each cluster, a column for each night, coloured by outcome.

Knows: the markup, which it writes itself: there may be five thousand cells, and a template takes too long for them.
Names of clusters and ids of backups are escaped here. The classes are coloured by the style of the page around it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from html import escape
from itertools import groupby
from pathlib import Path

from backupd.report.fleet_words import SIGNS, worst
from backupd.vocabulary.escaping import on_one_line
from backupd.vocabulary.fleet import FleetState

Outcome = tuple[date, str, str, FleetState]  # night, cluster, id, state
_WEEKEND = 5
_STYLE = Path(__file__).parent / "templates" / "calendar.css"
LEGEND = tuple((f"night {state.value}", SIGNS[state], state.value) for state in SIGNS)  # class, sign, words


@dataclass(frozen=True, slots=True)
class CalendarLinks:
    """Where its parts lead."""

    backup: Callable[[str], str]
    cluster: Callable[[str], str]
    night: Callable[[date], str]


@cache
def calendar_style() -> str:
    """CSS for the classes of a calendar; the colours are those of `svg.page_style`."""
    return _STYLE.read_text()


def nights_to(last: date, count: int) -> list[date]:
    """So many nights, the oldest first."""
    return [last - timedelta(days=ago) for ago in reversed(range(count))]


def calendar_table(
    outcomes: Iterable[Outcome],
    nights: Sequence[date],
    clusters: Sequence[str],
    *,
    links: CalendarLinks | None = None,
) -> str:
    """The `table` element; without links where it stands in a file."""
    cells: dict[tuple[str, date], list[tuple[str, FleetState]]] = {}
    for night, cluster, backup_id, state in outcomes:
        cells.setdefault((cluster, night), []).append((backup_id, state))
    rows = []
    for cluster in clusters:
        name = _text(cluster) if links is None else _anchor(links.cluster(cluster), _text(cluster))
        drawn = "".join(_cell(night, cells.get((cluster, night), ()), links) for night in nights)
        rows.append(f'<tr><th scope="row">{name}</th>{drawn}</tr>')
    return (
        f'<table class="calendar"><thead>{_head(nights, links)}</thead><tbody>\n{chr(10).join(rows)}\n</tbody></table>'
    )


def _head(nights: Sequence[date], links: CalendarLinks | None) -> str:
    months = "".join(
        f'<th scope="colgroup" colspan="{len(list(group))}">{month}</th>'
        for month, group in groupby(nights, key=lambda night: f"{night:%Y-%m}")
    )
    days = []
    for night in nights:
        day = f"{night:%d}"
        shown = day if links is None else _anchor(links.night(night), day, said=f"{night}")
        days.append(f'<th scope="col"{_class_of(night)}>{shown}</th>')
    return f'<tr><th rowspan="2" scope="col">Cluster</th>{months}</tr><tr>{"".join(days)}</tr>'


def _cell(night: date, backups: Sequence[tuple[str, FleetState]], links: CalendarLinks | None) -> str:
    if not backups:
        return f"<td{_class_of(night)}></td>"
    if links is None:
        state = worst(state for _, state in backups)
        assert state is not None
        return f'<td><span class="night {state.value}" title="{night}: {state.value}">{SIGNS[state]}</span></td>'
    drawn = "".join(
        f'<a class="night {state.value}" href="{escape(links.backup(backup_id))}"'
        f' title="{_text(backup_id)}: {state.value}">{SIGNS[state]}</a>'
        for backup_id, state in backups
    )
    return f"<td>{drawn}</td>"


def _class_of(night: date) -> str:
    return ' class="weekend"' if night.weekday() >= _WEEKEND else ""


def _anchor(href: str, shown: str, *, said: str = "") -> str:
    title = f' title="{said}"' if said else ""
    return f'<a href="{escape(href)}"{title}>{shown}</a>'


def _text(words: str) -> str:
    return escape(on_one_line(words))
