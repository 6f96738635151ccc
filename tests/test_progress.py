import pytest
from rich.console import Console

from palpate import progress


def test_board_without_a_terminal_writes_lines(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with progress.board() as shown:
        shown("one", 1, 4, "soon")
        shown("two", 2, 2, "done")  # the end is always said
        monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
        shown("one", 2, 4, "half")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[:3] for line in lines] == [["two", "2/2", "done"], ["one", "2/4", "half"]]


def test_hidden_board(capsys: pytest.CaptureFixture[str]) -> None:
    with progress.board(show=False) as shown:
        shown("one", 1, 1)
    assert capsys.readouterr() == ("", "")


def test_board_on_a_terminal_removes_complete_bars(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[progress.Progress] = []
    make = progress._progress

    def remember(console: Console) -> progress.Progress:
        made.append(make(console))
        return made[-1]

    monkeypatch.setattr(progress, "Console", lambda file: Console(file=file, force_terminal=True, width=100))
    monkeypatch.setattr(progress, "_progress", remember)
    with progress.board() as shown:
        shown("all", 0, 10, "0 of 2")
        shown("one", 3, 5)
        assert [task.description for task in made[0].tasks] == ["all", "one"]
        shown("one", 5, 5)
        shown("all", 5, 10, "1 of 2")
        (task,) = made[0].tasks
        assert (task.description, task.completed, task.fields["note"]) == ("all", 5, "1 of 2")
    assert "1 of 2" in capsys.readouterr().err
