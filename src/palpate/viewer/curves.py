"""The curves of a run as options of ECharts, which the page updates while they grow."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from palpate.palette import BLUE, COLOURS, GREY, TERMS

MOST_POINTS = 600  # of a curve; more would not be visible
DECADES = 4.0  # that a logarithmic axis shows at least down to its lowest value


class Chart(NamedTuple):
    title: str
    options: dict[str, Any]


def charts(rows: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """Charts of the loss terms and of L_test. Axes are logarithmic, but linear for terms with negative values.

    As in `figures.curves`: the same terms, order and colours.
    """
    series = {name: found for name in TERMS if (found := points(rows, name))}
    signed = {name for name, found in series.items() if any(y <= 0 for _, y in found)}
    colours = dict(zip(series, COLOURS, strict=False))
    drawn = []
    for title, names, scale in (
        ("Losses", [name for name in series if name not in signed], "log"),
        ("Losses that may be negative", [name for name in series if name in signed], "value"),
    ):
        if names:
            lines = [_line(name, series[name], colours.get(name, GREY)) for name in names]
            drawn.append(Chart(title, _chart(lines, scale)))
    test, constant = points(rows, "l_test"), points(rows, "constant l_test")
    if test:
        lines = [_line("learned", test, BLUE, symbols=True)]
        if constant:
            flat = [[test[0][0], constant[-1][1]], [test[-1][0], constant[-1][1]]]
            lines.append(_line("constant predictor", flat, GREY, dashed=True))
        drawn.append(Chart("L_test (Eq. 8)", _chart(lines, "log")))
    return drawn


def points(rows: Sequence[Mapping[str, Any]], name: str) -> list[list[float]]:
    """Steps and values of one term, at most `MOST_POINTS` of them; the last one is always kept."""
    known = [[row["step"], row[name]] for row in rows if isinstance(row.get(name), int | float)]
    stride = -(-len(known) // MOST_POINTS) or 1
    return known[::-1][::stride][::-1]


def _line(
    name: str, data: list[list[float]], colour: str, *, symbols: bool = False, dashed: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "type": "line",
        "data": data,
        "showSymbol": symbols or len(data) == 1,
        "symbolSize": 5,
        "lineStyle": {"width": 1.8, "type": "dashed" if dashed else "solid"},
        "itemStyle": {"color": colour},
    }


def _chart(lines: list[dict[str, Any]], scale: str) -> dict[str, Any]:
    text = {"color": "#666", "fontSize": 11}
    axis = {
        "axisLabel": text,
        "axisLine": {"lineStyle": {"color": "#bbb"}},
        "splitLine": {"lineStyle": {"color": "#eee"}},
    }
    return {
        "animation": False,
        "grid": {"left": 52, "right": 16, "top": 34, "bottom": 34},
        "legend": {"top": 0, "left": 0, "itemWidth": 16, "itemHeight": 8, "textStyle": text},
        "tooltip": {"trigger": "axis", "confine": True},
        "xAxis": {
            "type": "value",
            "name": "step",
            "nameLocation": "middle",
            "nameGap": 20,
            "nameTextStyle": text,
            **axis,
        },
        "yAxis": {"type": scale, "scale": True, **axis},
        "series": lines,
    }
