"""The curves of a run as options of ECharts, which the page updates while they grow."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from palpate.curves import Curve, panels

MOST_POINTS = 600  # of a curve; more would not be visible


class Chart(NamedTuple):
    title: str
    options: dict[str, Any]


def charts(rows: Sequence[Mapping[str, Any]]) -> list[Chart]:
    """A chart for each of the panels that a report has too."""
    return [
        Chart(panel.title, _chart([_line(curve) for curve in panel.curves], "log" if panel.logarithmic else "value"))
        for panel in panels(rows)
    ]


def thinned(points: Sequence[tuple[float, float]]) -> list[list[float]]:
    """At most `MOST_POINTS` of the points; the last one is always kept."""
    stride = -(-len(points) // MOST_POINTS) or 1
    return [list(point) for point in points[::-1][::stride][::-1]]


def _line(curve: Curve) -> dict[str, Any]:
    return {
        "name": curve.name,
        "type": "line",
        "data": thinned(curve.points),
        "showSymbol": curve.style == "points" or len(curve.points) == 1,
        "symbolSize": 5,
        "lineStyle": {"width": 1.8, "type": "dashed" if curve.style == "level" else "solid"},
        "itemStyle": {"color": curve.colour},
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
