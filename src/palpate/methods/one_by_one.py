"""Several objects in pictures: our method for one object, once for each object, one after the other.

A picture's W shows only the object that is easiest to see: as long as one object rests, it identifies the scene, and W
gains nothing from the others. So a W is learned for each object in turn, from the triples in which all objects found so
far have moved. There only an object that is not found yet can identify the scene. This W does not change when a found
object moves, so it labels the contacts of its own object, and everything else is as for one object.
Legend: b batch, k objects, n ambient dimension, c moves.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar, final

import torch
from torch import Tensor, nn

from palpate.config import ModelConfig
from palpate.data.transitions import Batch
from palpate.methods.base import Anew, Encoding, Examination, Loss, Model, Threshold
from palpate.methods.contact import Contact
from palpate.networks import side_by_side

Joined = TypeVar("Joined", Encoding, Examination)
LEAST_USED = 0.05  # share of a batch that W's loss is at least divided by: few triples must not weigh much


@final
class Part(Contact):
    """What finds one object. phi_int and the scales of the data are those of the whole model."""

    def __init__(self, config: ModelConfig, shared: "OneByOne", earlier: Sequence["Part"]) -> None:
        super().__init__(config)
        self.earlier = tuple(earlier)
        for name in ("phi_int", "inputs"):  # registered by the whole model alone
            delattr(self, name)
            self.__dict__[name] = getattr(shared, name)

    def networks(self, x: Tensor) -> list[Tensor]:
        if not self.earlier:
            return super().networks(x)
        with torch.no_grad():  # the agent is learned with the first object
            agent = self.phi_int(x)
        return [agent, *side_by_side((self.phi_ext, self.phi_cont), x)]

    @torch.no_grad()
    def learns_from(self, batch: Batch) -> Tensor:
        used = super().learns_from(batch)
        if self.earlier:
            x = self.inputs(torch.cat((batch.o, batch.o_next)))
            z_int = self.group.pose(self.phi_int(x))
            for part in self.earlier:
                places, z = part.scenes.places, part.head(part.phi_ext(x), z_int).position
                used = used * places.contact(places.distance(*z.chunk(2)))[:, 0]
        return used

    def contrast(self, w: Tensor, w_next: Tensor, z_int_next: Tensor, used: Tensor) -> Tensor:
        each = self.contrasts(w, w_next, z_int_next)
        return (used * each).sum() / used.sum().clamp(min=LEAST_USED * len(used))

    def wanted(self, contacts: Tensor, used: Tensor) -> Tensor:
        """Until W has two classes, the triples that it learns from."""
        return contacts | ((used > 0) & ~self.scenes.has_valley[0]) if self.earlier else contacts

    def uncertainty(self, o: Tensor, moves: Tensor, share: float = 0.5) -> Tensor:
        """Moves that touch all objects found so far, until this one is placed; from then on in every second row."""
        uncertain = super().uncertainty(o, moves, share)
        if not self.earlier:
            return uncertain
        touching = torch.cat([part.predicted(o, moves) for part in self.earlier], -1).amin(-1)
        chosen = self.head.placed[0] & (torch.arange(len(o), device=o.device) % 2 == 0)
        return torch.where(chosen[:, None], uncertain, touching)


@final
class OneByOne(Model):
    """A `Part` for each object, and what they share."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        single = replace(config, method="contact", objective=replace(config.objective, objects=1))
        self.phi_int = Contact(single).phi_int
        parts: list[Part] = []
        for _ in range(config.objects):
            parts.append(Part(single, self, parts))
        self.parts: Any = nn.ModuleList(parts)
        self.stages = len(parts)

    @property
    def part(self) -> Part:
        """The part that is learned at present."""
        found: Part = self.parts[self.stage]
        return found

    # Training

    def measure(self, sample: Batch, actions: Tensor | None = None) -> None:
        super().measure(sample, actions)
        for part in self.parts:
            part.head.measure(self.inputs.unit)

    def train(self, mode: bool = True) -> "OneByOne":
        super().train(mode)
        if self.stage:
            for module in (self.phi_int, *self.parts[: self.stage]):
                module.eval()
        return self

    def outputs(self, batch: Any, generator: torch.Generator, progress: Tensor) -> tuple[Tensor, ...]:
        return self.part.outputs(batch, generator, progress)

    def objective(self, outputs: tuple[Tensor, ...], progress: Tensor) -> Loss:
        return self.part.objective(outputs, progress)

    def loss(self, batch: Any, generator: torch.Generator, progress: Tensor) -> Loss:
        return self.part.loss(batch, generator, progress)

    def held_out(self, blocks: Sequence[Any]) -> float | None:
        return self.part.held_out(blocks)

    def recall(self, blocks: Sequence[Batch]) -> None:
        for part in self.parts:
            part.recall(blocks)

    def contacts(self, batch: Batch) -> Tensor:
        return self.part.contacts(batch)

    def uncertainty(self, o: Tensor, moves: Tensor, share: float = 0.5) -> Tensor:
        if self.part.recent is not None:  # in training
            return self.part.uncertainty(o, moves, share)
        return torch.stack([Contact.uncertainty(part, o, moves, share) for part in self.parts]).amax(0)

    def adapt(self, share: float) -> list[Anew]:
        return self.part.adapt(share)

    def parameter_groups(self) -> list[dict[str, Any]]:
        return [
            {"params": list(self.phi_int.parameters())},
            *(g for part in self.parts for g in part.parameter_groups()),
        ]

    def lasting_state(self) -> dict[str, Tensor]:
        scaffold = tuple(f"parts.{i}.{name}." for i in range(self.stages) for name in Part.scaffold)
        return {name: value for name, value in self.state_dict().items() if not name.startswith(scaffold)}

    def take_down_scaffold(self) -> None:
        self.stage = self.stages - 1
        for part in self.parts:
            part.take_down_scaffold()

    def vitals(self) -> dict[str, float]:
        each = [part.vitals() for part in self.parts]
        numbered = {f"{name}_{i}": x for i, one in enumerate(each) for name, x in one.items() if name != "separation"}
        return {"separation": min(one["separation"] for one in each[: self.stage + 1]), **numbered}

    def compile_step(self) -> None:
        for part in self.parts:
            part.compile_step()
        self.phi_int.fuse()

    # Outputs for users

    def encode(self, o: Tensor) -> Encoding:
        return _joined([part.encode(o) for part in self.parts], ("agent", "heading", "rotation"))

    def pose(self, o: Tensor) -> Tensor:
        return self.parts[0].pose(o)

    def border(self, o: Tensor) -> Tensor | None:
        lines = [part.border(o) for part in self.parts]
        return None if lines[0] is None else torch.cat([line for line in lines if line is not None], 1)

    def scene_distance(self, o: Tensor, o_next: Tensor) -> Tensor:
        return torch.cat([part.scene_distance(o, o_next) for part in self.parts], 1)

    def contact(self, o: Tensor, a: Tensor, o_next: Tensor) -> Tensor:
        return torch.cat([part.contact(o, a, o_next) for part in self.parts], 1)

    def would_touch(self, o: Tensor, a: Tensor) -> Tensor:
        return torch.cat([part.would_touch(o, a) for part in self.parts], 1)

    def threshold(self) -> Threshold | None:
        return self.parts[0].threshold() if self.stages == 1 else None  # each object has one of its own

    def separations(self) -> list[float]:
        return [x for part in self.parts for x in part.separations()]

    def examine(self, batch: Batch) -> Examination:
        return _joined([part.examine(batch) for part in self.parts], ("agent", "agent_next"))


def _joined(parts: Sequence[Joined], shared: Sequence[str]) -> Joined:
    """Tensors of all parts side by side along the objects; the `shared` ones of the first part."""
    columns = {}
    for name in parts[0]._fields:
        each = [getattr(part, name) for part in parts]
        columns[name] = each[0] if name in shared or each[0] is None else torch.cat(each, 1)
    return type(parts[0])(**columns)
