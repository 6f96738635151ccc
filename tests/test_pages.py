"""Pages: links lead somewhere, lines are short, commands are understood."""

import re
import shlex
from pathlib import Path

import pytest

from palpate import cli

ROOT = Path(__file__).parent.parent
TOP = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
FOLDERS = [ROOT / "docs", ROOT / "docs" / "guide", *sorted((ROOT / "docs" / "results").iterdir())]
PAGES = [*TOP, *(page for folder in FOLDERS for page in sorted(folder.glob("*.md")))]
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@every_page
def test_lines_are_short(page: Path) -> None:
    lines = page.read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if len(line) > 160] == []
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


@every_page
def test_links_lead_to_files(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    assert [target for target in targets if "://" not in target and not (page.parent / target).exists()] == []


@every_page
def test_named_files_exist(page: Path) -> None:
    names = re.findall(r"`((?:docs|examples|benchmarks|tests)/[\w\-./]+)`", page.read_text(encoding="utf-8"))
    if page.name != "CHANGELOG.md":  # it may name what was removed
        assert [name for name in names if not (ROOT / name).exists()] == []


@every_page
def test_command_lines_are_understood(page: Path) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    text = re.sub(r"--config \S+", "", "\n".join(blocks).replace("\\\n", " "))  # a file that is not there
    for line in text.splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["palpate"] and words[1] != "--help":
            cli.parsed(words[1:])


def test_pages_are_no_longer_than_they_should_be() -> None:
    assert len(TOP[0].read_text(encoding="utf-8").splitlines()) <= 130
    assert len((ROOT / "docs" / "results.md").read_text(encoding="utf-8").splitlines()) <= 150


def test_pictures_are_small() -> None:
    pictures = [*(ROOT / "docs").rglob("*.png"), *(ROOT / "docs").rglob("*.gif")]
    assert pictures
    assert [
        picture for picture in pictures if picture.stat().st_size > (300_000 if picture.suffix == ".png" else 2e6)
    ] == []
