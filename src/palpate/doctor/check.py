"""`palpate.check`: findings about a log before training."""

import os
import time
from dataclasses import dataclass, field
from typing import final

import numpy as np

from palpate.config import GroupName, Motion, ObjectiveConfig
from palpate.data.logs.log import open_log
from palpate.data.transitions import Transitions
from palpate.doctor.arrays import ARRAY_RULES, fingerprints, goes_on, measure_arrays
from palpate.doctor.causes import cause, small_shift
from palpate.doctor.commands import note
from palpate.doctor.demonstrations import episodes_of, judge_demonstrations, measure_demonstrations
from palpate.doctor.examples import Arrays, Probed, examples, first
from palpate.doctor.frames import UNSURE_HEADING, frames
from palpate.doctor.probe import Trial, chosen, small
from palpate.doctor.several import SEVERAL, several
from palpate.doctor.verdict import judge, undecided
from palpate.findings import Finding
from palpate.groups import group_of_actions
from palpate.networks import one_thread

ABOUT_ACTIONS = ("not-displacements", "saturated-actions", "changing-scale")
SECONDS = 45.0  # of this thread, for training: a busy machine does not shorten the probe


@final
@dataclass(frozen=True, kw_only=True)
class Checkup:
    """The result of `palpate.check`: the findings, blocking ones first and notes last, and all measured numbers."""

    findings: list[Finding] = field(default_factory=list)
    measured: dict[str, float] = field(default_factory=dict)
    probed: bool = False  # whether a short training run was judged too
    rows: dict[str, list[int]] = field(default_factory=dict)  # rows that show a finding, by its name

    @property
    def good(self) -> bool:
        """Whether there are no blocking problems."""
        return all(finding.severity != "blocking" for finding in self.findings)

    def __str__(self) -> str:
        lines = [f"{finding.severity}: {finding.name}: {finding}" for finding in self.findings]
        numbers = ", ".join(f"{name.replace('_', ' ')} {_plain(value)}" for name, value in self.measured.items())
        return "\n".join([*lines, f"measured: {numbers}", *self._cut(), self._verdict()])

    def _verdict(self) -> str:
        if not self.good:
            return "blocking problems: do not train on these data as they are"
        if self.probed:
            return "no blocking problems (arrays and a short training run)"
        if "probe_steps" in self.measured:
            return "not judged: the arrays have no blocking problems, but the training run was too short for a verdict"
        return "no blocking problems (arrays alone, no training run)"

    def _cut(self) -> list[str]:
        """Says that the training run was cut short."""
        if "planned_steps" not in self.measured:
            return []
        done, planned = (_plain(self.measured[name]) for name in ("probe_steps", "planned_steps"))
        return [
            f"cut short: the training run ended after {done} of {planned} steps, because its {SECONDS:.0f} s of "
            "processor time were used up; some problems may not be found, and findings are less certain. Repeat the "
            "check when the machine is idle"
        ]


def _plain(value: float) -> str:
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:.3g}"


def check(
    data: Transitions | str | os.PathLike[str],
    *,
    group: GroupName = "translations",
    motion: Motion = "arc",
    probe: bool = True,
    progress: bool = False,
) -> Checkup:
    """Findings about a log, from its arrays and from short training runs: a minute, with vectors up to two.

    `group` and `motion` are those of `fit`. The training run is left out if `probe` is off or if the arrays have
    blocking problems. No check can detect a frame that is scaled or mirrored as a whole: it explains the triples as
    well as the right one.
    """
    if isinstance(data, str | os.PathLike):
        with open_log(data) as opened:
            return check(opened, group=group, motion=motion, probe=probe, progress=progress)
    if not isinstance(data, Transitions):
        raise ValueError(
            f"data is {data!r}; allowed are Transitions, or a file of triples. A Labelled has .transitions"
        )
    scene = ObjectiveConfig(group=group, motion=motion)
    scene.dimension(data.n)  # refuses actions that are not the group's
    pair = fingerprints(data)
    of_actions = group_of_actions(data.action_shape, scene)
    measured = measure_arrays(data, pair, of_actions)
    findings = [finding for rule in ARRAY_RULES for finding in rule.judge(measured)] + note(data)
    rows = examples(findings, Arrays(data, pair, of_actions).shows)
    checkup = Checkup(findings=findings, measured=measured, rows=rows)
    if probe and checkup.good:
        with one_thread():
            found = _look(data, goes_on(pair), progress, scene)
        checkup = Checkup(
            findings=findings + found.findings,
            measured=measured | found.measured,
            probed=found.probed,
            rows=rows | found.rows,
        )
    checkup.findings.sort(key=lambda finding: ("blocking", "warning", "note").index(finding.severity))
    return checkup


def _look(triples: Transitions, follows: np.ndarray, progress: bool, scene: ObjectiveConfig) -> Checkup:
    """What a short training run finds. It is not `probed` if the run was too short to be judged."""
    deadline = time.thread_time() + SECONDS
    trial = Trial(small(triples, np.arange(len(triples))), deadline, progress, scene, triples.substeps)
    trial.train(first=True)
    seen = trial.measure()
    if trial.done and undecided(seen) and trial.train(first=False):
        seen = trial.measure()
    if trial.steps < trial.planned:
        seen["planned_steps"] = float(trial.planned)
    if not trial.done:  # the machine is too slow
        return Checkup(measured={name: seen[name] for name in ("probe_steps", "planned_steps")})
    rows, episode = chosen(len(triples)), None if trial.sensor else episodes_of(triples, follows)
    seen |= measure_demonstrations(trial, rows, episode)
    findings = judge_demonstrations(seen, judge(seen))
    turns, doubtful = scene.turns, any(finding.name in ABOUT_ACTIONS for finding in findings)
    found, residuals = frames(triples, scene) if turns or doubtful else (None, {})
    others: list[Finding] = []  # positions learned from actions that mean something else say nothing
    if found is None and doubtful and not turns:
        found, residuals = cause(triples, follows)
        others = [finding for finding in findings if finding.name not in ABOUT_ACTIONS]
    elif not (turns or doubtful):
        late, shift = small_shift(trial, rows, triples, follows)
        seen, findings = seen | shift, findings + late
    hard = trial.picture or bool(trial.sensor)  # a short run may not find the heading, nor several objects
    if turns and hard and doubtful and (found is None or found.name == UNSURE_HEADING.name):
        found = UNSURE_HEADING.finding("warning", seen)
    if found is not None:
        seen, findings = seen | residuals, [found, *others]
    shown = examples(findings, Probed(trial, rows, episode).shows) if findings else {}
    if not hard and all(finding.severity != "blocking" for finding in findings):
        more = several(trial, scene)
        seen, findings = seen | more.measured, findings + more.findings
        if more.rows.any():
            shown[SEVERAL.name] = rows[trial.held_rows.numpy()[first(more.rows)]].tolist()
    return Checkup(findings=findings + trial.sensor, measured=seen, probed=True, rows=shown)
