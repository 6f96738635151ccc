"""Counting objects: small models are trained briefly, and it is judged what their slots hold.

The first model has two slots, and each further model one slot more, until a slot is left without an object. A slot
holds an object if its position moves when the agent touches it, and only then.
Legend: b triples, k slots.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import torch
from torch import Tensor

from palpate.choices import rest_floor
from palpate.config import MOST, ModelConfig, ObjectiveConfig, SettledTraining
from palpate.contacts.scenes import Scenes
from palpate.contacts.slots import FEWEST_PATHS, Slot, judge_slots
from palpate.contacts.split import Split
from palpate.data.sources import Resident
from palpate.data.transitions import Batch, Transitions
from palpate.encoders import MLP
from palpate.methods.contact import Contact
from palpate.networks import Branch, one_thread
from palpate.progress import bar
from palpate.training.feeds import Oversampled
from palpate.training.loop import train

FEWEST_SLOTS = 2
ROWS, HELD_ROWS = 12_000, 2000  # at most; triples by which the slots are judged
HELD_PART = 5  # one of so many triples is held out
FEWEST_ROWS = HELD_PART * FEWEST_PATHS  # to count with
STEPS, MORE_STEPS = 400, 100  # of the first run; more for each further slot
BATCH, WIDTH = 128, 96  # triples of a step, width of the networks
WINDOW, JUDGED = 2048, 4  # distances from which thresholds are taken; steps between two such times
LEAST_CONTACTS = 0.15  # share of a batch; rarer contacts are oversampled
UNEXPLAINED = 0.15  # share of the changes in W above which something else must have changed


class Count(NamedTuple):
    """What each slot of a model holds."""

    slots: list[Slot]
    moved: Tensor  # [b, k] bool: whether it moved, in the triples by which the slots are judged
    unexplained: float  # share of the changes in W in which no object moved

    @property
    def indices(self) -> list[int]:
        """The slots that hold an object, the surest first."""
        held = [i for i, slot in enumerate(self.slots) if slot.holds == "object"]
        return sorted(held, key=lambda i: -self.slots[i].youden)

    @property
    def found(self) -> list[Slot]:
        """The slots that hold an object, in the order of `indices`."""
        return [self.slots[i] for i in self.indices]

    @property
    def unknown(self) -> bool:
        """Whether there are too few triples to judge any slot."""
        return all(slot.holds == "unknown" for slot in self.slots)

    @property
    def complete(self) -> bool:
        """Whether a slot is left without an object, and the found objects explain the changes in W."""
        return len(self.found) < len(self.slots) and self.unexplained <= UNEXPLAINED

    @property
    def reason(self) -> str:
        """The evidence for the number of objects, for the user."""
        if self.unknown:
            return "too few triples to count"
        if not self.found:
            return "no object was found: nothing moves when the agent touches it, and only then"
        touched, otherwise = (
            ", ".join(f"{getattr(slot, name):.0%}" for slot in self.found) for name in ("touched", "otherwise")
        )
        return f"so many move if the agent's path is near ({touched} of the paths) and hardly otherwise ({otherwise})"


def steps_of(slots: int) -> int:
    """Steps of the run with so many slots."""
    return STEPS + MORE_STEPS * (slots - FEWEST_SLOTS)


def count(
    rows: Batch, scene: ObjectiveConfig, *, substeps: int = 1, enough: int = MOST, seed: int = 0, progress: bool = False
) -> Count | None:
    """Count the objects that the vectors in `rows` show; None if there are too few rows. See `count_objects`."""
    kept, held = kept_and_held(rows, seed)
    if not countable(held):
        return None
    most = sum(map(steps_of, range(FEWEST_SLOTS, min(enough, MOST - 1) + 2)))
    with bar("counting objects", most, show=progress) as advance, one_thread():
        return count_objects(kept, held, scene, substeps=substeps, enough=enough, seed=seed, watch=advance)


def count_objects(
    kept: Batch,
    held: Batch,
    scene: ObjectiveConfig,
    *,
    substeps: int = 1,
    enough: int = MOST,
    seed: int = 0,
    watch: Callable[[int], None] = lambda step: None,
) -> Count:
    """Train small models on the vectors in `kept`, and judge their slots by `held`, both on the CPU.

    The search ends once `enough` objects are found, or after the model with one slot more than `enough`.
    `watch` is called with the number of finished steps of all runs.
    """
    best, done = None, 0
    for slots in range(FEWEST_SLOTS, min(enough, MOST - 1) + 2):
        model = _small_model(kept, replace(scene, objects=slots), substeps, seed)
        count = _run(model, kept, held, seed, lambda step, before=done: watch(before + step))  # type: ignore[misc]
        done += steps_of(slots)
        none_again = best is not None and not best.found and not count.found
        if best is None or len(count.found) > len(best.found):
            best = count
        if count.complete or none_again or len(best.found) >= enough:
            break
    assert best is not None
    return best


def kept_and_held(rows: Batch, seed: int) -> tuple[Batch, Batch]:
    """Rows to train on, and rows to judge by."""
    order = torch.randperm(len(rows.a), generator=torch.Generator().manual_seed(seed))
    held = min(HELD_ROWS, len(order) // HELD_PART)
    return Batch(*(x[order[held:]] for x in rows)), Batch(*(x[order[:held]] for x in rows))


def countable(held: Batch) -> bool:
    """Whether there are enough rows to judge by."""
    return len(held.a) >= FEWEST_PATHS


def _run(model: "_Counting", kept: Batch, held: Batch, seed: int, watch: Callable[[int], None]) -> Count:
    size = min(BATCH, len(kept.a) // 2)
    config = SettledTraining(
        steps=steps_of(model.config.objects), batch_size=size, optimizer="muon", device="cpu", log_every=10, seed=seed
    )
    triples = Transitions(observation=kept.o, action=kept.a, next_observation=kept.o_next)
    feed = Oversampled(Resident(triples, "cpu"), size, LEAST_CONTACTS)
    train(model, feed, config, watch=lambda step, readings: watch(step))
    with torch.no_grad():
        seen, changed = model.examine(held), model.scene_changes(held)
    length = model.group.difference(seen.objects_next, seen.objects).norm(dim=-1)
    found, moved = judge_slots(seen.distance, length, seen.far, seen.visible)
    holding = torch.tensor([slot.holds == "object" for slot in found])
    left = changed & ~(moved & holding).any(1)
    return Count(found, moved, float(left.sum() / changed.sum().clamp(min=1)))


class _Split(Split):
    """A split that updates its threshold only now and then: for small networks this is most of the cost of a step."""

    def __init__(self) -> None:
        super().__init__(window=WINDOW)
        self.updates = 0

    def _judge(self, scaled: Tensor, known: Tensor, touching: Tensor | None = None) -> None:
        self.updates += 1
        if self.updates % JUDGED == 0:
            super()._judge(scaled, known, touching)


class _Counting(Contact):
    """Our method with quick splits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config)
        self.scenes.places = Scenes([_Split() for _ in range(len(self.head))], dimension=None)

    def make_split(self) -> Split:
        return _Split()

    def scene_changes(self, batch: Batch) -> Tensor:
        """Whether W has changed, `[b]` bool."""
        scenes = self.scenes.scenes
        return scenes.changed(scenes.contact(scenes.distance(self.scene(batch.o), self.scene(batch.o_next))))


def _small_model(rows: Batch, scene: ObjectiveConfig, substeps: int, seed: int) -> _Counting:
    torch.manual_seed(seed)
    actions, numbers = rows.a.shape[1] // substeps, rows.o.shape[1]
    n = scene.dimension(actions)
    radius = float(rows.a.square().sum(1).mean().sqrt()) / 4 if n == 1 else None  # there any radius will do
    objective = replace(scene, body="ball", radius=radius, refine=False, rest_floor=rest_floor(n))
    model = _Counting(
        ModelConfig(
            encoder="mlp",
            observation_shape=(numbers,),
            observation_dtype="float32",
            n=n,
            actions=actions,
            substeps=substeps,
            objective=objective,
        )
    )
    for name in ("phi_int", "phi_ext", "phi_cont"):
        setattr(model, name, Branch(MLP((numbers,), WIDTH), getattr(model, name).head.out_features))
    model.measure(rows)
    return model
