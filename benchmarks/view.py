"""Times of `palpate view` in a real browser, against its bars.

    python benchmarks/view.py RUN --log log.h5

RUN is the folder of a run on palpate/Sprites-v0 with small CNNs, as that of `palpate demo`. LOG holds triples whose
pictures have the size of the run's; `--make` first collects it. Needs Chromium (Debian package `chromium`) and
`pip install playwright`.

What is measured, in a browser that is already open:

- first picture: from the command until the page shows the curves, and until it shows the positions on pictures. The
  latter are those of the run's report; `without report` they are drawn anew.
- dragging: new pictures per second while the mouse moves, and the time from one motion of the mouse to its picture.
- slider: the time from a click on the slider to the picture of another triple, while the lists are being computed.
"""

import argparse
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or "/usr/bin/chromium"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
SEEN = "() => [...document.querySelectorAll('.figure img')].some(img => img.complete && img.naturalWidth)"
AGENT = """() => {
  const at = [...document.querySelectorAll('.stage .scene svg circle')].at(-1).getBoundingClientRect();
  return [at.x + at.width / 2, at.y + at.height / 2];
}"""
# Notes the times at which a new picture is shown.
WATCH = """(selector) => {
  window.changes = [];
  document.querySelector(selector).addEventListener('load', () => window.changes.push(performance.now()));
}"""
BARS = {"first picture, s": 3, "updates per second": 10, "ms to the picture": 150, "slider, ms": 200}


@contextmanager
def served(path: Path, *more: str) -> Iterator[tuple[str, float]]:
    """The page's address, and when the command was given."""
    begun = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "palpate.cli", "view", str(path), "--no-browser", *more],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.search(r"http\S+", process.stdout.readline())
        assert found, "the server did not start"
        yield found[0], begun
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


def first_picture(browser: Any, run: Path) -> dict[str, float]:
    """Seconds from the command to the curves and to the overlay, in a browser that is already open."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    with served(run) as (address, begun):
        served_at = time.monotonic() - begun
        page.goto(address)
        page.wait_for_selector("canvas", timeout=60_000)
        curves = time.monotonic() - begun
        page.wait_for_function(SEEN, timeout=60_000)
        overlay = time.monotonic() - begun
        page.close()
    return {"listening": served_at, "curves": curves, "overlay": overlay}


def dragging(browser: Any, run: Path, seconds: float) -> dict[str, float]:
    """Updates per second while the agent is dragged, and milliseconds from a motion to the picture that follows it."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    with served(run) as (address, _):
        page.goto(address)
        page.get_by_role("tab", name="Play").click()
        page.wait_for_selector(".stage .scene circle", state="attached", timeout=120_000)
        time.sleep(2)
        box = page.locator(".stage .scene").bounding_box()
        at = page.evaluate(AGENT)
        page.evaluate(WATCH, ".stage .scene img")
        page.mouse.move(*at)
        page.mouse.down()
        time.sleep(0.5)
        page.evaluate("() => { window.changes = [] }")
        begun, moves, i = time.monotonic(), 0, 0
        while time.monotonic() - begun < seconds:
            i += 1
            x = box["x"] + box["width"] * (0.12 + 0.76 * abs((i * 0.013) % 2 - 1))
            y = box["y"] + box["height"] * 0.93
            page.mouse.move(x, y)
            moves += 1
            time.sleep(1 / 60)
        spent = time.monotonic() - begun
        changes = page.evaluate("() => window.changes")
        time.sleep(1)
        delays = []
        for k in range(30):  # single motions, so that each picture belongs to one
            page.evaluate("() => { window.changes = [] }")
            x = box["x"] + box["width"] * (0.15 + 0.7 * ((k * 7) % 30) / 30)
            start = page.evaluate("() => performance.now()")
            page.mouse.move(x, box["y"] + box["height"] * 0.93)
            page.wait_for_function("() => window.changes.length", polling=5)
            delays.append(page.evaluate("() => window.changes[0]") - start)
            time.sleep(0.4)
        page.mouse.up()
        page.close()
    return {"motions per second": moves / spent, "updates per second": len(changes) / spent, **_spread(delays)}


def slider(browser: Any, run: Path) -> dict[str, Any]:
    """Milliseconds from a click on the slider to the picture of another triple."""
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    with served(run) as (address, _):
        page.goto(address)
        page.get_by_role("tab", name="Log").click()
        page.wait_for_selector(".scene img[src^=data]", timeout=300_000)
        time.sleep(5)  # the projection is found meanwhile
        page.evaluate(WATCH, ".scene img")
        box = page.locator(".q-slider").bounding_box()
        delays = []
        for k in range(30):
            page.evaluate("() => { window.changes = [] }")
            x, y = box["x"] + box["width"] * (0.03 + 0.94 * ((k * 11) % 30) / 30), box["y"] + box["height"] / 2
            page.mouse.move(x, y)
            start = page.evaluate("() => performance.now()")
            page.mouse.click(x, y)
            page.wait_for_function("() => window.changes.length", polling=5, timeout=60_000)
            delays.append(page.evaluate("() => window.changes[0]") - start)
            time.sleep(0.3)
        counted = page.get_by_text(re.compile(r"^[\d,]+ of [\d,]+ triples$")).inner_text()
        page.close()
    return {**_spread(delays), "worst ms": round(max(delays)), "in the lists at the end": counted}


def _spread(delays: list[float]) -> dict[str, float]:
    return {"median ms": round(statistics.median(delays)), "95 % ms": round(sorted(delays)[int(0.95 * len(delays))])}


def without_report(run: Path, folder: Path) -> Path:
    """A copy of a run without the figures of its report."""
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns("figures"))
    return folder


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--log", type=Path, help="file of 100,000 triples; its slider is measured with the run's model")
    parser.add_argument("--make", action="store_true", help="write LOG first, of Sprites with 50 x 50 pixels")
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=6.0, help="of dragging")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.make:
        from palpate.collecting.collect import collect

        collect("palpate/Sprites-v0", arguments.rows, seed=5, size=50, out=arguments.log)
    from playwright.sync_api import sync_playwright

    found: dict[str, Any] = {"bars": BARS, "cores": os.cpu_count(), "load at start": os.getloadavg()[0]}
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as place:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        plain = without_report(arguments.run, Path(place) / arguments.run.name)
        for name, run in (("first picture, s", arguments.run), ("the same without report, s", plain)):
            times = [first_picture(browser, run) for _ in range(arguments.repeats)]
            found[name] = {part: [round(each[part], 2) for each in times] for part in times[0]}
        found["dragging"] = dragging(browser, arguments.run, arguments.seconds)
        if arguments.log is not None:
            (plain / "run.toml").write_text(f"data = {json.dumps(str(arguments.log.absolute()))}\n")
            found["slider"] = slider(browser, plain)
        browser.close()
    found["load at end"] = os.getloadavg()[0]
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
