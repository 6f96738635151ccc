"""`palpate.check`: can these triples give positions? The arrays first, then a short training run for the rest.

Legend: b triples, n ambient dimension, m dimension of W.
"""

import os
import time

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from palpate.choices import NUMBERS_FLOOR, PICTURES_FLOOR
from palpate.config import ModelConfig, ObjectiveConfig, TrainingConfig
from palpate.data.check import Checkup, Finding, Severity, Survey, check_arrays, worst_first
from palpate.data.sources import Resident
from palpate.data.transitions import Batch, Transitions
from palpate.encoders import MLP
from palpate.models.inputs import Branch
from palpate.models.interaction import Interaction
from palpate.objectives.equivariance import equivariance
from palpate.objectives.split import SEPARABLE
from palpate.progress import bar
from palpate.quality import Reading, border, read
from palpate.training import Interrupted, train

PROBE_ROWS, HELD_ROWS = 12_000, 2000  # at most
PROBE_SIDE, PROBE_WIDTH, PROBE_BATCH = 32, 96, 128  # pixels, width of an MLP, triples: enough to see, quick to train
STEPS, MORE_STEPS = (400, 300), (1200, 500)  # for numbers and for pictures; more where the first leave it open
SECONDS = 45.0  # of this thread, for training: others who use the cores do not make the probe less sure
SHIFT_STEPS = 200  # for the agent alone, to try other rows' actions

FOLLOWS = (0.3, 0.6)  # residual of the displacements, in actions: warns, forbids
EVEN = (0.75, 0.55)  # how far the longest moves get, over how far the shortest do
ALIVE = 0.5  # least median distance of unrelated scenes, whose largest is 4: below, nothing in them was told apart
RELATED = 0.1  # quantile of those distances: a pair farther apart is as good as unrelated
NO_CONTACTS, FEW_CONTACTS = 0.004, 0.012
EXPLAINED = (0.66, 0.58)  # balanced accuracy of geometry on the contacts: warns, forbids
UNREACHED = (0.12, 0.3)  # share of the object's places that are never touched
EXPECTED = 6.0  # contacts around a place, where there are none once in 400
STRAYS = (0.05, 0.2)  # share of the agent's places that nothing links to the rest
DEAD = 0.02  # scenes nearer than this have nothing in them
SURE_ROWS = 500  # triples in which a contact would have turned up
LINKS = 8  # neighbours that are linked


def check(data: Transitions | str | os.PathLike[str], *, probe: bool = True, progress: bool = False) -> Checkup:
    """Findings about a log: what its arrays tell at once and, unless `probe` is off or the arrays already forbid
    training, what only a model can see, after less than a minute of training.

    A frame that is scaled or mirrored as a whole cannot be seen in triples: it explains them as well as the right one.
    """
    if isinstance(data, str | os.PathLike):
        with Transitions.open(data) as opened:
            return check(opened, probe=probe, progress=progress)
    if not isinstance(data, Transitions):
        raise ValueError(f"data is {data!r}; allowed are Transitions (of labelled ones .transitions) and their file")
    survey = Survey.read(data)
    arrays = check_arrays(data, survey)
    if not probe or not arrays.good:
        return Checkup(findings=worst_first(arrays.findings), measured=arrays.measured)
    looked = _look(data, survey, progress)
    findings = worst_first([*arrays.findings, *looked.findings])
    return Checkup(findings=findings, measured=arrays.measured | looked.measured, probed=looked.probed)


def _look(triples: Transitions, survey: Survey, progress: bool) -> Checkup:
    deadline = time.thread_time() + SECONDS
    trial = Trial(_small(triples, np.arange(len(triples))), deadline, progress)
    trial.train(first=True)
    seen = trial.measure()
    if _open(seen) and trial.train(first=False):
        seen = trial.measure()
    if trial.steps < STEPS[trial.picture] / 2:  # too slow a machine: everything is still to be learned
        return Checkup(measured=seen)
    late = trial.steps < STEPS[trial.picture]
    if late:  # what takes longer to learn is not judged, ...
        seen = {name: value for name, value in seen.items() if name not in ("explained", "separation")}
    findings = judge(seen)
    if late:  # ... and the agent alone is surely known by now
        sure = ("not-displacements", "saturated-actions")
        findings = [x if x.name in sure else x._replace(severity="warns") for x in findings]
    if any(finding.name == "not-displacements" for finding in findings):
        shift, residual = _shifted(triples, survey, seen["residual"])
        if shift:
            seen[f"residual_shifted_by_{shift}"] = residual
            others = [finding for finding in findings if finding.name != "not-displacements"]
            findings = [_delayed(shift, residual, seen["residual"]), *others]
    return Checkup(findings=findings, measured=seen, probed=True)


