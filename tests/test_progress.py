import pytest
from rich.console import Console

from palpate import progress


def test_without_a_terminal_the_bar_is_a_line_every_few_seconds(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress.bar("runs", 4) as advance:
        advance(1, "soon")
        monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
        advance(2, "half")
        monkeypatch.setattr(progress, "QUIET_SECONDS", 60.0)
        advance(4, "done")  # the end is always shown
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:3] for line in lines] == [["runs", "2/4", "half"], ["runs", "4/4", "done"]]


def test_a_hidden_bar_prints_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.bar("runs", 1, show=False) as advance:
        advance(1)
    assert capsys.readouterr() == ("", "")


def test_on_a_terminal_the_bar_shows_count_and_note(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "Console", lambda file: Console(file=file, force_terminal=True, width=100))
    with progress.bar("runs", 10) as advance:
        advance(5, "1 of 2")
    shown = capsys.readouterr().err
    assert "5/10" in shown
    assert "1 of 2" in shown
