"""Small arrays that a run leaves for figures and notes: some pictures with estimates, distances, positions.

Legend: k pictures, h and w picture height and width, N triples.
"""

from typing import Any

import numpy as np

from palpate.data.labelled import Labelled
from palpate.envs.registration import SOCCER
from palpate.metrics.reading import Reading
from palpate.pictures import aligned_positions, backdrop, from_above
from palpate.representation import Representation
from palpate.reproduce.presets import Case

PICTURES, DISTANCES = 4, 2000


def samples(case: Case, model: Representation, test: Labelled) -> dict[str, np.ndarray]:
    """The arrays of a run by name. In Soccer they include the aligned positions in all test scenes."""
    arrays: dict[str, Any] = {}
    if case.env in SOCCER and model.model.places_object and model.model.tells_apart:
        encoding = aligned_positions(model, test)
        arrays |= {"all_agent": encoding.agent, "all_object": encoding.object, "all_true_object": test.truth.object}
    if case.seed == 0:
        arrays |= _distances(model, test) | _gallery(case, model, test)
    return {name: np.asarray(x) for name, x in arrays.items() if x is not None}


def _distances(model: Representation, test: Labelled) -> dict[str, Any]:
    """The distances [N] that find contacts, their `Threshold`, and the true contacts."""
    threshold = model.model.threshold()
    if threshold is None:
        return {}
    some = test.subset(slice(0, min(DISTANCES, len(test))))
    rows = some.transitions.rows(slice(None))
    return {
        "distances": model.distances(rows.o, rows.o_next),
        "threshold": threshold.value,
        "on": threshold.on,
        "positions": threshold.positions or None,
        "contact": some.truth.contact,
    }


def _gallery(case: Case, model: Representation, test: Labelled) -> dict[str, Any]:
    """Pictures [k, h, w, 3], the matrix [3, 3] from positions to their pixels, and the estimates."""
    if not model.model.places_object:
        return {}
    o, truth = test.transitions.rows(slice(0, min(PICTURES, len(test)))).o, test.truth
    true: dict[str, Any] = {"true_agent": truth.agent[: len(o)], "true_object": truth.object[: len(o)]}
    if case.env in SOCCER and not model.model.tells_apart:
        # Keypoints lie in the picture plane, the true positions on the field.
        shown, true = from_above(o), {}
        encoding = model.encode(test.transitions.rows(slice(None)).o)
        encoding = Reading.fit(model.model.group, encoding, truth, places_object=True, tells_apart=False)(encoding)
    else:
        found = backdrop({"environment": case.env}, o, truth)
        assert found is not None
        shown, encoding = found, aligned_positions(model, test)
    return true | {
        "pictures": shown.pictures[:, :3].permute(0, 2, 3, 1),
        "homography": shown.project.matrix,
        "agent": encoding.agent[: len(o)],
        "object": encoding.object[: len(o)],
        "border": model.border(o),
    }
