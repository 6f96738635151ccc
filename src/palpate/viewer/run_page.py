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
from palpate.viewer.run import RunFolder, State, Verdict
from palpate.viewer.session import Session

SECONDS = 1.0  # between two readings of the folder
CHARTS_FIRST = 0.6  # seconds before the model is loaded: importing torch would delay the first picture


def run_page(session: Session, notice: Notice) -> None:
    assert session.run is not None
    _Page(session, session.run, notice)


class _Page:
    """The elements of the page, and what they show."""

    def __init__(self, session: Session, run: RunFolder, notice: Notice) -> None:
        self.session, self.run, self.notice = session, run, notice
        self.charted: list[tuple[str, ui.echart]] = []
        self.started = False  # whether the figures are being drawn
        self.seen: dict[str, Any] = {}  # what is shown: the run's state, the version of its readings, the figures
        self._build()
        self._look()
        if session.follows:
            ui.timer(SECONDS, self._look)
        ui.timer(0.2, self._show_drawn)

    def _build(self) -> None:
        with ui.element("div").classes("grid"):
            with ui.element("div").classes("card s5"):
                self.verdict = html("")
            with ui.element("div").classes("card s7").style("min-height: 300px"):
                self.overlay = html("", "figure")
            with ui.element("div").classes("card s12"):
                html("<h2>Curves</h2>")
                self.progress = ui.linear_progress(value=0, show_value=False, size="5px")
                self.steps = html("", "soft")
                self.curves = ui.element("div").classes("grid").style("margin-top: 8px")
            self.figures = {}
            for name in ("distances", "error"):
                with ui.element("div").classes("card s6") as card:
                    self.figures[name] = (card, html("", "figure"))
                card.visible = False
            with ui.element("div").classes("card s12"):
                html("<h2>Settings</h2>")
                self.settings = html("")

    def _is_new(self, topic: str, value: Any) -> bool:
        """Whether this differs from what is shown; from now on it is shown."""
        before, self.seen[topic] = self.seen.get(topic), value
        return bool(before != value)

    def _look(self) -> None:
        """Show the present content of the folder."""
        state = self.run.state
        if state == "gone":
            return
        if self._is_new("state", (state, self.run.made)):
            self._show_state(state)
        if self._is_new("version", self.run.version()):
            self._draw_curves()
            done, planned = self.notice.guard("progress", self.run.progress) or (0, None)
            self.progress.visible = state != "complete"
            self.progress.value = done / planned if planned else 0
            self.steps.content = f"step {done:,} of {planned:,}" if planned else f"step {done:,}"

    def _show_state(self, state: State) -> None:
        self.verdict.content = self.notice.guard("verdict", lambda: _verdict(self.run)) or ""
        for card, _ in self.figures.values():
            card.visible = False  # of an older model
        self.settings.content = self.notice.guard("settings", lambda: _settings(self.run)) or ""
        if state != "complete":
            self.overlay.content = _waiting("There is no model yet. Pictures appear when the run is complete.")
        elif "overlay" in (stored := self.run.figures()):
            self._show(stored, ["Figures of the run's report."])
        else:
            self.overlay.content = _waiting("The model is being loaded...")
            ui.timer(CHARTS_FIRST, self._start, once=True)

    def _draw_curves(self) -> None:
        """Add new points to the charts. If a term is new, make all charts again."""
        rows = self.run.readings()
        found = charts(rows)
        if [chart.title for chart in found] != [title for title, _ in self.charted]:
            self.curves.clear()
            self.charted.clear()
            with self.curves:
                for chart in found:
                    with ui.element("div").classes("s4"):
                        html(escape(chart.title), "soft")
                        made = ui.echart(chart.options).style("height: 230px; width: 100%")
                        self.charted.append((chart.title, made))
        else:
            for (_, shown), chart in zip(self.charted, found, strict=True):
                if shown.options != chart.options:
                    shown.options.clear()
                    shown.options.update(chart.options)
                    shown.update()
        if not rows:
            with self.curves:
                self.curves.clear()
                html("no readings yet", "wait s12")

    def _start(self) -> None:
        self.started = True
        self.session.drawing.start()
        self._show_drawn()

    def _show_drawn(self) -> None:
        """Show the figures that are ready."""
        if not self.started:
            return
        drawing = self.session.drawing
        if not self._is_new("figures", (drawing.changed, drawing.finished)):
            return
        if drawing.error:
            self.overlay.content = _waiting(drawing.error)
            return
        self._show(drawing.figures, drawing.notes)
        if "overlay" in drawing.figures:
            return
        if drawing.finished:
            self.overlay.content = _waiting(" ".join(drawing.notes) or "No picture can be drawn for this model.")
        elif drawing.model is not None:
            self.overlay.content = _waiting("Pictures are being drawn...")

    def _show(self, found: Mapping[str, bytes], notes: list[str]) -> None:
        if "overlay" in found:
            note = "".join(f'<p class="soft">{escape(each)}</p>' for each in notes)
            self.overlay.content = _figure("overlay", found) + note
        for name, (card, place) in self.figures.items():
            if name in found:
                place.content, card.visible = _figure(name, found), True


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
