"""The README's commands: the Python runs, shortened, and the command lines are ones that the parser takes."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from palpate import cli

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_python_runs(tmp_path: Path) -> None:
    (code,) = blocks("python")
    short = code.replace("2_000", "200").replace("steps=100", "steps=3")
    assert short.count("200,") == 1
    assert short.count("steps=3,") == 1
    done = subprocess.run([sys.executable, "-c", short], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "[[" in done.stdout
    assert (tmp_path / "runs" / "mine" / "model.safetensors").exists()


COMMANDS = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("palpate ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_command_line_is_understood(command: str) -> None:
    cli.parsed(shlex.split(command)[1:])


def test_there_are_commands() -> None:
    verbs = {"collect", "check", "train", "evaluate", "export", "reproduce", "bench"}
    assert {shlex.split(command)[1] for command in COMMANDS} == verbs


def test_pictures_are_there() -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", README)
    assert pictures
    for picture in pictures:
        assert (Path(__file__).parent.parent / picture).stat().st_size < 300_000
