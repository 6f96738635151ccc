"""Small arrays that a run leaves for the figures: a few pictures with what was found in them, an example, distances.

Legend: k pictures, c channels, h and w picture height and width, N triples.
"""

from typing import Any

import numpy as np

from palpate.data.labelled import Labelled
from palpate.envs.registration import SOCCER, world
from palpate.envs.soccer.config import ABOVE_RANGE
from palpate.metrics import Reading
from palpate.representation import Representation
from palpate.reproduce.presets import TEST_SEED, Case

PICTURES, DISTANCES = 4, 2000
ABOVE_PIXELS = 160
UNIT_SQUARE = (0.0, 1.0, 0.0, 1.0)  # what a picture of Sprites shows: left, right, bottom, top


def samples(
    case: Case, model: Representation, test: Labelled, reference: Labelled, *, everything: bool
) -> dict[str, np.ndarray]:
    """What to keep of a run, by name; with `everything` also where in all test scenes things are, after alignment."""
    arrays: dict[str, Any] = {}
    if everything and model.model.places_object and model.model.tells_apart:
        encoding = _aligned(model, reference).encode(test.transitions.rows(slice(None)).o)
        arrays |= {"all_agent": encoding.agent, "all_object": encoding.object, "all_true_object": test.truth.object}
    if case.seed == 0:
        arrays |= _distances(model, test)
        if case.source != "vectors":
            arrays |= _example(test)
            arrays |= _gallery(case, model, test, reference)
    return {name: np.asarray(x) for name, x in arrays.items() if x is not None}


def _distances(model: Representation, test: Labelled) -> dict[str, Any]:
    """d_W [N], the threshold on the scale `on` which the split was made, and the true contacts."""
    if model.config.method != "interaction":
        return {}
    some = test.subset(slice(0, min(DISTANCES, len(test))))
    rows = some.transitions.rows(slice(None))
    distances, threshold = model.distances(rows.o, rows.o_next)
    on = model.config.objective.split_on
    return {"distances": distances, "threshold": threshold, "on": on, "touched": some.truth.contact}


def _example(test: Labelled) -> dict[str, Any]:
    """A triple in which the agent touched the object, if there is one."""
    contact = test.truth.contact
    row = int(contact.int().argmax()) if contact is not None else 0
    o, a, o_next = (x[0] for x in test.transitions.rows([row]))
    return {"before": o, "after": o_next, "action": a, "start": test.truth.agent[row]}


def _gallery(case: Case, model: Representation, test: Labelled, reference: Labelled) -> dict[str, Any]:
    """Pictures [k, h, w, 3], the rectangle of the plane that they show, and what was found in them."""
    if not model.model.places_object:
        return {}
    some = test.subset(slice(0, min(PICTURES, len(test))))
    o = some.transitions.rows(slice(None)).o  # [k, c, h, w]
    pictures: Any = o[:, :3].permute(0, 2, 3, 1)
    extent = UNIT_SQUARE
    # Points of the picture plane are drawn there; in Soccer that is not the plane in which the truth lies.
    in_plane = model.model.tells_apart or case.env not in SOCCER
    if not model.model.tells_apart:
        encoding = _order(model, reference)(model.encode(o))
    else:
        encoding = _aligned(model, reference).encode(o)
        if case.env in SOCCER:
            pictures, extent = _from_above(case, len(o))
    return {
        "pictures": pictures,
        "extent": extent,
        "agent": encoding.agent,
        "object": encoding.object,
        "border": model.border(o),
        "true_agent": some.truth.agent if in_plane else None,
        "true_object": some.truth.object if in_plane else None,
    }


def _from_above(case: Case, count: int) -> tuple[np.ndarray, tuple[float, float, float, float]]:
    """The first test scenes of Soccer, seen from above, and the rectangle of the unit square that is seen."""
    with world(case.env, size=case.size) as soccer:
        scenes = soccer.states(TEST_SEED, 0, count).before
        pictures = soccer.render(scenes, "above", ABOVE_PIXELS, ABOVE_PIXELS)
    return pictures, ABOVE_RANGE * 2


def _aligned(model: Representation, reference: Labelled) -> Representation:
    o, truth = reference.transitions.rows(slice(None)).o, reference.truth
    return model.align({"observation": o, "agent": truth.agent, "object": truth.object})


def _order(model: Representation, reference: Labelled) -> Reading:
    """Which keypoint is the agent, as it is chosen for the scores."""
    encoding = model.encode(reference.transitions.rows(slice(None)).o)
    return Reading.fit(encoding, reference.truth, places_object=True, tells_apart=False)
