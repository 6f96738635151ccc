"""Two workers share two cores: one thread each, or they wait for each other."""

import signal
import sys
from collections.abc import Callable

import numpy as np
import pytest
import torch

from palpate import cli
from palpate.doctor import causes, check, frames, several

torch.set_num_threads(1)

# A job in the background is started deaf to Ctrl-C, and so would be the processes that tests start to interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch) -> None:
    """What `palpate.check` finds does not depend on the speed of the machine, and it does not count objects.

    Counting takes a minute. Tests of counting put it back.
    """
    monkeypatch.setattr(check, "SECONDS", 1e6)
    monkeypatch.setattr(causes, "CAUSE_SECONDS", 1e6)
    monkeypatch.setattr(frames, "FRAME_SECONDS", 1e6)
    monkeypatch.setattr(several, "COUNTING_SECONDS", 1e6)
    monkeypatch.setattr(check, "several", lambda trial, scene: several.Several([], {}, np.zeros(0, bool)))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`palpate ...` without the seconds that importing torch takes: exit code, stdout, stderr."""

    def call(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["palpate", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        out, err = capsys.readouterr()
        return code, out, err

    return call
