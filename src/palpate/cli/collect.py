"""palpate collect."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tyro.conf import Positional

from palpate.cli.pairs import literal, pairs


@dataclass(frozen=True, kw_only=True)
class Collect:
    """Write triples of a world to an HDF5 file, with the true states in a group of their own.

    Until the file is complete, OUT.parts holds small readable files of triples. Ctrl-C, a full disk or a crash lose
    nothing, and --resume continues to the same rows as without the interruption. The two Soccer ids give the same
    triples for a seed, seen by other cameras.

    Any other Gymnasium environment is stepped with random actions; a reading of it is written info:KEY,
    observation:KEY or observation, with [2] or [0:2] for a part. See docs/own-world.md.
    """

    env: Positional[str]
    """palpate/Sprites-v0, palpate/SpritesBackground-v0, palpate/SpritesAnisotropic-v0, palpate/Soccer-v0,
    palpate/SoccerFirstPerson-v0, or any Gymnasium id, as MODULE:ID where a module must be imported to make it known."""
    num: int = 10_000
    """How many triples."""
    out: Path
    """The file."""
    seed: int = 0
    size: int | None = None
    """Pixels on a side (Sprites, Soccer)."""
    contact_share: float | None = None
    """Wanted share of contacts (Sprites, Soccer); as the world has it when left out."""
    natural: bool = False
    """Take contacts as random motion gives them (Sprites, Soccer)."""
    agent_position: str | None = None
    """Other worlds: where to read the agent's position, such as info:pos; the triple's action is how far it went. When
    left out, info:displacement where there is one, else the action itself."""
    observation: str | None = None
    """Other worlds: what is seen, such as observation:pixels, or render; the whole observation when left out."""
    aggregate: int | None = None
    """Other worlds: environment steps of a triple, all with one action; 1 when left out."""
    settle: int | None = None
    """Other worlds: steps to wait at most until nothing moves; triples that never rest are dropped and counted."""
    hold: str | None = None
    """Other worlds: the action while waiting, such as 0,0, or where to read it; 0 when left out."""
    watch: tuple[str, ...] = ()
    """Other worlds: readings that must rest, beside the agent's position; the observation when left out."""
    tolerance: float | None = None
    """Other worlds: a number that changes by no more than this in a step rests; 0.001 when left out."""
    truth: tuple[str, ...] = ()
    """Other worlds: true states to measure with, such as object=info:block_pose[:2] angle=info:block_pose[2]
    contact=moved."""
    option: tuple[str, ...] = ()
    """Options of the environment, such as obs_type=pixels max_episode_steps=120."""
    workers: int | None = None
    """Processes that make triples (not Sprites); as many as there are cores for us when left out. The triples are the
    same with any number."""
    resume: bool = False
    """Continue a collection that was stopped; the settings must be the same, --num may be larger or smaller."""
    force: bool = False
    """Overwrite the file, and the parts of a collection that was stopped."""

    def __call__(self) -> None:
        import time

        from palpate.collecting.blocks import dropped
        from palpate.collecting.collect import collect
        from palpate.progress import Rate, bar
        from palpate.workers import available_cores

        options = self._options()
        start, rate = time.monotonic(), Rate()
        with bar("collecting", self.num) as advance:
            triples = collect(
                self.env,
                self.num,
                seed=self.seed,
                out=self.out,
                workers=available_cores() if self.workers is None else self.workers,
                resume=self.resume,
                overwrite=self.force,
                progress=lambda done, total: advance(done, f"{rate(done):,.0f}/s"),
                **options,
            )
        seconds, megabytes = time.monotonic() - start, self.out.stat().st_size / 1e6
        with triples:
            print(f"{triples!r}: {megabytes:.1f} MB, {seconds:.1f} s, {rate(len(triples)):,.0f} triples/s")
            lost = dropped(triples.attributes)
        if lost:
            print(f"dropped: {', '.join(f'{count} {reason}' for reason, count in lost.items())}")

    def _options(self) -> dict[str, Any]:
        """The options that were given: of the world, and of how it is stepped."""
        names = ("size", "agent_position", "observation", "aggregate", "settle", "tolerance")
        said = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.natural:
            if self.contact_share is not None:
                raise ValueError(f"contact_share is {self.contact_share}, but --natural takes contacts as they come")
            said["contact_share"] = None
        elif self.contact_share is not None:
            said["contact_share"] = self.contact_share
        if self.hold is not None:
            said["hold"] = literal(self.hold)
        if self.watch:
            said["watch"] = self.watch
        if self.truth:
            said["truth"] = pairs("truth", self.truth)
        return said | {name: literal(text) for name, text in pairs("option", self.option).items()}
