"""palpate train."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tyro.conf import OmitArgPrefixes

from palpate.cli.pairs import switches
from palpate.config import Body, Encoder, Method, Objective, TrainingConfig

if TYPE_CHECKING:
    from palpate.data.labelled import Labelled


@dataclass(frozen=True, kw_only=True)
class Train:
    """Learn a representation from a file of triples or from a world that streams fresh ones."""

    data: Path | None = None
    """HDF5 file of triples."""
    env: str | None = None
    """World to stream from instead, for instance palpate/Sprites-v0."""
    size: int | None = None
    """Pixels on a side of a streamed world; 100 when left out."""
    contact_share: float | None = None
    """Share of contacts of a streamed world; 0.5 when left out."""
    out: Path
    """Folder of the run."""
    method: Method = "interaction"
    """interaction learns from triples alone, and so do the baselines vae and transporter; supervised, the limit, from
    true states."""
    objective: Objective = "contact"
    """contact is ours; paper and paper-gaussian are the paper's. For the interaction method."""
    encoder: Encoder = "auto"
    """auto: mlp for vectors; for pictures resnet18 on a GPU, small elsewhere."""
    shrink: int | None = None
    """Average pictures over squares of so many pixels first; as the encoder needs when left out."""
    body: Body | None = None
    """axes: an ellipse with an orientation, for actions in the plane; round when left out."""
    radius: float | None = None
    """Sum of the two bodies' radii, where it is known."""
    switch: tuple[str, ...] = ()
    """Single changes of the objective, such as split_on=d stay_weight=10; see docs/paper.md."""
    test: Path | None = None
    """Labelled file to measure on during and after the run; a streamed world makes its own,
    with as many contacts as it trains on."""
    resume: bool = False
    """Continue a run that was stopped."""
    force: bool = False
    """Overwrite a run that is there."""
    training: OmitArgPrefixes[TrainingConfig] = field(default_factory=lambda: TrainingConfig(steps=0, batch_size=0))

    def __call__(self) -> None:
        from palpate.api import fit
        from palpate.envs.registration import stream_world
        from palpate.pictures import illustrate
        from palpate.training.loop import training_device

        if (self.data is None) == (self.env is None):
            both = "" if self.data is None else ", not both"
            raise ValueError(f"give the triples to learn from: either --data FILE or --env ID{both}")
        options = {name: getattr(self, name) for name in ("size", "contact_share") if getattr(self, name) is not None}
        if options and self.env is None:
            name, value = next(iter(options.items()))
            raise ValueError(
                f"{name} is {value}, but the triples of --data are as they are; it is for a world of --env"
            )
        source: Any = self.data
        if self.env is not None:
            source = stream_world(self.env, device=training_device(self.training), **options)
        test = self._test(options)
        model = fit(
            source,
            out=self.out,
            method=self.method,
            objective=self.objective,
            encoder=self.encoder,
            shrink=self.shrink,
            body=self.body,
            radius=self.radius,
            switches=switches(self.switch),
            training=self.training,
            test=None if test is None else test.subset(slice(0, min(len(test), 1000))),  # for the curve
            resume=self.resume,
            overwrite=self.force,
        )
        print(f"{model!r}")
        scores = illustrate(self.out, model, test, f"palpate train: {self.env or self.data}")
        if scores is not None:
            print(f"\n{scores}\n")
        print(f"Read     {self.out / 'report.html'}")
        print(f"Load it with palpate.load({str(self.out)!r})")

    def _test(self, options: dict[str, Any]) -> "Labelled | None":
        from palpate.collecting.collect import collect
        from palpate.data.labelled import Labelled

        if self.test is not None:
            return Labelled.open(self.test)
        if self.env is None:
            return None
        seed = 10**6 + self.training.seed
        return collect(self.env, 10_000, seed=seed, labelled=True, **options)
