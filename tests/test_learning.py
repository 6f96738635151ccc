"""It learns: a short run on the CPU ends where an untrained model and a constant answer are not seen."""

import pytest

import palpate
from palpate.collecting.collect import collect
from palpate.envs.registration import stream_world

SIZE = 32
BOUND = 6e-3  # seeds 0 and 1 end at 1.1e-3 and 1.3e-3, an untrained model above 1e-1, the constant answer at 1.9e-1


@pytest.mark.slow
def test_sprites_from_pixels() -> None:
    test = collect("palpate/Sprites-v0", 1000, seed=9, labelled=True, size=SIZE)
    settings = {"encoder": "small", "batch_size": 64, "learning_rate": 3e-3, "device": "cpu", "progress": False}
    stream = stream_world("palpate/Sprites-v0", size=SIZE)
    with pytest.warns(UserWarning, match="triples with and without contact do not separate"):
        untrained = palpate.fit(stream, steps=1, **settings)
    before = palpate.evaluate(untrained, test)
    after = palpate.evaluate(palpate.fit(stream, steps=200, **settings), test)
    assert before.l_test > 10 * BOUND
    assert after.constant["l_test"] > 10 * BOUND
    assert after.l_test < BOUND
    assert after.agent_error < 0.05  # the square's side is 1
    assert after.object_error < 0.07
    assert after.contact_accuracy is not None
    assert after.contact_accuracy > 0.97
    assert after.would_touch_accuracy is not None
    assert after.would_touch_accuracy > 0.8
    assert after.isometry < 0.15
