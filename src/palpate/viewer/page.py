"""The page: title, verdict, tabs. Content without a model appears at once; then the model is loaded."""

import shlex
from collections.abc import Callable
from html import escape
from typing import Any, TypeVar

from nicegui import ui

from palpate.palette import OBJECT_COLOURS, YELLOW
from palpate.viewer.session import SHOWN, Session, Task, one_line
from palpate.viewer.style import head

T = TypeVar("T")
SOON, LATER = 0.1, 1.0  # seconds between two looks at a task: until something is shown, and then
KINDS = {"good": "good", "doubtful": "doubtful", "not to be trusted": "bad"}


class Notice:
    """One line of error messages at the top of the page."""

    def __init__(self) -> None:
        self._box = ui.html("", sanitize=False).classes("notice")
        self._box.visible = False
        self._shown: dict[str, str] = {}

    def show(self, topic: str, text: str) -> None:
        """Show the message of a topic; an empty text removes it."""
        if self._shown.get(topic, "") == text:
            return
        self._shown[topic] = text
        texts = [escape(each) for each in dict.fromkeys(self._shown.values()) if each]  # each message once
        self._box.content = "<br>".join(texts)
        self._box.visible = bool(texts)

    def guard(self, topic: str, work: Callable[[], Any]) -> Any:
        """The result of `work`. If a file has an error, it becomes a message, and the result is None."""
        try:
            result = work()
        except SHOWN as error:
            self.show(topic, one_line(error))
            return None
        self.show(topic, "")
        return result


def html(text: str, classes: str = "") -> ui.html:
    """An element of our own markup. The caller escapes the texts in it."""
    return ui.html(text, sanitize=False).classes(classes)


def legend(*, model: bool, true: bool) -> str:
    """What the marks on pictures mean."""
    parts = []
    if model:
        for colour, text in ((YELLOW, "agent, estimated"), (OBJECT_COLOURS[0], "object and body, estimated")):
            parts.append(f'<span><span class="dot" style="background:{colour}"></span>{text}</span>')
    if true:
        parts.append('<span><span class="dot ring"></span>true</span>')
    return "".join(parts)


def awaited(waiting: str, task: Callable[[], Task[T]], show: Callable[[T], Any]) -> None:
    """A place for the result of a task. It is filled again if the task is another one, as after a retraining."""
    place = ui.element("div").style("width: 100%")
    with place:
        html(f'<div class="wait">{escape(waiting)}</div>')
    shown: Task[T] | None = None

    def look() -> None:
        nonlocal shown
        present = task()
        if present is shown or not present.done:
            return
        shown, timer.interval = present, LATER
        place.clear()
        with place:
            if present.value is None:
                html(f'<div class="wait">{escape(present.error)}</div>')
            else:
                show(present.value)

    timer = ui.timer(SOON, look)


def build(session: Session) -> None:
    from palpate.viewer.log_page import log_page
    from palpate.viewer.play_page import play_page
    from palpate.viewer.run_page import run_page

    session.retry()
    ui.colors(primary="#0072B2")
    ui.add_head_html(head(shlex.join(session.command)))
    run = session.run
    with ui.element("div").classes("top w-full"):
        with ui.element("div").classes("bar"):
            html(f"<h1>{escape(session.path.name)}</h1>")
            chip = html("", "chip")
            of_model = "" if session.model is None else f" with the model of {session.model}"
            html(escape(f"{session.path}{of_model}"), "where")
        with ui.tabs().props("align=left dense no-caps indicator-color=primary") as tabs:
            names = ["Run", "Log", "Play"] if run is not None else ["Log"]
            for name in names:
                ui.tab(name)
    notice = Notice()
    chip.visible = run is not None

    def watch() -> None:
        """Keep title and messages up to date, also after the path was removed."""
        gone = not session.path.exists()
        text = f"{session.path} is gone: it was moved or deleted. What is shown was read before."
        notice.show("gone", text if gone else "")
        if run is not None and not gone:
            verdict = notice.guard("run", run.verdict)
            if verdict is not None:
                chip.content = escape(verdict.word)
                chip.classes(replace=f"chip {KINDS.get(verdict.word, '')}")

    watch()
    ui.timer(1.0, watch)
    with ui.tab_panels(tabs, value=names[0], animated=False).props("keep-alive").classes("w-full") as panels:
        made: dict[str, Callable[[], None]] = {}
        for name, page in (("Run", run_page), ("Log", log_page), ("Play", play_page)):
            if name in names:
                with ui.tab_panel(name):
                    place = ui.element("div").style("width: 100%")
                made[name] = _once(place, page, session, notice)
        made[names[0]]()
        panels.on_value_change(lambda event: made[event.value]())


def _once(
    place: ui.element, page: Callable[[Session, Notice], None], session: Session, notice: Notice
) -> Callable[[], None]:
    """Build a page when it is first opened."""
    built = False

    def make() -> None:
        nonlocal built
        if not built:
            built = True
            with place:
                page(session, notice)

    return make