def _open(seen: dict[str, float]) -> bool:
    """Whether a longer run might say something else."""
    if seen["residual"] > FOLLOWS[1]:
        return False
    if seen["moving_share"] < NO_CONTACTS and seen.get("explained", 0.5) < EXPLAINED[1]:
        return False
    return seen["separation"] < SEPARABLE or seen.get("explained", 1.0) < EXPLAINED[0] or seen["residual"] > FOLLOWS[0]


class Trial:
    """A small model, trained for a short time on a part of the rows, and the rest of them to judge it by."""

    def __init__(self, rows: Batch, deadline: float, progress: bool) -> None:
        order = torch.randperm(len(rows.a), generator=torch.Generator().manual_seed(0))
        count = min(HELD_ROWS, len(order) // 5)
        self.held, self.kept = (Batch(*(x[part] for x in rows)) for part in (order[:count], order[count:]))
        self.deadline, self.progress, self.steps = deadline, progress, 0
        self.picture = rows.o.dim() == 4
        unit = float(rows.a.square().sum(1).mean().sqrt())
        torch.manual_seed(0)
        floor = PICTURES_FLOOR if self.picture else NUMBERS_FLOOR
        self.model = Interaction(
            ModelConfig(
                encoder="small" if self.picture else "mlp",
                observation_shape=tuple(rows.o.shape[1:]),
                observation_dtype="float32",
                n=rows.a.shape[1],
                # On a line any radius will do: the position is not looked at.
                objective=ObjectiveConfig(
                    radius=unit / 4 if rows.a.shape[1] == 1 else None, split_window=2048, contrast_floor=floor
                ),
            )
        )
        if not self.picture:
            for name in ("phi_int", "phi_ext", "phi_cont"):
                out = getattr(self.model, name).head.out_features
                setattr(self.model, name, Branch(MLP((rows.o.shape[1],), PROBE_WIDTH), out))
        self.model.inputs.measure(self.kept)

    def train(self, *, first: bool) -> bool:
        """Some steps, as many as there is time for; whether there was any."""
        steps = (STEPS if first else MORE_STEPS)[self.picture]
        if time.thread_time() > self.deadline:
            return False
        size = min(PROBE_BATCH, len(self.kept.a) // 2)
        config = TrainingConfig(
            steps=steps, batch_size=size, optimizer="adamw", learning_rate=3e-3, device="cpu", log_every=10
        )
        source = Resident(
            Transitions(
                observation=self.kept.o,
                action=self.kept.a,
                next_observation=self.kept.o_next,
                layout="channel-first",
            ),
            size,
            "cpu",
        )
        before = self.steps

        def watch(step: int, readings: dict[str, float]) -> None:
            self.steps = before + step
            advance(step)
            if time.thread_time() > self.deadline:
                raise _TimeUp

        with bar("probe" if first else "probe, longer", steps, show=self.progress) as advance:
            try:
                train(self.model, source, config, watch=watch)
            except _TimeUp:
                self.model.eval()
            except Interrupted:  # there is nothing to go on with
                raise KeyboardInterrupt from None
        return True

    @torch.no_grad()
    def measure(self) -> dict[str, float]:
        """What the model sees in rows it was not trained on; lengths in actions."""
        reading, unit = read(self.model, self.held), float(self.model.inputs.unit)
        w = torch.cat([self.model.scene(o) for o in self.held.o.split(256)])
        unrelated = (w - w.roll(1, 0)).square().sum(1).double()
        touched = reading.touched
        seen = {
            "probe_steps": float(self.steps),
            "held_rows": float(len(touched)),
            "residual": float(reading.residual.square().sum(1).mean().sqrt()) / unit,
            "reach_of_long_moves": _evenness(reading),
            "scene_spread": float(unrelated.median()),
            "moving_share": float((reading.scene > unrelated.quantile(RELATED)).double().mean()),
            "touched_share": float(touched.double().mean()),
            "separation": self.model.split.separation(),
            "stray_share": _strays(reading),
        }
        if touched.any() and not touched.all():
            seen["explained"] = border(reading.distance, touched).accuracy
            if (unreached := _unreached(w, touched)) is not None:
                seen["unreached_share"] = unreached
        return seen


class _TimeUp(Exception):  # noqa: N818 - no error
    pass


def _small(triples: Transitions, rows: np.ndarray, action: np.ndarray | None = None) -> Batch:
    """Some of these rows, pictures averaged down to what a quick network needs; `action` [b, n] in place of theirs."""
    count = min(len(rows), PROBE_ROWS)
    chosen = np.sort(np.random.default_rng(0).permutation(len(rows))[:count])
    shape = triples.observation_shape
    shrink = -(-max(shape[1:]) // PROBE_SIDE) if len(shape) == 3 else 1
    shrink = min(shrink, max(1, min(shape[1:], default=1) // 8))

    def averaged(o: Tensor) -> Tensor:
        return o.float() if shrink == 1 else F.avg_pool2d(o.float(), shrink)

    part, blocks = triples.subset(rows[chosen]), []
    for block in part.blocks():
        o, a, o_next = part.rows(block)
        blocks.append((averaged(o), a, averaged(o_next)))
    small = Batch(*(torch.cat(column) for column in zip(*blocks, strict=True)))
    return small if action is None else small._replace(a=torch.from_numpy(action[chosen]))


def _evenness(reading: Reading) -> float:
    """How far the longest fifth of the moves gets along the action, over how far the shortest two fifths get."""
    length = reading.action.norm(dim=1)
    along = ((reading.agent_next - reading.agent) * reading.action).sum(1)

    def gain(rows: Tensor) -> Tensor:
        return along[rows].sum() / length[rows].square().sum().clamp(min=1e-12)

    short, long = gain(length <= length.quantile(0.4)), gain(length >= length.quantile(0.8))
    return float(long / short.clamp(min=1e-6))


def _unreached(w: Tensor, touched: Tensor) -> float | None:
    """Share of the scenes around which there is no contact at all, where several would be expected.

    A scene's neighbours are as many as hold `EXPECTED` contacts on average; none where that is too much of the set.
    """
    count = round(EXPECTED / float(touched.double().mean()))
    if count > len(w) // 3:
        return None
    near = torch.cdist(w, w).topk(count, largest=False).indices  # [b, count]
    return float((~touched[near].any(1)).double().mean())


def _strays(reading: Reading) -> float:
    """Share of the agent's places that no chain of moves and of near neighbours links to most of the others."""
    half = min(len(reading.agent), 1000)
    places = torch.cat((reading.agent[:half], reading.agent_next[:half]))
    near = torch.cdist(places, places).topk(min(LINKS + 1, len(places)), largest=False).indices[:, 1:]
    ends = torch.cat((torch.arange(half, 2 * half), torch.arange(half)))[:, None]
    links = torch.cat((near, ends), 1)  # [2 half, LINKS + 1]
    label = torch.arange(2 * half)
    while True:
        low = torch.minimum(label, label[links].amin(1))
        # A link holds in both directions.
        low = low.scatter_reduce(0, links.flatten(), low.repeat_interleave(links.shape[1]), "amin")
        if torch.equal(low, label):
            break
        label = low
    return 1 - float(label.bincount().max()) / len(label)


def _shifted(triples: Transitions, survey: Survey, residual: float) -> tuple[int, float]:
    """By how many rows the actions would have to be moved to be the displacements; 0 where that does not help.

    Only in a log in order of time, where the row before and the row after belong to the same episode.
    """
    follows = np.flatnonzero(survey.goes_on)  # row i + 1 begins where i ends
    if len(follows) < 300:
        return 0, residual
    action = triples.action.numpy()
    tried = {
        -1: (follows + 1, action[follows]),  # the action of the row before
        1: (follows, action[follows + 1]),
    }
    found = {shift: _agent_residual(_small(triples, rows, moved)) for shift, (rows, moved) in tried.items()}
    best = min(found, key=lambda shift: found[shift])
    return (best, found[best]) if found[best] < FOLLOWS[1] * residual else (0, residual)


def _agent_residual(rows: Batch) -> float:
    """Residual of the displacements after training the agent's network alone."""
    trial = Trial(rows, time.thread_time() + SECONDS / 8, progress=False)
    branch, inputs = trial.model.phi_int, trial.model.inputs
    optimizer = torch.optim.AdamW(branch.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(0)

    def residual(batch: Batch) -> Tensor:
        z, z_next = branch(inputs(torch.cat((batch.o, batch.o_next)))).chunk(2)
        return equivariance(z, batch.a / inputs.unit, z_next).mean()

    for _ in range(SHIFT_STEPS):
        chosen = torch.randint(len(trial.kept.a), (PROBE_BATCH,), generator=generator)
        loss = residual(Batch(*(x[chosen] for x in trial.kept)))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if time.thread_time() > trial.deadline:
            break
    with torch.no_grad():
        return float(residual(Batch(*(x[:1000] for x in trial.held))).sqrt())


def judge(seen: dict[str, float]) -> list[Finding]:
    """Findings from what a probe measured. What rests on something that is not there is not judged."""
    found: list[Finding] = []

    def add(name: str, severity: Severity, what: str, keys: str, advice: str) -> None:
        found.append(Finding(name, severity, what, {key: seen[key] for key in keys.split()}, advice))

    def above(key: str, bounds: tuple[float, float]) -> Severity | None:
        value = seen.get(key, 0.0)
        return None if value <= bounds[0] else "forbids" if value > bounds[1] else "warns"

    def below(key: str, bounds: tuple[float, float]) -> Severity | None:
        value = seen.get(key, 1.0)
        return None if value >= bounds[0] else "forbids" if value < bounds[1] else "warns"

    residual, uneven = above("residual", FOLLOWS), below("reach_of_long_moves", EVEN)
    if uneven and residual != "forbids":
        add(
            "saturated-actions",
            uneven,
            "long actions move the agent less far, by their measure, than short ones",
            "reach_of_long_moves residual",
            "They are commands that the agent does not reach (a limit, a wall): write down the displacement achieved.",
        )
    elif residual:
        add(
            "not-displacements",
            residual,
            "nothing in the observations moves as the actions say",
            "residual probe_steps",
            "The residual is 0 for displacements of something that can be seen, and 1 where nothing follows them. Are "
            "they velocities, targets or commands, shifted by a row, of changing sign or scale? Or do the observations "
            "not tell where the agent is (aliasing)? Write down position after less position before.",
        )
    if residual == "forbids":
        return found
    if (strays := above("stray_share", STRAYS)) is not None:
        add(
            "disconnected",
            strays,
            "the agent's places fall into parts that no move links",
            "stray_share",
            "How the parts lie to each other cannot be learned: collect moves between them, or train on one part.",
        )
    # A touch that moves the object a little is known by geometry: chance would not explain when it happens.
    contacts = seen["moving_share"]
    if seen.get("explained", 0.5) >= EXPLAINED[0]:
        contacts = max(contacts, seen["touched_share"])
    if seen["scene_spread"] < ALIVE and seen.get("separation", 1.0) < SEPARABLE:
        add(
            "no-lasting-scene",
            "warns" if seen["scene_spread"] > DEAD else "forbids",
            "apart from the agent, o' has nothing in common with o",
            "scene_spread moving_share probe_steps",
            "Can the object be seen? Or does it move in nearly every triple, touched or not? It must rest in some of "
            "them: move the agent past it, and wait until it is at rest.",
        )
    elif contacts < NO_CONTACTS:
        add(
            "no-contacts",
            "forbids" if seen["held_rows"] >= SURE_ROWS else "warns",
            "the object never moves",
            "moving_share held_rows",
            "Without contacts its place cannot be learned: let the agent run into it, in at least 2 % of the triples.",
        )
    elif contacts < FEW_CONTACTS:
        add(
            "few-contacts",
            "warns" if seen.get("separation", 1.0) >= SEPARABLE else "forbids",
            "contacts are rare",
            "moving_share held_rows",
            "The object's place is learned from them: take more triples, or let the agent seek the object.",
        )
    elif (unclear := below("separation", (SEPARABLE, 0.0))) is not None:
        # Touches that nudge the object, where the agent's way explains them, only need a longer run to be told.
        nudged = seen["moving_share"] < seen["touched_share"] / 2 and seen.get("explained", 0.5) >= EXPLAINED[0]
        add(
            "no-two-classes",
            "warns" if nudged else unclear,
            "triples with contact cannot be told from those without",
            "separation moving_share probe_steps",
            "Does the object drift or tremble when it is not touched (residual motion)? Does a touch move it far "
            "enough to be seen? Wait until everything rests before an observation is taken.",
        )
    else:
        if (unexplained := below("explained", EXPLAINED)) is not None:
            add(
                "unexplained-contacts",
                unexplained,
                "whether the object moves does not follow from where the agent passes",
                "explained probe_steps",
                "Does it move by itself (residual motion, another agent, a second object)? Or do the observations not "
                "tell where it is (aliasing)? 0.5 is what chance explains.",
            )
        if (unreached := above("unreached_share", UNREACHED)) is not None:
            add(
                "unreachable",
                unreached,
                "the object is often where it is never touched",
                "unreached_share",
                "Its place there cannot be learned: let the agent pass everywhere the object can be, on all sides.",
            )
    return found


def _delayed(shift: int, residual: float, before: float) -> Finding:
    which, when = ("after", "late") if shift > 0 else ("before", "early")
    return Finding(
        "shifted-actions",
        "forbids",
        f"the actions were written down a row too {when}",
        {"residual": before, "residual when shifted": residual},
        f"Give each triple the action of the row {which} it.",
    )
