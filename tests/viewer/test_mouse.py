"""From events of the mouse to requests, with answers that come late."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from palpate.viewer.mouse import Mouse, Request, Requests

Answers = list[asyncio.Future[bool]]
Story = Callable[[Mouse, Answers], Coroutine[Any, Any, None]]


def requested(story: Story) -> list[Request]:
    """The requests of a story, whose answers to presses are given by hand."""
    found: list[Request] = []

    async def run() -> None:
        answers: Answers = []

        def grabs(x: float, y: float) -> Awaitable[bool]:
            answers.append(asyncio.get_running_loop().create_future())
            return answers[-1]

        async def request(each: Request) -> None:
            found.append(each)

        await story(Mouse(grabs, request, lambda: 5.0), answers)

    asyncio.run(run())
    return found


async def soon() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_drag_follows_the_mouse() -> None:
    async def story(mouse: Mouse, answers: Answers) -> None:
        down = asyncio.create_task(mouse.down(1, 1))
        await soon()
        await mouse.move(2, 2)  # while the answer is on its way
        answers[0].set_result(True)
        await down
        await mouse.move(3, 3)
        await mouse.up(3, 3)
        await mouse.move(4, 4)

    assert requested(story) == [Request("drag", 2, 2, 1), Request("drag", 3, 3, 1)]


def test_an_old_answer_does_not_move_a_new_drag() -> None:
    async def story(mouse: Mouse, answers: Answers) -> None:
        old = asyncio.create_task(mouse.down(1, 1))
        await soon()
        await mouse.up(1, 1)
        new = asyncio.create_task(mouse.down(50, 50))
        await soon()
        await mouse.move(60, 60)
        answers[0].set_result(True)  # the first press was on the agent; the second is not
        await old
        await mouse.move(70, 70)
        answers[1].set_result(False)
        await new
        await mouse.move(80, 80)
        await mouse.up(80, 80)

    assert requested(story) == []


def test_a_click_plans_also_if_the_answer_comes_late() -> None:
    async def story(mouse: Mouse, answers: Answers) -> None:
        for late in (False, True):
            down = asyncio.create_task(mouse.down(10, 10))
            await soon()
            if late:
                await mouse.up(11, 11)
            answers[-1].set_result(False)
            await down
            if not late:
                await mouse.up(11, 11)

    assert requested(story) == [Request("plan", 11, 11, 1), Request("plan", 11, 11, 2)]


def test_neither_a_motion_nor_leaving_the_picture_is_a_click() -> None:
    async def story(mouse: Mouse, answers: Answers) -> None:
        down = asyncio.create_task(mouse.down(10, 10))
        await soon()
        answers[0].set_result(False)
        await down
        await mouse.move(30, 10)
        await mouse.up(30, 10)
        down = asyncio.create_task(mouse.down(10, 10))
        await soon()
        mouse.leave()
        answers[1].set_result(False)
        await down
        await mouse.up(10, 10)

    assert requested(story) == []


def worked(story: Callable[[Requests], Coroutine[Any, Any, None]]) -> list[Request]:
    done: list[Request] = []

    async def run() -> None:
        async def work(request: Request) -> None:
            await asyncio.sleep(0)
            done.append(request)

        await story(Requests(work))

    asyncio.run(run())
    return done


def test_only_motions_are_replaced_by_newer_ones() -> None:
    first, *more = (Request("drag", x) for x in range(4))
    reset, last = Request("reset"), Request("drag", 9)

    async def story(requests: Requests) -> None:
        await asyncio.gather(*map(requests, (first, *more, reset, last)))

    assert worked(story) == [first, more[-1], reset, last]
