"""A run on one page: a single HTML file that needs no network, no script and no neighbour."""

import base64
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from palpate.disk import write_whole
from palpate.figures import png
from palpate.metrics import Scores

STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #5c6675; --line: #dfe3e8; --page: #ffffff; --note: #fff6dd; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa5b4; --line: #333b47; --page: #14181f; --note: #3a3116; }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem 3rem; background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 1rem; overflow-wrap: anywhere; }
h2 { font-size: 1.1rem; margin: 2rem 0 .5rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { caption-side: bottom; text-align: left; color: var(--soft); font-size: .85rem; padding-top: .4rem; }
th, td { padding: .3rem 1.2rem .3rem 0; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top;
  overflow-wrap: anywhere; }
th { font-weight: 600; }
thead th, tbody th { color: var(--soft); font-weight: 400; }
.scores td, .scores thead th + th { text-align: right; }
.note { margin: .5rem 0; padding: .6rem .9rem; border-radius: .4rem; background: var(--note); }
figure { margin: 2rem 0; }
figcaption { margin-bottom: .5rem; font-weight: 600; }
img { display: block; max-width: 100%; height: auto; border-radius: .4rem; background: #ffffff; }
"""


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    facts: Mapping[str, str],
    scores: Scores | None,
    figures: Mapping[str, Figure],
    notes: Sequence[str],
) -> None:
    """Write the page: notes first, then the scores, the pictures by their captions, and the facts of the run.

    The file is replaced as a whole.
    """
    sections = (
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        _scores(scores) if scores else "",
        *(_figure(caption, figure) for caption, figure in figures.items()),
        _facts(facts) if facts else "",
    )
    body = "\n".join(filter(None, sections))
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title>
<style>{STYLE}</style>
</head>
<body>
<h1>{escape(title)}</h1>
{body}
</body>
</html>
"""
    write_whole(Path(path), page.encode())


def _scores(scores: Scores) -> str:
    rows = "\n".join(
        f"<tr><th>{escape(name)}</th><td>{value}</td><td>{constant}</td></tr>"
        for name, value, constant in scores.table()
    )
    caption = "; ".join([f"{scores.count:,} observations", *scores.notes()]) + "."
    return f"""<h2>Scores</h2>
<table class="scores">
<caption>{escape(caption)}</caption>
<thead><tr><th></th><th>learned</th><th>constant answer</th></tr></thead>
<tbody>
{rows}
</tbody>
</table>"""


def _figure(caption: str, figure: Figure) -> str:
    source = base64.b64encode(png(figure)).decode("ascii")
    return f"""<figure>
<figcaption>{escape(caption)}</figcaption>
<img alt="{escape(caption)}" src="data:image/png;base64,{source}">
</figure>"""


def _facts(facts: Mapping[str, str]) -> str:
    rows = "\n".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in facts.items())
    return f"<h2>This run</h2>\n<table><tbody>\n{rows}\n</tbody></table>"
