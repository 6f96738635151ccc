"""Usual faults of demonstrations: no misses, a narrow corridor, no contacts within episodes.

Legend: b examined triples, n dimension of the action, m dimension of W.
"""

import numpy as np
import torch
from torch import Tensor

from palpate.data.transitions import Batch, Transitions
from palpate.doctor.probe import RELATED, Trial
from palpate.findings import Finding, Rule
from palpate.groups.base import Group
from palpate.methods.base import Examination
from palpate.quality import boundary, examine

EXAMINED_ROWS = 4000  # at most
SHORTEST = 5  # median triples of an episode; with fewer, episodes are not used
NEAR = 2.5  # in radii; a path that passes the object within this distance nearly touches it
FEWEST_CONTACTS, FEWEST_ENCOUNTERS = 20, 40
SEEN_ROWS = 3  # an episode with fewer examined triples is not judged
OUTER = 0.05  # share of the positions at each end that the extent leaves out
RESTS = 0.5  # change of the scene within episodes, relative to that between them, below which the object rests
NEVER = 5e-4  # share of the triples with a change of the scene, below which there are no contacts at all, not few
COMPARED = 500  # rows whose scenes are compared across episodes

NEVER_MISSES = Rule(
    "never-misses",
    "passing_share touched_episodes",
    "the agent hardly ever passes the object without contact",
    "If the agent always goes to the object, the triples do not determine the size of the body, and the object's "
    "position is uncertain across the moves. Add moves that pass the object on all sides, near and without contact. A "
    "few in each episode are enough.",
    below=(0.06, -float("inf")),
)
CORRIDOR = Rule(
    "corridor",
    "width_over_length width length",
    "the agent's positions fill only a corridor",
    "Across the corridor the positions of agent and object are uncertain. Add moves across it, also past the object "
    "on both sides, or leave that direction out of the actions.",
    below=(0.15, -float("inf")),
)
MOVED_BETWEEN = Rule(
    "moved-between-episodes",
    "scene_change_between_episodes scene_change_within_episodes changed_within_episodes",
    "the scene rests within episodes and changes only between them",
    "No triple shows a contact. Was the object moved by a person or a reset while nothing was recorded? Record "
    "episodes in which the agent itself touches and moves the object. Resets between episodes do no harm.",
    above=(0.25, 0.25),
)


def episodes_of(triples: Transitions, goes_on: np.ndarray) -> np.ndarray | None:
    """The episode [N] of each triple, or its chain if episodes are unknown; None if they are too short."""
    number = triples.episode
    chain = np.cumsum(np.append(False, ~goes_on[:-1])) if number is None else number.numpy()
    return chain if np.median(np.bincount(np.unique(chain, return_inverse=True)[1])) >= SHORTEST else None


@torch.no_grad()
def measure_demonstrations(trial: Trial, rows: np.ndarray, episode: np.ndarray | None) -> dict[str, float]:
    """Measurements for the rules, from a trained probe; `rows` are the rows of the log that the probe received."""
    order = torch.cat((trial.held_rows, trial.kept_rows))[:EXAMINED_ROWS]
    batch = Batch(*(torch.cat((held, kept))[: len(order)] for held, kept in zip(trial.held, trial.kept, strict=True)))
    seen, row = examine(trial.model, batch), rows[order.numpy()]
    assert seen is not None
    group = trial.model.group
    a = batch.a.double()
    found = _breadth(group.position(seen.agent)) if group.n > 1 else {}
    if episode is not None:
        number = torch.from_numpy(np.unique(episode[row], return_inverse=True)[1])
        w, w_next = (torch.cat([trial.model.scene(o)[:, 0] for o in side.split(256)]) for side in batch[::2])
        place = group.position(seen.agent)
        found |= _misses(group, seen, a, number) | _scenes(w, w_next, place, number)
    return found


