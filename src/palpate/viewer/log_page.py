"""The page of a log."""

import asyncio
import time
from html import escape
from typing import TYPE_CHECKING, Any

from nicegui import background_tasks, ui

from palpate.viewer.page import Notice, awaited, html, legend
from palpate.viewer.run_page import finding_html
from palpate.viewer.session import SHOWN, Session, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from palpate.doctor.check import Checkup
    from palpate.viewer.log import Log, ShownTriple
    from palpate.viewer.ranking import Ranking
    from palpate.viewer.search import Matches

LISTED = 10  # rows of each list
LIST_SECONDS = 2.0  # between two looks at lists that are being computed
REST_SECONDS = 0.1  # after which a row is explained, if no other one is wanted
NO_MODEL = "There is no model here. <code>palpate view LOG --model runs/x</code> shows the outputs of one for this log."


class Latest:
    """Runs the newest of several requests; older ones that still wait are dropped."""

    def __init__(self, work: Any) -> None:
        self._work, self._busy = work, False
        self._waiting: tuple[Any] | None = None

    async def __call__(self, request: Any) -> None:
        self._waiting = (request,)
        if self._busy:
            return
        self._busy = True
        try:
            while self._waiting is not None:
                (newest,), self._waiting = self._waiting, None
                await self._work(newest)
        finally:
            self._busy = False

    @property
    def waiting(self) -> bool:
        return self._waiting is not None


class _Links:
    """Buttons of rows. They are one element: the lists change often, and many elements would slow down the browser."""

    def __init__(self, wanted: "Callable[[int], None]", title: str = "") -> None:
        self.place, self.title = html("", "rows"), title
        self.place.on(
            "click",
            lambda event: wanted(int(event.args)),
            js_handler="(e) => { const row = e.target.dataset.row; if (row !== undefined) emit(row); }",
        )

    def show(self, rows: "Sequence[tuple[int, float | None]]") -> None:
        """Rows, each with a number for its tooltip."""
        tips = ("" if value is None else f' title="{value:.2g}"' for _, value in rows)
        buttons = "".join(
            f'<button data-row="{row}"{tip}>{row:,}</button>' for (row, _), tip in zip(rows, tips, strict=True)
        )
        title = f'<span class="soft">{escape(self.title)}</span>' if self.title else ""
        self.place.content = title + buttons


def log_page(session: Session, notice: Notice) -> None:
    awaited("The log is being opened...", lambda: session.log, lambda log: _Pages(session, notice, log))


