"""The page in a real browser. Needs Chromium (Debian package `chromium`) and playwright."""

import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from palpate.data.labelled import Labelled, Truth
from palpate.data.transitions import Transitions

playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytest.importorskip("nicegui", reason="NiceGUI is not installed")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed (Debian package chromium)"),
]
WAIT = 60_000  # milliseconds: the machine may be busy


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        opened = driver.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Looks:
    """Serves paths and opens their pages. A page may not write to the console, or ask for other addresses: `wrong`."""

    def __init__(self, page: Any) -> None:
        self.page = page
        self.processes: list[subprocess.Popen[str]] = []
        self.wrong: list[str] = []
        page.set_default_timeout(WAIT)
        page.on("console", lambda message: self.wrong.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.wrong.append(str(error)))
        page.on("request", self._asked)
        self._ours: tuple[str, ...] = ()

    def __call__(self, path: Path, *more: str) -> tuple[Any, subprocess.Popen[str]]:
        process = subprocess.Popen(
            [sys.executable, "-m", "palpate.cli", "view", str(path), "--no-browser", *more],
            stdout=subprocess.PIPE,
            text=True,
        )
        self.processes.append(process)
        assert process.stdout is not None
        found = re.search(r"http\S+", process.stdout.readline())
        assert found
        self._ours = (found[0], "data:", found[0].replace("http", "ws"))
        self.page.goto(found[0])
        return self.page, process

    def _asked(self, request: Any) -> None:
        if not request.url.startswith(self._ours):
            self.wrong.append(f"asked {request.url[:80]}")

    def close(self) -> None:
        """Close the page before its server: a page that has lost its server writes to the console."""
        self.page.close()
        for process in self.processes:
            if process.poll() is None:
                process.send_signal(signal.SIGINT)
            process.communicate(timeout=600)


@pytest.fixture
def looks(browser: Any) -> Iterator[Looks]:
    found = Looks(browser.new_page(viewport={"width": 1280, "height": 900}))
    yield found
    found.close()


@pytest.fixture
def look(looks: Looks) -> Iterator[Looks]:
    """For all tests but that of a killed server: nothing may be written to the console."""
    yield looks
    assert looks.wrong == []


def test_a_run(look: Looks, made_runs: Path) -> None:
    page, _ = look(made_runs / "run")
    page.wait_for_selector("text=Verdict:")
    page.wait_for_selector("canvas")
    page.wait_for_selector(".figure img")
    assert page.locator("text=What is found").count() == 1
    assert "palpate view" in page.title()


def test_the_slider_shows_other_triples(look: Looks, made_runs: Path) -> None:
    page, _ = look(made_runs / "run")
    page.get_by_role("tab", name="Log").click()
    page.wait_for_selector(".scene img[src^=data]")
    picture = page.locator(".scene img").first.get_attribute("src")
    says = page.locator("text=By geometry").first
    says.wait_for()
    box = page.locator(".q-slider").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.7, box["y"] + box["height"] / 2)
    page.wait_for_function("(old) => document.querySelector('.scene img').src !== old", arg=picture)
    assert 70 <= int(page.locator("input").first.input_value()) <= 95
    page.locator("input").first.fill("5")
    page.wait_for_function("() => document.querySelectorAll('.scene svg circle').length > 0")
    page.wait_for_selector("text=120 of 120 triples")
    row = page.locator(".rows button").first
    number = row.inner_text()
    row.click()
    page.wait_for_function("(row) => document.querySelector('input').value === row", arg=number)


def test_a_log_is_searched_and_filtered(look: Looks, tmp_path: Path) -> None:
    x = np.arange(40.0)[:, None].repeat(3, 1)
    triples = Transitions(observation=x, action=x[:, :2] / 9, next_observation=x, episode=np.repeat([0, 1, 5, 6], 10))
    at, touched = torch.zeros(40, 2), torch.arange(40) % 8 == 3
    Labelled(triples, Truth(at, at, contact=touched)).save(tmp_path / "log.h5")
    page, _ = look(tmp_path / "log.h5")
    page.wait_for_selector("text=row 0 of 40, episode 0, frame 0")
    field = page.locator("input").first
    field.fill("5:7")
    page.wait_for_selector("text=row 27 of 40, episode 5, frame 7")
    field.fill("3:1")
    page.wait_for_selector("text=there is no episode 3; they are 0 to 6")
    page.locator(".q-select").click()
    page.get_by_role("option", name="contact, in truth", exact=True).click()
    page.wait_for_selector("text=5 of 40 triples pass the filter")
    page.get_by_role("button").filter(has_text="chevron_right").click()
    page.wait_for_selector("text=row 35 of 40, episode 6, frame 5")
    page.wait_for_selector("text=In truth: contact")


