"""The report of a run: one HTML file that needs no network, no script and no other file."""

import base64
import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from matplotlib.figure import Figure

from palpate.disk import write_whole
from palpate.figures import png
from palpate.metrics.scores import Scores

STYLE = """
:root { color-scheme: light dark; }
body { margin: 0 auto; max-width: 62rem; padding: 1.5rem 1rem; font: 1rem/1.5 system-ui, sans-serif; }
h1, th, td { overflow-wrap: anywhere; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
caption { caption-side: bottom; text-align: left; font-size: .85rem; }
th, td { padding: .3rem 1.2rem .3rem 0; border-bottom: 1px solid #8886; text-align: left; vertical-align: top; }
th { font-weight: 400; opacity: .7; }
.note { padding: .6rem .9rem; border-radius: .4rem; background: #fc33; }
figure { margin: 2rem 0; }
figcaption { margin-bottom: .5rem; font-weight: 600; }
img { max-width: 100%; height: auto; background: #fff; }
"""


def write_report(
    path: str | os.PathLike[str],
    *,
    title: str,
    facts: Mapping[str, str],
    quality: Sequence[tuple[str, str, str]] = (),
    scores: Scores | None,
    figures: Mapping[str, Figure],
    notes: Sequence[str],
) -> None:
    """Write the page: notes, quality, scores, figures by their captions, and the facts of the run.

    `quality` has a name, a value and a meaning for each measurement made without true states.
    """
    sections = (
        *(f'<p class="note">{escape(note)}</p>' for note in notes),
        _quality(quality) if quality else "",
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


def _quality(measurements: Sequence[tuple[str, str, str]]) -> str:
    rows = "\n".join(
        f"<tr><th>{escape(name)}</th><td>{escape(value)}</td><td>{escape(meaning)}</td></tr>"
        for name, value, meaning in measurements
    )
    return f"<h2>Quality, without true states</h2>\n<table><tbody>\n{rows}\n</tbody></table>"


def _scores(scores: Scores) -> str:
    rows = "\n".join(
        f"<tr><th>{escape(name)}</th><td>{value}</td><td>{constant}</td></tr>"
        for name, value, constant in scores.table()
    )
    caption = "; ".join([f"{scores.count:,} observations", *scores.notes()]) + "."
    return f"""<h2>Scores</h2>
<table>
<caption>{escape(caption)}</caption>
<thead><tr><th></th><th>learned</th><th>constant predictor</th></tr></thead>
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
