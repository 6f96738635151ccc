import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
import torch
from matplotlib.figure import Figure

from palpate.data.labelled import Truth
from palpate.groups.translations import Translations
from palpate.methods.base import Encoding
from palpate.metrics.measure import measure
from palpate.metrics.scores import Scores
from palpate.report import write_report


def drawing() -> Figure:
    figure = Figure(figsize=(1, 1))
    figure.add_subplot().plot([0, 1])
    return figure


def scores() -> Scores:
    agent, thing = torch.rand(2, 50, 2, generator=torch.Generator().manual_seed(0))
    return measure(Translations(2), Encoding(agent, thing[:, None]), Truth(agent, thing))


def write(path: Path, **changes: object) -> str:
    page = {
        "title": "Sprites <b>&",
        "facts": {"<seed>": "0 & 1"},
        "quality": [("drift <", "0.1", "over & ten")],
        "scores": scores(),
        "figures": {"Where things <are>": drawing(), "Curves": drawing()},
        "notes": ["not <separable>"],
    }
    write_report(path, **(page | changes))  # type: ignore[arg-type]
    return path.read_text(encoding="utf-8")


def test_the_page_stands_alone(tmp_path: Path) -> None:
    page = write(tmp_path / "report.html")
    text = re.sub(r"data:image/png;base64,[A-Za-z0-9+/=]+", "", page)  # random letters may spell anything
    assert not re.search(r"http|<script|<link|@import|url\(", text, re.IGNORECASE)
    assert "color-scheme: light dark" in text
    assert 'name="viewport"' in text


def test_everything_is_escaped_and_well_formed(tmp_path: Path) -> None:
    page = write(tmp_path / "report.html")
    assert "<title>Sprites &lt;b&gt;&amp;</title>" in page
    assert "<h1>Sprites &lt;b&gt;&amp;</h1>" in page
    assert "<th>&lt;seed&gt;</th><td>0 &amp; 1</td>" in page
    assert "not &lt;separable&gt;" in page
    assert "<th>drift &lt;</th><td>0.1</td><td>over &amp; ten</td>" in page
    assert not {"b", "seed", "are", "separable"} & set(balanced_tags(page))


def balanced_tags(page: str) -> list[str]:
    """All tags of a page in which each one that opens is closed in turn."""
    seen: list[str] = []
    opened: list[str] = []

    class Reader(HTMLParser):
        def handle_starttag(self, tag: str, attrs: object) -> None:
            seen.append(tag)
            if tag not in ("meta", "img"):
                opened.append(tag)

        def handle_endtag(self, tag: str) -> None:
            assert opened.pop() == tag

    Reader().feed(page)
    assert not opened
    return seen


def test_each_figure_is_there_once(tmp_path: Path) -> None:
    page = write(tmp_path / "report.html")
    assert page.count("data:image/png;base64,") == 2
    assert re.findall(r"<figcaption>(.*?)</figcaption>", page) == ["Where things &lt;are&gt;", "Curves"]


def test_scores_stand_beside_the_constant_answer(tmp_path: Path) -> None:
    page = write(tmp_path / "report.html")
    for name, value, constant in scores().table():
        assert f"<tr><th>{name}</th><td>{value}</td><td>{constant}</td></tr>" in page
    assert "Scores" not in write(tmp_path / "bare.html", scores=None, figures={}, facts={}, notes=[])


def test_a_failure_leaves_the_old_page(tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    before = write(path)

    class Broken(Figure):
        def savefig(self, *_: object, **__: object) -> None:
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        write(path, figures={"broken": Broken()})
    with pytest.raises(UnicodeEncodeError):
        write(path, title="\ud800")
    assert path.read_text(encoding="utf-8") == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["report.html"]