def test_a_log_without_a_model(look: Looks, made_runs: Path) -> None:
    page, _ = look(made_runs / "log.h5")
    page.wait_for_selector(".scene img[src^=data]")
    page.wait_for_selector("text=There is no model here")
    page.wait_for_selector("text=there are few different triples")
    assert page.get_by_role("tab").count() == 1


def test_a_log_with_the_model_of_a_run(look: Looks, made_runs: Path) -> None:
    page, _ = look(made_runs / "log.h5", "--model", str(made_runs / "stream"))
    page.wait_for_selector("text=By geometry")
    page.wait_for_selector("text=In truth:")
    page.wait_for_function("() => document.querySelectorAll('.scene svg circle').length > 4")
    page.wait_for_selector("td:text-is('agent, true')")
    assert page.locator(f"text=with the model of {made_runs / 'stream'}").count() == 1


def test_dragging_moves_the_agent_and_a_click_plans_a_path(look: Looks, made_runs: Path) -> None:
    page, _ = look(made_runs / "stream")
    page.get_by_role("tab", name="Play").click()
    page.wait_for_selector(".stage .scene svg circle", state="attached")
    box = page.locator(".stage .scene").bounding_box()
    # The first circles are the ring around the true agent: an untrained estimate is elsewhere.
    ring = page.evaluate(
        "() => { const r = document.querySelector('.stage .scene svg circle').getBoundingClientRect();"
        " return [r.x + r.width / 2, r.y + r.height / 2] }"
    )
    picture = page.locator(".stage .scene img").get_attribute("src")
    page.mouse.move(*ring)
    page.mouse.down()
    page.wait_for_timeout(500)
    to = [box["x"] + box["width"] * x for x in (0.2, 0.5)]
    page.mouse.move(to[0], box["y"] + box["height"] * 0.5, steps=5)
    page.wait_for_function("(old) => document.querySelector('.stage .scene img').src !== old", arg=picture)
    page.mouse.up()
    page.wait_for_selector("text=By geometry")
    page.mouse.click(box["x"] + box["width"] * 0.85, box["y"] + box["height"] * 0.9)
    page.wait_for_selector(".stage .scene svg polyline[stroke-dasharray]", state="attached")
    picture = page.locator(".stage .scene img").get_attribute("src")
    page.get_by_role("button", name="Walk the path").click()
    page.wait_for_function("(old) => document.querySelector('.stage .scene img').src !== old", arg=picture)


def test_an_unfinished_run_grows_and_a_vanished_one_is_named(look: Looks, made_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(made_runs / "run", tmp_path / "run")
    (tmp_path / "run" / "config.json").unlink()
    page, _ = look(tmp_path / "run", "--live")
    page.wait_for_selector("text=this continues it")
    page.wait_for_selector("text=--resume")
    page.wait_for_selector("text=step 4 of 4")
    with (tmp_path / "run" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 9, "agent": 0.5}\n')
    page.wait_for_selector("text=step 9 of 4")
    shutil.copy(made_runs / "run" / "config.json", tmp_path / "run")
    page.wait_for_selector(".figure img")
    shutil.rmtree(tmp_path / "run")
    page.wait_for_selector("text=is gone: it was moved or deleted")


def test_a_damaged_run_is_named(look: Looks, made_runs: Path, tmp_path: Path) -> None:
    shutil.copytree(made_runs / "run", tmp_path / "run")
    (tmp_path / "run" / "config.json").write_text("{")
    page, _ = look(tmp_path / "run")
    page.wait_for_selector("text=is damaged")


def test_the_page_says_when_the_server_is_gone(looks: Looks, made_runs: Path) -> None:
    page, process = looks(made_runs / "run")
    page.wait_for_selector("canvas")
    process.kill()
    process.wait(30)
    page.wait_for_selector("text=The server of this page has ended")
    assert f"palpate view {made_runs / 'run'}" in page.locator("#popup").inner_text()
    lost = ("WebSocket", "ERR_CONNECTION", "disconnect", "reconnect")
    assert [each for each in looks.wrong if not any(word in each for word in lost)] == []