class _Pages:
    """The elements of the page, and the row that is shown."""

    def __init__(self, session: Session, notice: Notice, log: "Log") -> None:
        self.session, self.notice, self.log, self.row = session, notice, log, 0
        self.ranking: Ranking | None = None
        self.latest, self.rest = Latest(self._show), Latest(self._explain)
        self.listed = 0.0  # when the lists were shown last
        self._build()
        ui.timer(0.1, self._begin, once=True)
        ui.timer(0.5, self._refresh)

    def _build(self) -> None:
        with ui.element("div").classes("grid"):
            with ui.element("div").classes("card s12"):
                self._build_controls()
            self.pictures = [self._picture()]
            with ui.element("div").classes("card s4"):
                html("<h2>a, in the learned plane</h2>" if self.log.model else "<h2>a</h2>")
                self.plane, self.action = html(""), html("", "soft").style("margin-top: 10px")
            self.pictures.append(self._picture())
            with ui.element("div").classes("card s6"):
                self.says = html("")
            with ui.element("div").classes("card s6"):
                self._build_lists()
            with ui.element("div").classes("card s12"):
                self._build_doctor()

    def _build_controls(self) -> None:
        last, filters = len(self.log) - 1, self.log.search.filters(model=self.log.model is not None)
        with ui.element("div").classes("controls"):
            html("<b>Triple</b>")
            self.number = ui.input(value="0").props("dense outlined").style("width: 110px").mark("row")
            self.number.tooltip("a row, or EPISODE:FRAME")
            self.number.on_value_change(lambda e: self._typed(str(e.value or "")))
            ui.button(icon="chevron_left", on_click=lambda: self._step(-1)).props("flat dense round")
            self.slider = ui.slider(min=0, max=max(last, 1), value=0).classes("slider")
            self.slider.on_value_change(lambda e: self._slid(e.value))
            ui.button(icon="chevron_right", on_click=lambda: self._step(1)).props("flat dense round")
            ui.button("Random", on_click=lambda: self._wanted(self._matches().random())).props("outline dense no-caps")
            self.filter = ui.select(filters, value="all").props("dense outlined options-dense").style("width: 215px")
            self.filter.on_value_change(self._filtered)
            self.filter.visible = len(filters) > 1
        with ui.element("div").classes("controls").style("margin-top: 6px"):
            self.where, self.passing = html("", "soft"), html("", "soft")
            ui.element("div").style("flex: 1")
            html(legend(model=self.log.model is not None, true=self.log.truth is not None), "legend")

    def _picture(self) -> tuple[Any, ui.interactive_image, Any]:
        with ui.element("div").classes("card s4"):
            title, values = html(""), html("")
            return title, ui.interactive_image(sanitize=False).classes("scene"), values

    def _build_lists(self) -> None:
        html("<h2>Rows worth a look</h2>")
        if self.log.model is None:
            html("These lists need the outputs of a model.", "soft")
            return
        self.progress = ui.linear_progress(value=0, show_value=False, size="5px")
        self.counted = html("", "soft")
        self.lists: dict[str, tuple[_Links, list[tuple[int, float]]]] = {}
        for name, title in (
            ("doubtful", "Most doubtful contacts"),
            ("unexplained", "Worst explained by geometry"),
            ("nearest", "Nearest in W to the shown one (the same scene)"),
        ):
            html(escape(title), "soft").style("margin-top: 8px")
            self.lists[name] = (_Links(self._wanted), [])

    def _build_doctor(self) -> None:
        html("<h2>Findings about the data</h2>")
        self.findings = ui.element("div").style("width: 100%")
        with self.findings:
            html("The arrays are being checked...", "soft")
        self.examined = self.checked = False
        with ui.element("div").classes("controls").style("margin-top: 8px"):
            self.check = ui.button("Check with a short training run", on_click=self._check).props(
                "outline dense no-caps"
            )
            self.check_note = html("It takes about a minute, as palpate check does.", "soft")

    async def _begin(self) -> None:
        await self.latest(0)
        self.ranking = self.session.ranking(self.log)
        self.session.examination(self.log)
        try:
            changed = await asyncio.to_thread(self.log.prepare)
        except SHOWN as error:
            self.notice.show("marks", f"nothing can be drawn on the pictures: {one_line(error)}")
            return
        if changed:
            await self.latest(self.row)

    def _matches(self) -> "Matches":
        """The rows that pass the filter, as far as they are known."""
        contact = None if self.ranking is None else self.ranking.contact
        return self.log.search.matching(str(self.filter.value), contact)

    def _typed(self, text: str) -> None:
        try:
            row = self.log.search.find(text)
        except ValueError as error:
            self.where.content = escape(str(error)) if text else ""
            return
        self._wanted(row)

    def _slid(self, value: float | None) -> None:
        row = self.log.row(value)
        if row != self.row:
            self._wanted(self._matches().nearest(row))

    def _step(self, step: int) -> None:
        self._wanted(self._matches().beside(self.row, step))

    def _filtered(self) -> None:
        self._count()
        self._wanted(self._matches().nearest(self.row))

    def _count(self) -> None:
        """How many rows pass the filter."""
        if self.filter.value == "all":
            self.passing.content = ""
            return
        partial = self.filter.value[:4] != "true" and self.ranking is not None and not self.ranking.finished
        more = " so far" if partial else ""
        self.passing.content = f"{len(self._matches().rows):,} of {len(self.log):,} triples pass the filter{more}"

    def _wanted(self, row: int | None) -> None:
        """Show another row, if there is one; of several requests, only the newest counts."""
        if row is None or row == self.row:
            return
        self.row = row
        if self.ranking is not None:
            self.ranking.yield_to_user()
        background_tasks.create(self.latest(row))  # not a timer: it would be deleted with the button of a list

    async def _show(self, row: int) -> None:
        """Show the pictures and the estimates at once; the rest follows when no other row is wanted."""
        try:
            shown = await asyncio.to_thread(self.log.show, row, whole=False)
        except SHOWN as error:
            self.notice.show("log", one_line(error))
            return
        self.notice.show("log", "")
        self._draw(shown)
        if not self.latest.waiting:
            background_tasks.create(self.rest(row))

    async def _explain(self, row: int) -> None:
        """Show the outputs about contact and the nearest rows, which take longer than the pictures."""
        await asyncio.sleep(REST_SECONDS)
        if row != self.row:
            return
        try:
            shown = await asyncio.to_thread(self.log.show, row)
        except SHOWN as error:
            self.notice.show("log", one_line(error))
            return
        if row != self.row:
            return
        note = f'<p class="soft">{escape(self.log.note)}</p>' if self.log.note else ""
        self.says.content = _says(shown, self.log.aligned) + note
        await self._list(["nearest"])

    def _draw(self, shown: "ShownTriple") -> None:
        if not self.latest.waiting:
            self.slider.value = shown.row
            self._name(shown.row)
        for (title, image, values), panel in zip(self.pictures, shown.panels, strict=True):
            title.content = f"<h2>{escape(panel.title)}</h2>"
            image.visible = bool(panel.source)
            if panel.source:
                image.set_source(panel.source)
                image.set_content(panel.marks)
            values.content = _vector(panel.values)
        self.plane.content = shown.plane
        drawn = _drawn(shown, turns=self.log.scene.turns) if shown.plane else ""
        self.action.content = f"action {escape(', '.join(f'{x:.3g}' for x in shown.action))}.{drawn}"
        self.row = self.row if self.latest.waiting else shown.row

    def _name(self, row: int) -> None:
        """Show the row's number, episode and frame; a text that names the row already is left as it is."""
        search, text = self.log.search, str(self.number.value or "")
        try:
            named = search.find(text)
        except ValueError:
            named = -1
        if named != row:
            self.number.value = text = str(row)
        place, instead = search.where(row), search.instead(text)
        of_episode = "" if place is None else f", episode {place[0]}, frame {place[1]}"
        self.where.content = f"row {row:,} of {len(self.log):,}{of_episode}" + (f" ({instead})" if instead else "")

    async def _refresh(self) -> None:
        """Show new entries of the lists and new findings."""
        ranking = self.ranking
        if ranking is not None and self.progress.visible:
            self._count()
            finished = ranking.finished  # read first: the lists must hold the last block
            self.progress.value = ranking.done / ranking.total
            self.counted.content = escape(ranking.error) or f"{ranking.done:,} of {ranking.total:,} triples"
            if finished or time.monotonic() - self.listed > LIST_SECONDS:
                self.listed = time.monotonic()
                await self._list(list(self.lists) if finished else ["doubtful", "unexplained"])
            if finished:
                self.progress.visible = False
        checkup, examination = self.session.checkup(self.log), self.session.examination(self.log)
        if checkup is not None and checkup.done and not self.checked:
            self.checked = self.examined = True
            self.check.enable()
            self.check_note.content = escape(checkup.error or str(checkup.value).splitlines()[-1])
            if checkup.value is not None:
                self._list_findings(checkup.value)
        elif examination.done and not self.examined:
            self.examined = True
            if examination.value is not None:
                self._list_findings(examination.value)
            else:
                self.findings.clear()
                with self.findings:
                    html(escape(examination.error), "soft")

    async def _list(self, names: list[str]) -> None:
        """Compute lists in another thread, and show those that have changed."""
        ranking, row = self.ranking, self.row
        if ranking is None:
            return
        try:
            found = await asyncio.to_thread(_lists, ranking, row, names)
        except SHOWN as error:
            self.notice.show("log", one_line(error))
            return
        for name in names:
            place, old = self.lists[name]
            if found[name] == old or (name == "nearest" and row != self.row):
                continue
            self.lists[name] = place, found[name]
            place.show(found[name])

    def _list_findings(self, checkup: "Checkup") -> None:
        self.findings.clear()
        with self.findings:
            if not checkup.findings:
                html("No problems were found." if checkup.probed else "The arrays show no problems.")
            for finding in checkup.findings:
                html(finding_html(finding))
                rows = checkup.rows.get(finding.name)
                if not rows:
                    html("about the whole log", "soft")
                    continue
                _Links(self._wanted, "rows that show it").show([(row, None) for row in rows])

    def _check(self) -> None:
        self.check.disable()
        self.checked = False
        self.check_note.content = "A small model is being trained..."
        self.session.checkup(self.log, start=True)


