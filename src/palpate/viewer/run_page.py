"""The page of a run."""

from collections.abc import Mapping
from html import escape
from typing import Any

from nicegui import ui

from palpate.findings import Finding
from palpate.runlog import FIGURES
from palpate.viewer.curves import charts
from palpate.viewer.embedded import encoded
from palpate.viewer.page import Notice, html
from palpate.viewer.run import RunFolder, Verdict
from palpate.viewer.session import Session

SECONDS = 1.0  # between two readings of the folder
CHARTS_FIRST = 0.6  # seconds before the model is loaded: importing torch would delay the first picture


def run_page(session: Session, notice: Notice) -> None:
    run = session.run
    assert run is not None
    with ui.element("div").classes("grid"):
        with ui.element("div").classes("card s5"):
            verdict = html("")
        with ui.element("div").classes("card s7") as picture_card:
            overlay = html("", "figure")
        with ui.element("div").classes("card s12"):
            html("<h2>Curves</h2>")
            progress = ui.linear_progress(value=0, show_value=False, size="5px")
            steps = html("", "soft")
            curve_row = ui.element("div").classes("grid").style("margin-top: 8px")
        figures = {}
        for name in ("distances", "error"):
            with ui.element("div").classes("card s6") as card:
                figures[name] = (card, html("", "figure"))
            card.visible = False
        with ui.element("div").classes("card s12"):
            html("<h2>Settings</h2>")
            settings = html("")

    charted: list[tuple[str, ui.echart]] = []
    seen: dict[str, Any] = {}

    def draw_curves() -> None:
        """Add new points to the charts. If a term is new, make all charts again."""
        rows = run.readings()
        found = charts(rows)
        if [chart.title for chart in found] != [title for title, _ in charted]:
            curve_row.clear()
            charted.clear()
            with curve_row:
                for chart in found:
                    with ui.element("div").classes("s4"):
                        html(escape(chart.title), "soft")
                        charted.append((chart.title, ui.echart(chart.options).style("height: 230px; width: 100%")))
        else:
            for (_, shown), chart in zip(charted, found, strict=True):
                if shown.options == chart.options:
                    continue
                shown.options.clear()
                shown.options.update(chart.options)
                shown.update()
        if not rows:
            with curve_row:
                curve_row.clear()
                html("no readings yet", "wait s12")

    def look() -> None:
        state = run.state
        if state == "gone":
            return
        if seen.get("state") != (state, run.made):
            seen["state"] = (state, run.made)
            verdict.content = notice.guard("verdict", lambda: _verdict(run)) or ""
            for card, _ in figures.values():
                card.visible = False  # of an older model
            settings.content = notice.guard("settings", lambda: _settings(run)) or ""
            if state == "complete":
                stored = run.figures()
                if "overlay" in stored:
                    show(stored, ["Figures of the run's report."])
                else:
                    overlay.content = _waiting("The model is being loaded...")
                    ui.timer(CHARTS_FIRST, start, once=True)
            else:
                overlay.content = _waiting("There is no model yet. Pictures appear when the run is complete.")
        if seen.get("version") != run.version():
            seen["version"] = run.version()
            draw_curves()
            done, planned = notice.guard("progress", run.progress) or (0, None)
            progress.visible = state != "complete"
            progress.value = done / planned if planned else 0
            steps.content = f"step {done:,} of {planned:,}" if planned else f"step {done:,}"

    def show(found: Mapping[str, bytes], notes: list[str]) -> None:
        if "overlay" in found:
            note = "".join(f'<p class="soft">{escape(each)}</p>' for each in notes)
            overlay.content = _figure("overlay", found) + note
        for name, (card, place) in figures.items():
            if name in found:
                place.content, card.visible = _figure(name, found), True

    def start() -> None:
        seen["started"] = True
        session.drawing.start()
        drawn()

    def drawn() -> None:
        """Show the figures that are ready."""
        if "started" not in seen:
            return
        drawing = session.drawing
        if seen.get("changed") == (drawing.changed, drawing.finished):
            return
        seen["changed"] = (drawing.changed, drawing.finished)
        if drawing.error:
            overlay.content = _waiting(drawing.error)
            return
        show(drawing.figures, drawing.notes)
        if "overlay" in drawing.figures:
            return
        if drawing.finished:
            overlay.content = _waiting(" ".join(drawing.notes) or "No picture can be drawn for this model.")
        elif drawing.model is not None:
            overlay.content = _waiting("Pictures are being drawn...")

    picture_card.style("min-height: 300px")
    look()
    if session.follows:
        ui.timer(SECONDS, look)
    ui.timer(0.2, drawn)


def _verdict(run: RunFolder) -> str:
    found = run.verdict()
    parts = [f"<h2>Verdict: {escape(found.word)}</h2>", f'<p class="lead">{escape(found.text)}</p>']
    if run.state == "unfinished":
        parts.append(_resume(run))
    parts += [finding_html(each) for each in found.findings]
    parts.append(_numbers(found))
    return "".join(parts)


def _resume(run: RunFolder) -> str:
    command = run.resume()
    if command is None:
        return "<p>Its data were in memory. To continue, run the same Python code with resume=True.</p>"
    return f"<p>If no process is training it, this continues it:</p><p><code>{escape(command)}</code></p>"


def finding_html(finding: Finding) -> str:
    numbers = ", ".join(f"{name.replace('_', ' ')} {value:.3g}" for name, value in finding.evidence.items())
    evidence = f' <span class="soft">({escape(numbers)})</span>' if numbers else ""
    text = f"<b>{escape(finding.what)}</b>{evidence}<br>{escape(finding.advice)}"
    return f'<div class="finding {escape(finding.severity)}">{text}</div>'


def _numbers(found: Verdict) -> str:
    return table([(name, value, meaning) for name, value, meaning in found.numbers])


def _settings(run: RunFolder) -> str:
    data, *rows = run.settings()
    half = -(-len(rows) // 2)
    columns = "".join(f'<div class="s6">{table(part)}</div>' for part in (rows[:half], rows[half:]))
    return f'<p>{escape(data[1])}</p><div class="grid settings">{columns}</div>'


def table(rows: list[tuple[str, str, str]]) -> str:
    """Name, value, meaning."""
    cells = "".join(
        f'<tr><td>{escape(name)}</td><td class="number">{escape(value)}</td><td class="soft">{escape(text)}</td></tr>'
        for name, value, text in rows
    )
    return f'<table class="plain">{cells}</table>' if cells else ""


def _figure(name: str, figures: Mapping[str, bytes]) -> str:
    caption = escape(FIGURES[name])
    return f'<h2>{caption}</h2><img alt="{caption}" src="{encoded(figures[name])}">'


def _waiting(text: str) -> str:
    return f'<div class="wait">{escape(text)}</div>'
