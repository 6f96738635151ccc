"""palpate view."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from palpate.cli.parsing import Positional
from palpate.data.logs.options import LogOptions


@dataclass(frozen=True, kw_only=True)
class View:
    """Look at a run or at a log in the browser, and play in the run's world.

    The page needs no network. Only this machine can open it. Ctrl-C ends it. See docs/guide/view.md.

      palpate view runs/x
      palpate view runs/x --live
      palpate view log.h5
      palpate view log.h5 --model runs/x
    """

    path: Positional[Path]
    """Folder of a run, or a log: triples, LeRobot, robomimic, diffusion policy (zarr) or Minari."""
    model: Path | None = None
    """Folder of a run or of a saved model; the page shows its outputs for a log. Options of the log that you leave out
    are those of the run."""
    live: bool = False
    """Also follow a complete run, for the case that it is trained again. An unfinished run is always followed."""
    host: str = "127.0.0.1"
    """Address to listen on. 0.0.0.0 lets other machines see the page; it has no password."""
    port: int = 0
    """Port to listen on; 0 is any free one."""
    browser: bool = True
    """Whether to open the browser. Default: yes."""
    reading: LogOptions = field(default_factory=LogOptions)

    def __call__(self) -> None:
        from palpate.viewer.serve import view

        view(
            self.path,
            live=self.live,
            model=self.model,
            host=self.host,
            port=self.port,
            browser=self.browser,
            reading=self.reading,
            ready=lambda address: print(f"Open     {address}   (Ctrl-C ends it)", flush=True),
        )
        # A thread may be reading HDF5. An ordinary exit would wait for its lock forever. Nothing is written here.
        os._exit(0)
