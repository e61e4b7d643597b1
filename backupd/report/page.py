"""The frame of every report that can be mailed: one file, pictures inline, no network, no script, light and dark.

Knows: the markup and its looks. Words are escaped here; markup is put together of it.
"""

from collections.abc import Iterable, Sequence
from html import escape

from backupd.report.svg import page_style
from backupd.vocabulary.escaping import on_one_line


def page(title: str, body: Sequence[str]) -> str:
    """The whole file around these sections."""
    head = (
        '<meta charset="utf-8"/>\n<meta name="viewport" content="width=device-width, initial-scale=1"/>\n'
        f'<meta name="color-scheme" content="light dark"/>\n<title>{text(title)}</title>\n<style>{_STYLE}</style>'
    )
    return (
        f'<!DOCTYPE html>\n<html lang="en">\n<head>\n{head}\n</head>\n<body>\n<main>\n'
        + "\n".join(body)
        + "\n</main>\n</body>\n</html>\n"
    )


def text(words: str) -> str:
    """Words as markup."""
    return escape(on_one_line(words))


def tag(name: str, content: str, *, cls: str = "") -> str:
    """An element around markup."""
    return f'<{name} class="{escape(cls)}">{content}</{name}>' if cls else f"<{name}>{content}</{name}>"


def cell(name: str, words: str, *, figures: bool) -> str:
    """Of a table; figures end together."""
    return tag(name, text(words), cls="figures" if figures else "")


def figure(picture: str, words: str) -> str:
    """A picture with its caption; on a narrow screen it is moved sideways rather than made too small to read."""
    return tag("figure", tag("div", picture, cls="scroll") + tag("figcaption", text(words), cls="soft"))


def facts_list(facts: Iterable[tuple[str, str]]) -> str:
    """Names and what is said of them."""
    return tag("dl", "\n".join(tag("dt", text(name)) + tag("dd", text(words)) for name, words in facts))


_STYLE = f"""
{page_style()}body {{ margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, 'Segoe UI', Roboto, Arial, 'DejaVu Sans', sans-serif; }}
main {{ max-width: 900px; margin: 0 auto; padding: 24px 20px 48px; }}
h1 {{ font-size: 26px; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }}
h2 {{ font-size: 18px; margin: 36px 0 8px; }}
h3 {{ font-size: 15px; margin: 28px 0 4px; }}
p {{ margin: 4px 0; }}
.soft {{ color: var(--soft); font-size: 13px; }}
.cards {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(200px, 1fr)); gap: 12px;
  margin-top: 20px; }}
.card {{ border: 1px solid var(--grid); border-radius: 8px; padding: 10px 16px; }}
.large {{ font-size: 26px; font-weight: 650; color: var(--s0); font-variant-numeric: tabular-nums; }}
.large span {{ font-size: 14px; font-weight: 400; color: var(--soft); }}
figure {{ margin: 28px 0 0; }}
figure svg {{ min-width: 620px; max-width: 100%; height: auto; display: block; }}
.scroll {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: 13px; white-space: nowrap; margin: 8px 0; }}
th {{ text-align: left; color: var(--soft); font-weight: 600; border-bottom: 2px solid var(--grid); }}
th, td {{ padding: 4px 12px 4px 0; }}
td {{ border-bottom: 1px solid var(--grid); }}
.figures {{ text-align: right; font-variant-numeric: tabular-nums; }}
tr.baseline td {{ color: var(--soft); }}
dl {{ display: grid; grid-template-columns: max-content 1fr; gap: 4px 20px; margin: 0; }}
dt {{ color: var(--soft); }}
dd {{ margin: 0; overflow-wrap: anywhere; }}
@media print {{ figure svg {{ min-width: 0; }} figure, .card, section {{ break-inside: avoid; }} }}
"""
