"""The paper's objective as printed (Sec. 4, Eq. 3 to 7, Algorithm 1): points, or Gaussians with a volume (Sec. 4.3).

    L = L_int + L_cont + L_- over C_- + L_+ over C_+

Each network minimises its own loss: neither L_ext nor L_cont moves the agent. C_+ and C_- are Otsu's split of d_W over
the batch.
Legend: b batch, n ambient dimension.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from palpate.bodies.base import clearance
from palpate.bodies.gaussian import Gaussian
from palpate.config import ModelConfig
from palpate.contacts.scenes import Scenes
from palpate.contacts.split import Split
from palpate.data.transitions import Batch
from palpate.geometry import Segment, around, border
from palpate.methods.base import Encoding, Examination, Loss, Model
from palpate.methods.geometric import elongation
from palpate.networks import Branch, make_encoder, side_by_side
from palpate.objectives.contrastive import infonce
from palpate.objectives.equivariance import equivariance
from palpate.objectives.paper import gaussian_stay, gaussian_touch, stay, touch
from palpate.objects import BORDER_DIRECTIONS, BORDER_POINTS

TEMPERATURE = 0.1


class Paper(Model):
    """phi_int, phi_ext and phi_cont; the object is a point."""

    not_judged = frozenset({"contrast"})

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.scenes = Scenes([self.make_split()])
        self.phi_int = Branch(make_encoder(config), self.group.width)
        self.phi_ext = Branch(make_encoder(config), config.n + self.pose_width(config.n))
        self.phi_cont = Branch(make_encoder(config), self.scenes.width)

    def make_split(self) -> Split:
        return Split(on="d", window=0, floor=0.0)

    def pose_width(self, n: int) -> int:
        return 0

    def outputs(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        x = self.inputs(torch.cat((batch.o, batch.o_next)), generator)
        t = torch.rand(len(batch.a), generator=generator, device=batch.a.device)
        raw = side_by_side((self.phi_int, self.phi_ext, self.phi_cont), x)
        both = [part for output in raw for part in output.chunk(2)]
        return (*both, self.inputs.scaled(batch.a), t)

    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        int_, int_next, ext, ext_next, cont, cont_next, a, t = outputs
        z_int, z_int_next = self.group.pose(int_), self.group.pose(int_next)
        w, w_next = self.scenes(cont), self.scenes(cont_next)  # [b, 1, m]
        contact = self.scenes.observe(w, w_next)[:, 0]  # [b]
        path = self.group.path(z_int.detach(), a)
        z = z_int_next.detach()
        agents = self.group.distance2(z[:, None], z[None]) / TEMPERATURE
        terms = {
            "agent": equivariance(self.group, z_int, a, z_int_next).mean(),
            "contrast": infonce(w, w_next, agents, temperature=TEMPERATURE).mean(),
            "stay": torch.where(contact, 0.0, self.stay(ext, ext_next)).mean(),
            "touch": torch.where(contact, self.touch(ext, path, t), 0.0).mean(),
        }
        return Loss(terms, {"contact_share": contact.float().mean()}, self.scenes.reliable(contact[:, None]))

    def stay(self, ext: Tensor, ext_next: Tensor) -> Tensor:
        """L_- `[b]`."""
        return stay(ext, ext_next)

    def touch(self, ext: Tensor, path: Segment, t: Tensor) -> Tensor:
        """L_+ `[b]`."""
        return touch(ext, path)

    def encode(self, o: Tensor) -> Encoding:
        x, unit = self.inputs(o), self.inputs.unit
        z_int = self.group.pose(self.phi_int(x))
        return Encoding(self.group.position(z_int) * unit, self.phi_ext(x)[:, None, : self.config.n] * unit)

    def scene_distance(self, o: Tensor, o_next: Tensor) -> Tensor:
        w, w_next = self.scenes(self.phi_cont(self.inputs(torch.cat((o, o_next))))).chunk(2)
        return self.scenes.distance(w, w_next)

    def contact(self, o: Tensor, a: Tensor, o_next: Tensor) -> Tensor:
        return self.scenes.probability(self.scene_distance(o, o_next))

    def contacts(self, batch: Batch) -> Tensor:
        return self.scenes.reliable(self.scenes.contact(self.scene_distance(batch.o, batch.o_next)))

    def separation(self) -> float:
        return self.scenes.separation()

    def threshold(self) -> tuple[float, str]:
        split = self.scenes.split(0)
        return float(split.threshold), split.on

    def vitals(self) -> dict[str, float]:
        return {"separation": self.separation()}

    def held_out(self, blocks: Sequence[Batch]) -> float | None:
        return super().held_out(blocks) if self.scenes.separable() else None

    def examine(self, batch: Batch) -> Examination:
        x, x_next, unit = self.inputs(batch.o), self.inputs(batch.o_next), self.inputs.unit
        z_int, z_int_next = (self.group.pose(self.phi_int(y)) for y in (x, x_next))
        ext, ext_next = self.phi_ext(x), self.phi_ext(x_next)
        path = self.group.path(z_int, self.inputs.scaled(batch.a))
        scene = self.scene_distance(batch.o, batch.o_next)
        distance, long = self.passing(ext, path)
        return Examination(
            agent=z_int * unit,
            agent_next=z_int_next * unit,
            objects=ext[:, None, : self.config.n] * unit,
            objects_next=ext_next[:, None, : self.config.n] * unit,
            scene=scene,
            contact=self.scenes.contact(scene),
            distance=distance[:, None] * unit,
            elongation=long,
        )

    def passing(self, ext: Tensor, path: Segment) -> tuple[Tensor, Tensor | None]:
        """How far a path passes from the object `[b]`, and the body's elongation [b, 1]."""
        return touch(ext, path).sqrt(), None

    def compile_step(self) -> None:
        super().compile_step()
        self.fused = torch.compile(self.objective, dynamic=False)


