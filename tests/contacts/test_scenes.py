"""W for two objects: each has its own distances and its own split."""

import torch
from torch import Tensor
from torch.nn.functional import normalize
from torch.testing import assert_close

from palpate.contacts.scenes import Scenes
from palpate.contacts.split import SEPARABLE, Split
from palpate.objectives.contrastive import squared_distance

B, K, M = 512, 2, 8
ALONE = (torch.arange(B) % 2 == 0, torch.arange(B) % 3 == 0)  # which triples are contacts, object by object
CONTACT = torch.stack(ALONE, 1)


def points(seed: int) -> Tensor:
    return normalize(torch.randn(B, K, M, generator=torch.Generator().manual_seed(seed)), dim=-1)


def triples(seed: int = 0, noise: float = 1e-3) -> tuple[Tensor, Tensor]:
    """w, w': in a contact an unrelated point, otherwise one close by."""
    w = points(seed)
    near = normalize(w + noise * points(seed + 1), dim=-1)
    return w, torch.where(CONTACT[..., None], points(seed + 2), near)


def learned() -> Scenes:
    scenes = Scenes([Split(), Split()], M).train()
    for seed in range(4):
        scenes.observe(*triples(10 * seed))
    return scenes


def test_a_networks_output_becomes_a_unit_vector_for_each_object() -> None:
    scenes, raw = Scenes([Split(), Split()], M), torch.randn(5, K * M, generator=torch.Generator().manual_seed(0))
    w = scenes(raw)
    assert scenes.width == K * M
    for i, part in enumerate(raw.chunk(K, -1)):
        assert_close(w[:, i], part / part.norm(dim=-1, keepdim=True))


def test_each_split_sees_its_own_distances() -> None:
    scenes, alone = learned(), [Split(), Split()]
    for seed in range(4):
        w, w_next = triples(10 * seed)
        for i, split in enumerate(alone):
            unrelated = squared_distance(w_next[:, i], w_next[:, i].roll(1, 0))
            split.update(squared_distance(w[:, i], w_next[:, i]), unrelated)
    for i, split in enumerate(alone):
        for name, buffer in split.named_buffers():
            assert_close(scenes.split(i).get_buffer(name), buffer, equal_nan=True)
    w, w_next = triples(99)
    distances = scenes.distance(w, w_next)
    assert torch.equal(scenes.contact(distances), CONTACT)
    assert torch.equal(scenes.probability(distances) > 0.5, CONTACT)
    assert_close(scenes.share, CONTACT.float().mean(0), atol=0.01, rtol=0)


def test_only_training_is_remembered() -> None:
    scenes = learned().eval()
    assert torch.equal(scenes.observe(*triples(99)), CONTACT)
    assert [int(scenes.split(i).seen) for i in range(K)] == [4 * B] * K


def test_contacts_are_reliable_where_that_objects_classes_are_apart() -> None:
    scenes = learned()
    scenes.split(1).valley.zero_()
    assert torch.equal(scenes.reliable(CONTACT), ALONE[0])
    scenes.split(0).valley.zero_()
    assert not scenes.reliable(CONTACT).any()


def test_the_poorest_split_decides_whether_contacts_separate() -> None:
    scenes = learned()
    assert min(scenes.separations()) >= SEPARABLE
    scenes.split(1).valley.fill_(0.3)
    assert abs(min(scenes.separations()) - 0.3) < 1e-6
    assert min(scenes.separations()) < SEPARABLE


def test_recall_takes_each_threshold_from_its_own_column() -> None:
    """Of triples that were not trained on the second object's rest differs more; the first one's is as it was."""
    scenes = learned()
    rest = torch.tensor([1e-6, 1.5])
    unseen = torch.where(CONTACT, 3.5, rest) * (1 + 0.1 * torch.rand(B, K, generator=torch.Generator().manual_seed(0)))
    before = [scenes.split(i).threshold.clone() for i in range(K)]
    scenes.recall(unseen)
    assert scenes.split(1).threshold > rest[1].log()
    assert torch.equal(scenes.contact(unseen), CONTACT)
    assert all(scenes.split(i).threshold != before[i] for i in range(K))
