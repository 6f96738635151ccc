"""Two workers share two cores: one thread each, or they wait for each other."""

import signal
import sys
from collections.abc import Callable

import pytest
import torch

from palpate import cli

torch.set_num_threads(1)

# A job in the background is started deaf to Ctrl-C, and so would be the processes that tests start to interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


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
