"""palpate encode."""

from dataclasses import dataclass, field
from pathlib import Path

from palpate.cli.parsing import Positional
from palpate.data.logs.options import LogOptions


@dataclass(frozen=True, kw_only=True)
class Encode:
    """Write the positions of all observations of a log to a table that other tools read.

    Each row is an observation. Its columns are index, episode_index, frame_index and palpate.agent. There may also be
    palpate.object, palpate.confidence, palpate.orientation, palpate.heading, palpate.rotation, palpate.contact and
    palpate.would_touch. Options of a log that you leave out are those of the run. See docs/guide/own-data.md.

      palpate encode log.h5 --model runs/x --out positions.parquet
    """

    log: Positional[Path]
    """HDF5 file of triples or of episodes; or a log of LeRobot, robomimic, diffusion policy (zarr) or Minari."""
    model: Path
    """Folder of a run or of a saved model."""
    out: Path
    """The file: .parquet (needs palpate[lerobot]), .csv or .npz."""
    force: bool = False
    """Overwrite the file."""
    reading: LogOptions = field(default_factory=LogOptions)

    def __call__(self) -> None:
        import time

        from palpate.encoding import encode_log

        start = time.monotonic()
        made = encode_log(self.model, self.log, self.out, reading=self.reading, overwrite=self.force, progress=True)
        size, seconds = made.path.stat().st_size / 1e6, time.monotonic() - start
        print(f"{made.path}: {made.rows:,} observations of {made.triples:,} triples, {size:.1f} MB, {seconds:.1f} s")
        if made.reading:
            print("read as in the run: " + ", ".join(f"{name} {value}" for name, value in made.reading.items()))
        print("\n".join(f"  {name:<20} {kind}" for name, kind in made.columns.items()))
