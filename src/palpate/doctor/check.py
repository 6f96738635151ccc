"""`palpate.check`: findings about a log before training."""

import os
import time

import numpy as np

from palpate.data.check import Checkup, Survey, check_arrays, worst_first
from palpate.data.transitions import Transitions
from palpate.doctor.probe import Trial, shifted, small
from palpate.doctor.verdict import delayed, judge, undecided

SECONDS = 45.0  # of this thread, for training: a busy machine does not shorten the probe


def check(data: Transitions | str | os.PathLike[str], *, probe: bool = True, progress: bool = False) -> Checkup:
    """Findings about a log, from its arrays and from less than a minute of training.

    The training run is left out if `probe` is off or if the arrays have blocking problems. No check can detect a frame
    that is scaled or mirrored as a whole: it explains the triples as well as the right one.
    """
    if isinstance(data, str | os.PathLike):
        with Transitions.open(data) as opened:
            return check(opened, probe=probe, progress=progress)
    if not isinstance(data, Transitions):
        raise ValueError(f"data is {data!r}; allowed are Transitions (Labelled has .transitions) or a file of them")
    survey = Survey.read(data)
    arrays = check_arrays(data, survey)
    if not probe or not arrays.good:
        return Checkup(findings=worst_first(arrays.findings), measured=arrays.measured)
    looked = _look(data, survey, progress)
    findings = worst_first([*arrays.findings, *looked.findings])
    return Checkup(findings=findings, measured=arrays.measured | looked.measured, probed=looked.probed)


def _look(triples: Transitions, survey: Survey, progress: bool) -> Checkup:
    deadline = time.thread_time() + SECONDS
    trial = Trial(small(triples, np.arange(len(triples))), deadline, progress)
    trial.train(first=True)
    seen = trial.measure()
    if undecided(seen) and trial.train(first=False):
        seen = trial.measure()
    if trial.done < 0.5:  # the machine is too slow: nothing can be judged yet
        return Checkup(measured={"probe_steps": seen["probe_steps"]})
    late = trial.done < 1
    if late:  # values that need a longer run are not judged, ...
        seen = {name: value for name, value in seen.items() if name not in ("explained", "separation")}
    findings = judge(seen)
    if late:  # ... and only findings about the agent are certain
        sure = ("not-displacements", "saturated-actions")
        findings = [x if x.name in sure else x._replace(severity="warns") for x in findings]
    if any(finding.name == "not-displacements" for finding in findings):
        shift, residual = shifted(triples, survey, seen["residual"])
        if shift:
            seen[f"residual_shifted_by_{shift}"] = residual
            others = [finding for finding in findings if finding.name != "not-displacements"]
            findings = [delayed(shift, residual, seen["residual"]), *others]
    return Checkup(findings=findings, measured=seen, probed=True)