class PaperGaussian(Paper):
    """phi_ext outputs a Gaussian: L_- is a KL divergence, L_+ the likelihood of a uniform point of the path."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.body = Gaussian(config.n)

    def pose_width(self, n: int) -> int:
        return Gaussian(n).pose_width

    def read(self, ext: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [b, n] and root of the covariance, a pose [b, n * n]."""
        return ext[:, : self.config.n], self.body.pose(ext[:, self.config.n :])

    def stay(self, ext: Tensor, ext_next: Tensor) -> Tensor:
        (mean, pose), (mean_next, pose_next) = self.read(ext), self.read(ext_next)
        return gaussian_stay(mean, self.body.root(pose), mean_next, self.body.root(pose_next))

    def touch(self, ext: Tensor, path: Segment, t: Tensor) -> Tensor:
        mean, pose = self.read(ext)
        return gaussian_touch(mean, self.body.root(pose), path, t)

    def encode(self, o: Tensor) -> Encoding:
        _, pose = self.read(self.phi_ext(self.inputs(o)))
        orientation = self.body.orientation(pose)
        return (
            super()
            .encode(o)
            ._replace(
                covariances=(self.body.covariance(pose) * self.inputs.unit.square())[:, None],
                orientations=None if orientation is None else orientation[:, None],
            )
        )

    def border(self, o: Tensor) -> Tensor | None:
        if self.config.n != 2:
            return None
        _, pose = self.read(self.phi_ext(self.inputs(o)))
        support = self.body.support(around(BORDER_DIRECTIONS, pose), pose)
        return border(support, BORDER_POINTS)[:, None] * self.inputs.unit

    def passing(self, ext: Tensor, path: Segment) -> tuple[Tensor, Tensor | None]:
        mean, pose = self.read(ext)
        distance = clearance(self.body, mean, pose, path) + self.body.size(pose)
        return distance, elongation(self.body.covariance(pose))[:, None]