def _lists(ranking: "Ranking", row: int, names: list[str]) -> dict[str, list[tuple[int, float]]]:
    return {
        name: ranking.nearest(row, LISTED) if name == "nearest" else getattr(ranking, name)(LISTED) for name in names
    }


def _drawn(shown: "ShownTriple", *, turns: bool) -> str:
    """What the drawing of the action shows. No camera is known, so it has directions of its own."""
    if shown.answer is not None:
        return " Faint: the bodies after it."
    if turns:
        return " Drawn: the displacement along the agent's own axes, ahead is up."
    return " Drawn: the first number to the right, the second up."


def _says(shown: "ShownTriple", aligned: bool) -> str:
    """The outputs of the model, the true contact, and the positions."""
    from palpate.viewer.answers import reasons, verdict

    truth = "" if shown.touched is None else f"In truth: {'contact' if shown.touched else 'no contact'}."
    if shown.answer is None:
        first = f'<h2>Outputs of a model</h2><p>{NO_MODEL}</p><p class="lead">{truth}</p>'
        reason = ""
    else:
        first = f'<h2>Outputs of the model</h2><p class="lead"><b>{escape(verdict(shown.answer))}.</b> {truth}</p>'
        reason = "".join(f"<p>{escape(line)}</p>" for line in reasons(shown.answer))
        if not aligned:
            reason += '<p class="soft">Positions of the model are known up to one motion of the whole frame.</p>'
    cells = "".join(
        f'<tr><td>{escape(name)}</td><td class="number">{escape(o)}</td><td class="number">{escape(o_next)}</td></tr>'
        for name, o, o_next in shown.places
    )
    head = "<tr><td></td><td class='soft'>o</td><td class='soft'>o'</td></tr>"
    return first + reason + (f'<table class="plain">{head}{cells}</table>' if cells else "")


def _vector(values: list[float]) -> str:
    if not values:
        return ""
    numbers = ", ".join(f"{x:.4g}" for x in values[:64])
    more = f" and {len(values) - 64:,} more" if len(values) > 64 else ""
    return f"<code>{numbers}{more}</code>"
