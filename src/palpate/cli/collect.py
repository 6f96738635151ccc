"""palpate collect."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from palpate.cli.environment import Environment
from palpate.cli.parsing import Positional


@dataclass(frozen=True, kw_only=True)
class Collect:
    """Write triples of a world to an HDF5 file, with the true states in a separate group.

    Until the file is complete, OUT.parts holds small readable files of triples. Nothing is lost by Ctrl-C, a full disk
    or a crash: --resume continues, and the rows are the same as without the interruption. With the same seed,
    palpate/Soccer-v0 and palpate/SoccerFirstPerson-v0 give the same triples, seen by different cameras.

    Any other Gymnasium environment is stepped with random actions. Some options take a reading of it: info:KEY,
    observation:KEY or observation, with [2] or [0:2] for a part. See docs/guide/own-environment.md.
    """

    SHOWN: ClassVar = ("env", "num", "out", "seed", "size", "agent_position", "settle", "option", "resume", "force")

    env: Positional[str]
    """palpate/Sprites-v0, palpate/SpritesBackground-v0, palpate/SpritesAnisotropic-v0, palpate/SpritesMany-v0,
    palpate/SpritesTurning-v0, palpate/Lidar-v0, palpate/LidarTurning-v0, palpate/Soccer-v0,
    palpate/SoccerFirstPerson-v0, palpate/SoccerDriving-v0, palpate/Table-v0, or any Gymnasium id;
    MODULE:ID imports the module that registers it."""
    num: int = 10_000
    """Number of triples."""
    out: Path
    """The file."""
    seed: int = 0
    """Random seed; the same seed gives the same triples."""
    environment: Environment = field(default_factory=Environment)
    resume: bool = False
    """Continue a stopped collection with the same settings; only --num may differ."""
    force: bool = False
    """Overwrite the file, and the parts of a stopped collection."""

    def __call__(self) -> None:
        import time

        from palpate.collecting.blocks import dropped
        from palpate.collecting.collect import collect

        options = self.environment.options()
        start = time.monotonic()
        triples = collect(
            self.env,
            self.num,
            seed=self.seed,
            out=self.out,
            workers=self.environment.processes(),
            resume=self.resume,
            overwrite=self.force,
            **options,
        )
        seconds, megabytes = time.monotonic() - start, self.out.stat().st_size / 1e6
        with triples:
            print(f"{triples!r}: {megabytes:.1f} MB, {seconds:.1f} s")
            lost = +dropped(triples.attributes)  # without zeros
        if lost:
            print(f"dropped: {', '.join(f'{count} {reason}' for reason, count in lost.items())}")
