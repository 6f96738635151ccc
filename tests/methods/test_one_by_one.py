"""Several objects in pictures: each W learns from the triples in which all objects found before have moved."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import palpate
from palpate.config import ModelConfig, ObjectiveConfig
from palpate.data.transitions import Batch
from palpate.envs.registration import world
from palpate.methods.one_by_one import LEAST_USED, OneByOne
from palpate.objects import NEVER, Objects

ROWS, SIZE = 16, 20


def model(objects: int = 3) -> OneByOne:
    torch.manual_seed(0)
    scene = ObjectiveConfig(body="ball", refine=False, rest_floor=0.1, objects=objects)
    shape = (3, SIZE, SIZE)
    made = OneByOne(ModelConfig(method="one-by-one", encoder="small", observation_shape=shape, n=2, objective=scene))
    made.measure(batch())
    return made


def batch(seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    o, o_next = torch.randint(256, (2, ROWS, 3, SIZE, SIZE), generator=generator, dtype=torch.uint8)
    return Batch(o, torch.randn(ROWS, 2, generator=generator), o_next)


def moves(part: Any, moved: Tensor) -> None:
    """Let a part place its object at the origin, and at (1, 0) in the rows of o' in which it has moved."""
    del part.head
    split = part.scenes.places.split(0)
    split.threshold.fill_(0.5 if split.on == "d" else -1.0)
    x = torch.cat((torch.zeros(len(moved)), moved.float()))
    position = torch.stack((x, torch.zeros_like(x)), 1)[:, None]
    seen = Objects(position, position.new_zeros(len(x), 1, 0), position.new_full((len(x), 1), NEVER))
    part.__dict__["head"] = lambda raw, z_int: seen


def state(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.nan_to_num().clone() for name, value in module.state_dict().items()}


def learn(made: OneByOne, steps: int = 3) -> None:
    optimizer = torch.optim.SGD(made.parameter_groups(), lr=1e-2)
    for seed in range(steps):
        optimizer.zero_grad()
        terms = made.loss(batch(seed), torch.Generator().manual_seed(seed), torch.tensor(0.5)).terms
        torch.stack(list(terms.values())).sum().backward()
        optimizer.step()


def test_w_learns_from_triples_in_which_all_objects_found_before_have_moved() -> None:
    made = model()
    first, second = torch.rand(2, ROWS, generator=torch.Generator().manual_seed(3)) < 0.5
    moves(made.parts[0], first)
    moves(made.parts[1], second)
    used = [part.learns_from(batch()) for part in made.parts]
    assert [x.tolist() for x in used] == [[1.0] * ROWS, first.float().tolist(), (first & second).float().tolist()]


def test_the_contrast_is_the_mean_over_these_triples() -> None:
    part = model().parts[1]
    w, w_next = nn.functional.normalize(torch.randn(2, ROWS, 1, 8), dim=-1)
    z, used = torch.randn(ROWS, 2), torch.zeros(ROWS)
    each = part.contrasts(w, w_next, z)
    used[[2, 5]] = 1
    torch.testing.assert_close(part.contrast(w, w_next, z, used), (each[2] + each[5]) / 2)
    assert part.contrast(w, w_next, z, torch.zeros(ROWS)) == 0
    assert LEAST_USED * ROWS < 1  # else two triples would be too few for a mean


@pytest.mark.parametrize("separate", [True, False])
def test_these_triples_are_wanted_until_w_separates_contacts(separate: bool) -> None:
    made = model()
    used, contacts = torch.arange(ROWS) < 3, torch.arange(ROWS) > 12
    part = made.parts[1]
    part.scenes.scenes.split(0).valley.fill_(0.9 if separate else 0.1)
    assert part.wanted(contacts, used.float()).tolist() == (contacts if separate else contacts | used).tolist()
    assert made.parts[0].wanted(contacts, used.float()).tolist() == contacts.tolist()


def test_a_trained_model_is_uncertain_where_any_object_is() -> None:
    made, o, tried = model().eval(), batch().o, torch.randn(ROWS, 5, 2, generator=torch.Generator().manual_seed(1))
    made.take_down_scaffold()
    odds = torch.cat([part.predicted(o, tried) for part in made.parts], -1)
    torch.testing.assert_close(made.uncertainty(o, tried), -odds.abs().amin(-1))


def test_moves_that_touch_all_objects_found_before_are_chosen() -> None:
    """In every second row once the next object is placed; the others are those with an uncertain contact."""
    made = model().eval()
    part, o, tried = made.parts[2], batch().o, torch.randn(ROWS, 5, 2, generator=torch.Generator().manual_seed(1))
    sure = torch.stack([x.predicted(o, tried)[..., 0] for x in made.parts[:2]]).amin(0)
    torch.testing.assert_close(part.uncertainty(o, tried), sure)
    part.head.placed.fill_(True)
    found = part.uncertainty(o, tried)
    torch.testing.assert_close(found[1::2], sure[1::2])
    torch.testing.assert_close(found[::2], -part.predicted(o, tried)[::2, :, 0].abs())


def test_a_stage_changes_only_its_own_part() -> None:
    made = model().train()
    learn(made)
    before = [state(module) for module in (made.phi_int, *made.parts)]
    made.stage = 1
    made.train()
    learn(made)
    after = [state(module) for module in (made.phi_int, *made.parts)]
    same = [all(torch.equal(old[name], new[name]) for name in old) for old, new in zip(before, after, strict=True)]
    assert same == [True, True, False, True]


def test_the_agent_and_the_scales_are_stored_once() -> None:
    names = list(model().state_dict())
    assert not [name for name in names if name.startswith("parts.") and (".phi_int." in name or ".inputs." in name)]
    assert [name for name in names if name.startswith("phi_int.")]


@pytest.mark.slow
def test_two_objects_in_pictures_are_found(recwarn: pytest.WarningsRecorder) -> None:
    """L_test is a small share of the constant predictor's for each of them."""
    options: dict[str, Any] = {"size": 32, "objects": 2}
    found = palpate.fit(
        world("palpate/SpritesMany-v0", **options), encoder="small", objects=2, steps=500, device="cpu", progress=False
    )
    test = palpate.collect("palpate/SpritesMany-v0", 1000, seed=10**6, labelled=True, progress=False, **options)
    scores = palpate.evaluate(found, test)
    assert max(one.l_test / one.constant_l_test for one in scores.each) < 0.02
    assert scores.contact_accuracy is not None
    assert scores.contact_accuracy > 0.95
