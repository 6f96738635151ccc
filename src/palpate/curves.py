"""The curves of a run as plain values: what reports and pages draw. Light to import."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

from palpate.palette import BLUE, COLOURS, GREY, TERMS

Style = Literal["line", "points", "level"]  # a line, one with a mark at each point, a constant


class Curve(NamedTuple):
    name: str
    points: list[tuple[float, float]]  # step and value
    colour: str
    style: Style = "line"


class Panel(NamedTuple):
    """Curves that share their axes."""

    title: str
    curves: list[Curve]
    logarithmic: bool


def panels(rows: Sequence[Mapping[str, Any]]) -> list[Panel]:
    """Panels of the loss terms over the steps of a run, and of L_test; `rows` are those of `metrics.jsonl`.

    Losses have a logarithmic axis, on which their zeros are left out. Losses that are negative somewhere, such as
    InfoNCE, have a panel with a linear axis.
    """
    series = {name: found for name in TERMS if (found := _points(rows, name))}
    colours = dict(zip(series, COLOURS, strict=False))
    signed = {name for name, points in series.items() if any(y < 0 for _, y in points)}
    drawn = []
    for title, names, logarithmic in (
        ("Losses", [name for name in series if name not in signed], True),
        ("Losses that may be negative", [name for name in series if name in signed], False),
    ):
        curves = [Curve(name, series[name], colours.get(name, GREY)) for name in names]
        drawn.append(_panel(title, curves, logarithmic=logarithmic))
    test, constant = _points(rows, "l_test"), _points(rows, "constant l_test")
    curves = [Curve("learned", test, BLUE, "points")] if test else []
    if test and constant:
        level = constant[-1][1]
        curves.append(Curve("constant predictor", [(test[0][0], level), (test[-1][0], level)], GREY, "level"))
    drawn.append(_panel("L_test (Eq. 8)", curves, logarithmic=True))
    return [panel for panel in drawn if panel.curves]


def _panel(title: str, curves: list[Curve], *, logarithmic: bool) -> Panel:
    if logarithmic:
        shown = [curve._replace(points=[(x, y) for x, y in curve.points if y > 0]) for curve in curves]
        curves = [curve for curve in shown if curve.points]
    return Panel(title, curves, logarithmic)


def _points(rows: Sequence[Mapping[str, Any]], name: str) -> list[tuple[float, float]]:
    return [(row["step"], row[name]) for row in rows if isinstance(row.get(name), int | float)]
