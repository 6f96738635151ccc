"""From events of the mouse on the picture to requests, one at a time.

Events arrive while earlier ones still wait for the world. Each press has a number, so an answer to an old press, or one
of its motions, never moves the agent in a new one.
"""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, final

REPLACED = ("drag", "walk", "show")  # of several waiting in a row, only the newest counts


class Request(NamedTuple):
    """What is to be done in the world."""

    what: str  # drag, plan, reset, walk or show
    x: float = 0.0
    y: float = 0.0
    press: int = 0


@final
class Requests:
    """Works on requests one after the other."""

    def __init__(self, work: Callable[[Request], Awaitable[None]]) -> None:
        self._work, self._busy = work, False
        self._waiting: list[Request] = []

    async def __call__(self, request: Request) -> None:
        if self._waiting and request.what in REPLACED and self._waiting[-1].what == request.what:
            self._waiting.pop()
        self._waiting.append(request)
        if self._busy:
            return
        self._busy = True
        try:
            while self._waiting:
                await self._work(self._waiting.pop(0))
        finally:
            self._busy = False


@final
class Mouse:
    """Requests drags and plans. `grabs` finds out whether a press is on the agent; `near` is the radius of a click."""

    def __init__(
        self,
        grabs: Callable[[float, float], Awaitable[bool]],
        request: Callable[[Request], Awaitable[None]],
        near: Callable[[], float],
    ) -> None:
        self._grabs, self._request, self._near = grabs, request, near
        self.press = 0  # number of the present press
        self._grabbed: bool | None = False  # whether it is on the agent; None until that is known
        self._pressed = self._last = (0.0, 0.0)
        self._held = self._click = False  # the button is down; the press may become a click

    async def down(self, x: float, y: float) -> None:
        self.press += 1
        mine = self.press
        self._grabbed, self._held, self._click = None, True, True
        self._pressed = self._last = (x, y)
        grabbed = await self._grabs(x, y)
        if mine != self.press:
            return
        self._grabbed = grabbed
        if grabbed and self._last != self._pressed:  # the mouse moved while the answer was on its way
            await self._drag()
        elif not grabbed and not self._held:
            await self._plan()

    async def move(self, x: float, y: float) -> None:
        if not self._held:
            return
        self._last = (x, y)
        if self._grabbed:
            await self._drag()

    async def up(self, x: float, y: float) -> None:
        if not self._held:
            return
        self._held, self._last = False, (x, y)
        if self._grabbed is False:  # otherwise `down` continues once it is known
            await self._plan()

    def leave(self) -> None:
        """The mouse has left the picture: the press ends, and its last motion still counts."""
        self._held = self._click = False

    def forget(self) -> None:
        """End the press; motions of it that still wait do not count."""
        self.leave()
        self.press += 1

    async def _drag(self) -> None:
        await self._request(Request("drag", *self._last, self.press))

    async def _plan(self) -> None:
        """A click, a press without a motion, plans a path."""
        moved = abs(self._last[0] - self._pressed[0]) + abs(self._last[1] - self._pressed[1])
        if self._click and moved < self._near():
            await self._request(Request("plan", *self._last, self.press))