def judge_demonstrations(seen: dict[str, float], others: list[Finding]) -> list[Finding]:
    """All findings: those of the probe, and those about demonstrations where their preconditions hold."""
    names = {finding.name for finding in others}
    if any(f.severity == "blocking" and f.name in ("not-displacements", "changing-scale") for f in others):
        return others  # the positions mean nothing
    found = [*others, *CORRIDOR.judge(seen)]
    between, within = (seen.get(f"scene_change_{name}_episodes", 0.0) for name in ("between", "within"))
    rests = within < RESTS * between and seen.get("changed_within_episodes", 1.0) < NEVER
    if rests and {"no-contacts", "no-lasting-scene"} & names and (moved := MOVED_BETWEEN.judge(seen)):
        return [*(f for f in found if f.name not in ("no-contacts", "no-lasting-scene")), *moved]
    if not names & {"no-contacts", "no-lasting-scene", "no-two-classes", "unexplained-contacts"}:
        found += NEVER_MISSES.judge(seen)
    return found


def _breadth(place: Tensor) -> dict[str, float]:
    """Extent of the agent's positions [b, n] along their flattest and their longest direction."""
    centred = place - place.mean(0)
    axes = torch.linalg.svd(centred, full_matrices=False).Vh
    ends = (centred @ axes.T).quantile(torch.tensor([OUTER, 1 - OUTER], dtype=place.dtype), dim=0)
    extent = ends[1] - ends[0]
    width, length = float(extent.min()), float(extent.max())
    return {"width_over_length": width / max(length, 1e-30), "width": width, "length": length}


def _misses(group: Group, seen: Examination, a: Tensor, number: Tensor) -> dict[str, float]:
    """The share of misses among the paths that touch or nearly touch the object, and of episodes with a contact."""
    visible = seen.visible[:, 0]
    contact = seen.contact[:, 0] & visible
    free = ~seen.contact[:, 0] & visible
    if int(contact.sum()) < FEWEST_CONTACTS or not free.any():
        return {}
    radius = boundary(seen.distance[visible, 0], contact[visible]).radius
    start, end = group.position(seen.agent), group.position(group.act(seen.agent, a))
    ahead, move = group.difference(seen.objects[:, 0], start), group.difference(end, start)
    along = (ahead * move).sum(1) / move.square().sum(1).clamp(min=1e-30)
    passes = free & (along > 0) & (along < 1) & (seen.distance[:, 0] < NEAR * radius)
    judged = number.bincount() >= SEEN_ROWS
    touched = torch.zeros(len(judged)).index_add_(0, number, contact.float()) > 0
    encounters = int(contact.sum() + passes.sum())
    if encounters < FEWEST_ENCOUNTERS or not judged.any():
        return {}
    return {
        "passing_share": float(passes.sum()) / encounters,
        "touched_episodes": float(touched[judged].double().mean()),
    }


def _scenes(w: Tensor, w_next: Tensor, place: Tensor, number: Tensor) -> dict[str, float]:
    """Squared distances in W with the agent at nearly the same place, between and within episodes, over any pairs'; and
    the share of triples whose two scenes are as far apart as unrelated ones."""
    some = torch.arange(min(COMPARED, len(w)))
    apart = torch.cdist(place[some], place)  # [c, b]
    same = number[some, None] == number[None]
    itself = some[:, None] == torch.arange(len(w))[None]
    distances = (w - w.roll(1, 0)).square().sum(1)
    unrelated = distances.median().clamp(min=1e-30)
    changed = (w - w_next).square().sum(1) > distances.quantile(RELATED)
    found = {"changed_within_episodes": float(changed.double().mean())}
    for name, forbidden in (("between", same), ("within", ~same | itself)):
        distance = apart.masked_fill(forbidden, torch.inf)
        least, nearest = distance.min(1)
        rows = least.isfinite()
        if not rows.any():
            return {}
        change = (w[some[rows]] - w[nearest[rows]]).square().sum(1).median()
        found[f"scene_change_{name}_episodes"] = float(change / unrelated)
    return found
