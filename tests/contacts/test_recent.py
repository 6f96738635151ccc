"""The last triples of training: which are kept, and from when they are used."""

import torch
from walks import stored, walked

from palpate.contacts.hiding import agent_hides
from palpate.contacts.recent import FEWEST, WINDOW
from palpate.contacts.relocation import better_place


def test_few_triples_decide_nothing() -> None:
    path, thing, changed = walked(FEWEST - 1, mast=0.1)
    recent = stored(path, thing - 0.1, changed)
    assert better_place(recent, 0, torch.tensor(0.17), resize=True) is None
    assert not agent_hides(recent, 0, torch.tensor(0.17))


def test_an_object_that_starts_anew_is_not_searched_by_its_past() -> None:
    path, thing, changed = walked(4000, mast=0.1)
    shifted = thing + torch.tensor((0.0, -0.09))
    recent = stored(path, shifted, changed)
    assert agent_hides(recent, 0, torch.tensor(0.17))
    recent.restart(0)
    assert better_place(recent, 0, torch.tensor(0.17), resize=True) is None
    assert not agent_hides(recent, 0, torch.tensor(0.17))


def test_the_oldest_triples_are_forgotten() -> None:
    path, thing, changed = walked(WINDOW, mast=0.1)
    recent = stored(path, thing, ~changed)
    for rows in torch.arange(WINDOW).split(100):  # does not divide the window
        at = thing[rows]
        apart = [(at - x[rows])[:, None] for x in (path.start, path.start + path.move)]
        recent.store(path.start[rows], path.move[rows], at[:, None], at[:, :1], *apart, changed[rows, None])
    assert torch.equal(recent.changed[:, 0], changed)
    twice = [x.repeat(2, *(1 for _ in x.shape[1:])) for x in (path.start, path.move, thing[:, None])]
    apart = torch.zeros_like(twice[2])
    recent.store(*twice, apart[..., 0], apart, apart, torch.cat((changed, ~changed))[:, None])
    assert sorted(recent.changed[:, 0].tolist()) == sorted((~changed).tolist())  # the last of a large batch
