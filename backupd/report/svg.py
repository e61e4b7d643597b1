"""SVG as text: elements, escaped; the colours of every picture, for light and dark; a picture that stands alone.

Knows: the markup. Needs no network, no script and no font beyond the reader's own.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from backupd.vocabulary.escaping import on_one_line

NAMESPACE = "http://www.w3.org/2000/svg"

_LIGHT = {  # by class: what it paints
    "paper": "#ffffff",
    "ink": "#1f2733",
    "soft": "#5b6675",
    "grid": "#e1e5eb",
    "level": "#b3261e",
    "s0": "#1f5fd0",
    "s1": "#c2540a",
    "s2": "#0b7f72",
    "s3": "#7a3fc4",
    "s4": "#a8386b",
    "s5": "#5d6b1f",
}
_DARK = {
    "paper": "#14181f",
    "ink": "#e8ecf2",
    "soft": "#a3aebd",
    "grid": "#2e3642",
    "level": "#ff8a80",
    "s0": "#7fb0ff",
    "s1": "#ffab66",
    "s2": "#4fd6c4",
    "s3": "#c6a3ff",
    "s4": "#ff9cc5",
    "s5": "#c9d66b",
}
COLOURS = tuple(name for name in _LIGHT if name.startswith("s") and name[1:].isdigit())
_FONTS = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, 'DejaVu Sans', sans-serif"


def style(*, within: str = "") -> str:
    """CSS for the classes of all pictures; `within` is a selector that it is limited to.

    `fill-…` paints areas and text, `line-…` strokes; `halo` sets text off from the lines below it.
    """
    return (
        f"{within} text {{ font: 13px {_FONTS}; }}\n{within} .small {{ font-size: 12px; }}\n"
        f"{within} .halo {{ paint-order: stroke; stroke-width: 4px; stroke-linejoin: round; }}\n"
        f"{within} .title {{ font-size: 15px; font-weight: 600; }}\n{_paint(_LIGHT, within)}\n"
        f"@media (prefers-color-scheme: dark) {{\n{_paint(_DARK, within)}\n}}"
    )


def page_style() -> str:
    """CSS for a page with pictures in it: their colours as variables, `--paper` and so on, and their classes."""
    light, dark = (" ".join(f"--{name}: {value};" for name, value in colours.items()) for colours in (_LIGHT, _DARK))
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n{style(within='svg')}\n"
    )


def _paint(colours: dict[str, str], within: str) -> str:
    halo = f"{within} .halo {{ stroke: {colours['paper']}; }}\n"
    return halo + "\n".join(
        f"{within} .fill-{name} {{ fill: {value}; }} {within} .line-{name} {{ stroke: {value}; fill: none; }}".strip()
        for name, value in colours.items()
    )


def element(name: str, content: str = "", /, **attributes: object) -> str:
    """One element; attribute names with underscores are written with dashes, `cls` as class. Content is markup."""
    said = "".join(
        f' {"class" if key == "cls" else key.replace("_", "-")}="{escape(_value(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{said}>{content}</{name}>" if content else f"<{name}{said}/>"


def label(x: float, y: float, text: str, *, cls: str = "fill-ink", **attributes: object) -> str:
    """Text at a place."""
    return element("text", escape(on_one_line(text)), x=x, y=y, cls=cls, **attributes)


def polyline(points: Iterable[tuple[float, float]], **attributes: object) -> str:
    """A line through these places."""
    return element("polyline", points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points), **attributes)


@dataclass(frozen=True, slots=True)
class Picture:
    """Drawn parts, and the words for those who cannot see them."""

    width: int
    height: int
    title: str
    description: str
    parts: Sequence[str]

    def text(self, *, alone: bool) -> str:
        """The `svg` element. `alone`: with style and background of its own, so that it can be a file."""
        ground = element("rect", width=self.width, height=self.height, cls="fill-paper")
        own = [element("style", style()), ground] if alone else []
        return element(
            "svg",
            "\n".join(
                [
                    element("title", escape(on_one_line(self.title)) or " "),
                    element("desc", escape(on_one_line(self.description)) or " "),
                    *own,
                    *self.parts,
                ]
            ),
            xmlns=NAMESPACE,
            viewBox=f"0 0 {self.width} {self.height}",
            width=self.width,
            height=self.height,
            role="img",
        )


def _value(value: object) -> str:
    return f"{value:.1f}" if isinstance(value, float) else on_one_line(str(value))
