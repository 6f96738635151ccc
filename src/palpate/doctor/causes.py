"""Why the agent does not move by the actions, found from the actions of the rows before and after.

Legend: N triples, b triples of a block, h candidates, n dimension of the action.
"""

import time

import numpy as np
import torch

from palpate.config import ObjectiveConfig
from palpate.data.transitions import Transitions
from palpate.doctor.following import followed, held_outputs
from palpate.doctor.probe import Trial, chosen, small
from palpate.doctor.verdict import FOLLOWS
from palpate.findings import Finding
from palpate.groups import group_of_actions
from palpate.quality import examine

CAUSE_SECONDS = 20.0  # of this thread
FEWEST = 300  # rows with a row before and a row after
SHIFT, CERTAIN = 0.06, 5.0  # rows, and standard errors, from which a shift is reported; good logs stay below 0.025 rows
FEWEST_HELD = 200  # rows from which a shift is estimated

# What the displacements of row i would be, from the actions before, at and after it.
CANDIDATES = {
    "as recorded": (0, 1, 0),
    "row before": (1, 0, 0),
    "row after": (0, 0, 1),
    "third before": (1 / 3, 2 / 3, 0),
    "most before": (2 / 3, 1 / 3, 0),
    "third after": (0, 2 / 3, 1 / 3),
    "most after": (0, 1 / 3, 2 / 3),
    "targets": (-1, 1, 0),
    "positions": (0, -1, 1),
}


def cause(triples: Transitions, goes_on: np.ndarray) -> tuple[Finding | None, dict[str, float]]:
    """The finding that names the cause, and the residuals of all candidates. Both empty without rows in order of time.

    `goes_on` [N] marks the rows that end where the next row begins.
    """
    inner = np.flatnonzero(goes_on[1:] & goes_on[:-1]) + 1
    if len(inner) < FEWEST:
        return None, {}
    found = residuals(triples, inner)
    before, best = found["as recorded"], min(found, key=lambda name: found[name])
    measured = {f"residual_{name.replace(' ', '_')}": value for name, value in found.items()}
    if found[best] > FOLLOWS[1] * before:
        return None, measured
    evidence = {"residual": before, "residual of the correction": found[best]}
    name, what, advice = WORDS[best.replace("third", "part").replace("most", "part")]
    return Finding(name, "blocking", what, evidence, advice), measured


@torch.no_grad()
def small_shift(
    trial: Trial, rows: np.ndarray, triples: Transitions, goes_on: np.ndarray
) -> tuple[list[Finding], dict[str, float]]:
    """A warning if the state is earlier or later than the picture by part of a row, although the residual is small.

    `rows` are the rows of the log that the probe received, and `goes_on` [N] is as in `cause`. The learned motion is
    that of the pictures. A regression on the actions before, at and after each row shows when it was recorded.
    """
    held = rows[trial.held_rows.numpy()]
    inner = np.flatnonzero((held > 0) & goes_on[held] & goes_on[held - 1])
    if len(inner) < FEWEST_HELD:
        return [], {}
    seen, group = examine(trial.model, trial.held), trial.model.group
    action = group.complete(triples.action.double()).numpy()
    assert seen is not None
    moved = group.between(seen.agent, seen.agent_next)[inner].double().numpy().reshape(-1)
    at = held[inner]
    beside = np.stack([action[at + offset].reshape(-1) for offset in (-1, 0, 1)], 1)  # [b n, 3]
    weight, _, rank, _ = np.linalg.lstsq(beside, moved)
    if rank < 3 or weight.sum() <= 0:
        return [], {}
    later = np.array([-1.0, 0.0, 1.0])
    error = np.sqrt((moved - beside @ weight).var() * (later @ np.linalg.inv(beside.T @ beside) @ later))
    shift, error = float(later @ weight / weight.sum()), float(error / weight.sum())
    measured = {"actions_late": shift}
    if abs(shift) < max(SHIFT, CERTAIN * error):
        return [], measured
    name, what, advice = WORDS["part after" if shift > 0 else "part before"]
    evidence = {"rows": abs(shift)}
    if "stride" in triples.attributes:
        evidence["frames"] = abs(shift) * float(triples.attributes["stride"])
    return [Finding(name, "warning", what, evidence, advice)], measured


WORDS = {
    "row before": (
        "shifted-actions",
        "the actions were recorded a row too early",
        "Give each triple the action of the row before it.",
    ),
    "row after": (
        "shifted-actions",
        "the actions were recorded a row too late",
        "Give each triple the action of the row after it.",
    ),
    "part before": (
        "shifted-actions",
        "the actions were recorded part of a row too early",
        "The picture is older than the state. Compute each displacement from positions at the times of the two "
        "observations: shift the state by some frames, or interpolate it.",
    ),
    "part after": (
        "shifted-actions",
        "the actions were recorded part of a row too late",
        "The state is older than the picture. Compute each displacement from positions at the times of the two "
        "observations: shift the state by some frames, or interpolate it.",
    ),
    "targets": (
        "target-actions",
        "the actions are targets: their changes from the row before are the displacements",
        "Record position after minus position before; or give each triple its action minus the action of the row "
        "before it, and leave out the first row of each episode.",
    ),
    "positions": (
        "target-actions",
        "the actions are positions: their changes to the next row are the displacements",
        "Record position after minus position before; or give each triple the action of the row after it minus its "
        "own, and leave out the last row of each episode.",
    ),
}


def residuals(triples: Transitions, inner: np.ndarray) -> dict[str, float]:
    """Residual of each candidate, relative to its root mean square, on rows that were not trained on.

    One network has an output for each candidate. Training makes each output move by its candidate.
    """
    group = group_of_actions(triples.action_shape, ObjectiveConfig())
    action = group.complete(triples.action).numpy()
    rows = inner[chosen(len(inner))]
    beside = np.stack((action[rows - 1], action[rows], action[rows + 1]), 1)  # [b, 3, n]
    mixed = np.einsum("hr,brn->bhn", np.array(list(CANDIDATES.values()), np.float32), beside)
    deadline = time.thread_time() + CAUSE_SECONDS
    trial = Trial(small(triples, inner), deadline, False, ObjectiveConfig(), triples.substeps)
    held, kept = (torch.from_numpy(mixed)[part] for part in (trial.held_rows, trial.kept_rows))
    scale = kept.square().sum(2).mean(0).sqrt().clamp(min=1e-30)[:, None]  # [h, 1]
    target = (kept / scale).flatten(1)
    branch = followed(
        trial,
        [target.shape[1]],
        lambda before, after, rows: (after - before - target[rows]).square().sum(1).mean(),
    )
    before, after = held_outputs(trial, branch)
    left = (after - before - (held / scale).flatten(1)).unflatten(1, (len(CANDIDATES), -1)).square().sum(2)
    whole = (held / scale).square().sum(2).mean(0)
    return dict(zip(CANDIDATES, (left.mean(0) / whole.clamp(min=1e-30)).sqrt().tolist(), strict=True))
