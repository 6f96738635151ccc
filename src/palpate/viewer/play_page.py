"""The page to play: drag the agent, click a target."""

import asyncio
import time
from collections import deque
from html import escape
from typing import TYPE_CHECKING, Any

from nicegui import background_tasks, events, ui

from palpate.viewer.mouse import Mouse, Request, Requests
from palpate.viewer.page import Notice, awaited, html, legend
from palpate.viewer.session import SHOWN, Session, one_line

if TYPE_CHECKING:
    from palpate.viewer.play import Play

WALK_SECONDS = 0.05  # between two steps along a path
REST_SECONDS = 0.2  # without a new picture: then the last move is explained
CLICK = 0.02  # of the picture's width: a shorter motion of the mouse is a click


def play_page(session: Session, notice: Notice) -> None:
    awaited("The world is being loaded...", lambda: session.play, lambda play: _Stage(session, notice, play))


class _Stage:
    """The picture in which the agent is dragged, and the texts beside it."""

    def __init__(self, session: Session, notice: Notice, play: "Play") -> None:
        self.session, self.notice, self.play = session, notice, play
        self.requests = Requests(self._update)
        self.mouse = Mouse(self._grabs, self.requests, lambda: CLICK * self.play.pixels)
        self.times: deque[float] = deque(maxlen=200)
        self.drawn = self.said = 0  # pictures, and the picture that was last explained
        self.shown = ""  # the present picture
        with ui.element("div").classes("grid stage"):
            with ui.element("div").classes("card s7"):
                self.image = ui.interactive_image(
                    events=["mousedown", "mousemove", "mouseup", "mouseleave"], sanitize=False
                ).classes("scene")
                # Motion without a pressed button is not needed, so it is not sent to the server.
                self.image.on(
                    "mouse",
                    self._mouse,
                    js_handler="(e) => (e.mouse_event_type !== 'mousemove' || e.buttons) && emit(e)",
                )
                html(legend(model=True, true=True), "legend").style("margin-top: 10px")
            with ui.element("div").classes("s5").style("display: flex; flex-direction: column; gap: 14px"):
                with ui.element("div").classes("card"):
                    html(
                        "<h2>Play</h2><p>Drag the agent. The picture and the estimate follow.</p>"
                        "<p>Click a target: a path around the learned bodies is planned from the estimate.</p>"
                    )
                    with ui.element("div").classes("controls"):
                        ui.button("New scene", on_click=self._reset).props("outline dense no-caps")
                        self.walk = ui.button("Walk the path", on_click=self._start_walk).props("dense no-caps")
                        self.walk.disable()
                        ui.switch("true positions", value=True, on_change=self._truth).props("dense")
                with ui.element("div").classes("card"):
                    self.says = html("")
                with ui.element("div").classes("card"):
                    self.facts, self.rate = html(""), html("", "soft")
        ui.timer(REST_SECONDS, self._rested)
        self.walking = ui.timer(WALK_SECONDS, self._step, active=False)
        ui.timer(0.05, lambda: self.requests(Request("show")), once=True)

    def _wanted(self, what: str) -> None:
        background_tasks.create(self.requests(Request(what)))

    def _reset(self) -> None:
        self.mouse.forget()
        self.walking.active = False
        self._wanted("reset")

    async def _mouse(self, event: events.GenericEventArguments) -> None:
        x, y, kind = (event.args[name] for name in ("image_x", "image_y", "mouse_event_type"))
        if kind == "mousedown":
            self.walking.active = False
            await self.mouse.down(x, y)
        elif kind == "mousemove":
            await self.mouse.move(x, y)
        elif kind == "mouseup":
            await self.mouse.up(x, y)
        else:
            self.mouse.leave()

    async def _grabs(self, x: float, y: float) -> bool:
        return bool(await self._played(self.play.grabbed, x, y))

    async def _played(self, work: Any, *arguments: Any) -> Any:
        """Run in the thread of the world."""
        return await asyncio.get_running_loop().run_in_executor(self.session.player, work, *arguments)

    async def _update(self, request: Request) -> None:
        if request.what in ("drag", "plan") and request.press != self.mouse.press:
            return  # of an old press
        try:
            self._draw(await self._played(self._act, request))
        except SHOWN as error:
            self.notice.show("play", one_line(error))
            self.walking.active = False
            return
        self.notice.show("play", "")

    def _act(self, request: Request) -> Any:
        if request.what == "drag":
            self.play.drag(request.x, request.y)
        elif request.what == "plan":
            self.play.plan(request.x, request.y)
        elif request.what == "reset":
            self.play.reset()
        elif request.what == "walk":
            self.play.walk()
        return self.play.view()

    async def _rested(self) -> None:
        """Once the mouse rests, show the outputs for the last move. During a drag this would slow down the pictures."""
        if self.said != self.drawn and time.monotonic() - self.times[-1] > REST_SECONDS:
            self.said = self.drawn
            try:
                self._say(await self._played(self._explained))
            except SHOWN as error:
                self.notice.show("play", one_line(error))

    def _explained(self) -> Any:
        self.play.explain()
        return self.play.view()

    def _draw(self, view: Any) -> None:
        self.image.set_source(view.source)
        self.image.set_content(view.marks)
        self.facts.content = _table(view.facts)
        self.walk.set_enabled(self.play.path is not None)
        self.walking.active = self.walking.active and self.play.path is not None
        if view.source == self.shown:
            return
        self.shown = view.source
        now = time.monotonic()
        self.times.append(now)
        self.drawn += 1
        self.rate.content = f"pictures in the last second: {sum(now - at <= 1 for at in self.times)}"

    def _say(self, view: Any) -> None:
        from palpate.viewer.answers import reasons, verdict

        if view.answer is None:
            self.says.content = f"<h2>The last move</h2><p>None yet.</p><p class='soft'>{escape(view.note)}</p>"
            return
        truth = "" if view.contact is None else f" In truth: {'contact' if view.contact else 'no contact'}."
        lines = "".join(f"<p>{escape(line)}</p>" for line in reasons(view.answer))
        self.says.content = (
            f'<h2>The last move</h2><p class="lead"><b>{escape(verdict(view.answer))}.</b>{truth}</p>{lines}'
        )

    def _start_walk(self) -> None:
        self.walking.active = True

    async def _step(self) -> None:
        await self.requests(Request("walk"))

    def _truth(self, event: events.ValueChangeEventArguments[Any]) -> None:
        self.play.truth = bool(event.value)
        self._wanted("show")


def _table(rows: list[tuple[str, str]]) -> str:
    cells = "".join(f'<tr><td>{escape(name)}</td><td class="number">{escape(x)}</td></tr>' for name, x in rows)
    return f'<table class="plain">{cells}</table>'
