"""The paper's objective as printed (Sec. 4, Eq. 3 to 7, Algorithm 1): points, or Gaussians with a volume (Sec. 4.3).

    L = L_int + L_cont + L_- over C_- + L_+ over C_+

Each network minimises its own loss: neither L_ext nor L_cont moves the agent. C_+ and C_- are Otsu's split of d_W over
the batch.
Legend: b batch, k = 1 object, n ambient dimension.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from palpate.bodies.base import Body
from palpate.bodies.gaussian import Gaussian
from palpate.bodies.point import Point
from palpate.config import ModelConfig
from palpate.contacts.scenes import Scenes
from palpate.contacts.split import Split
from palpate.data.transitions import Batch
from palpate.geometry import Path
from palpate.methods.base import Loss
from palpate.methods.located import Located
from palpate.networks import Branch, make_encoder, side_by_side
from palpate.objectives.contrastive import infonce
from palpate.objectives.paper import gaussian_stay, gaussian_touch, stay, touch
from palpate.objects import Objects

TEMPERATURE = 0.1


class Paper(Located):
    """phi_int, phi_ext and phi_cont; the object is a point."""

    not_judged = frozenset({"contrast"})
    body: Callable[[int], Body] = Point

    scenes: Scenes

    def __init__(self, config: ModelConfig) -> None:
        if config.n == 1:
            raise ValueError(
                "actions have one dimension: the agent cannot pass the object without contact, so position and radius "
                "cannot be separated; use objective='contact', which takes the radius"
            )
        super().__init__(config, [type(self).body(config.n)])
        self.scenes = Scenes([self.make_split()])
        self.phi_cont = Branch(make_encoder(config), self.scenes.width)

    def make_split(self) -> Split:
        return Split(on="d", window=0, floor=0.0)

    def outputs(self, batch: Batch, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        x = self.inputs(torch.cat((batch.o, batch.o_next)), generator)
        t = torch.rand(len(batch.a), 1, generator=generator, device=batch.a.device)
        raw = side_by_side((self.phi_int, self.phi_ext, self.phi_cont), x)
        both = [part for output in raw for part in output.chunk(2)]
        return (*both, self.inputs.scaled(batch.a), t)

    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        int_, int_next, ext, ext_next, cont, cont_next, a, t = outputs
        z_int, z_int_next = self.group.pose(int_), self.group.pose(int_next)
        before, after = self.head(ext, z_int), self.head(ext_next, z_int_next)
        w, w_next = self.scenes(cont), self.scenes(cont_next)  # [b, k, m]
        contact = self.scenes.observe(w, w_next)  # [b, k]
        path = self.group.path(self.group.flawless(z_int.detach())[:, None], a[:, None])
        z = z_int_next.detach()
        agents = self.group.distance2(z[:, None], z[None]) / TEMPERATURE
        terms = {
            "agent": self.agent_term(int_, a, int_next, ()),
            "contrast": infonce(w, w_next, agents, temperature=TEMPERATURE).mean(),
            "stay": torch.where(contact, 0.0, self.stay(before, after)).mean(),
            "touch": torch.where(contact, self.touch(before, path, t), 0.0).mean(),
        }
        return Loss(terms, {"contact_share": contact.float().mean()}, self.scenes.reliable(contact))

    def stay(self, before: Objects, after: Objects) -> Tensor:
        """L_- `[b, k]`."""
        return stay(before.position, after.position)

    def touch(self, objects: Objects, path: Path, t: Tensor) -> Tensor:
        """L_+ `[b, k]`."""
        return touch(objects.position, path)

    def scene_distance(self, o: Tensor, o_next: Tensor) -> Tensor:
        w, w_next = self.scenes(self.phi_cont(self.inputs(torch.cat((o, o_next))))).chunk(2)
        return self.scenes.distance(w, w_next)


class PaperGaussian(Paper):
    """phi_ext outputs a Gaussian: L_- is a KL divergence, L_+ the likelihood of a uniform point of the path."""

    body = Gaussian

    def stay(self, before: Objects, after: Objects) -> Tensor:
        return gaussian_stay(before.position, self._root(before), after.position, self._root(after))

    def touch(self, objects: Objects, path: Path, t: Tensor) -> Tensor:
        return gaussian_touch(objects.position, self._root(objects), path, t)

    def _root(self, objects: Objects) -> Tensor:
        body = self.head[0]
        assert isinstance(body, Gaussian)
        return body.root(objects.pose)
