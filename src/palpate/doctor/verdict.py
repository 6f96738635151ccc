"""Findings from the measurements of a short training run."""

from palpate.contacts.split import SEPARABLE
from palpate.findings import Finding, Rule

FOLLOWS = (0.3, 0.6)  # residual of the displacements, in actions
STRAIGHT = 0.95  # median cosine between displacements and actions that differ only in scale
NONE, RARE = 0.004, 0.012  # contact shares
EXPLAINED = (0.66, 0.58)  # balanced accuracy of the contacts that geometry predicts
WELL_EXPLAINED = 0.95  # below it, a longer run may show that the object is sometimes hidden
CERTAIN_ROWS = 500  # triples after which the absence of contacts is certain

SATURATED = Rule(
    "saturated-actions",
    "reach_of_long_moves residual",
    "long actions move the agent less, relative to their length, than short ones",
    "They are commands that the agent does not reach (a limit, a wall), or velocities over steps of different "
    "duration: record the displacement achieved.",
    below=(0.75, 0.55),
)
NOT_DISPLACEMENTS = Rule(
    "not-displacements",
    "residual probe_steps",
    "nothing in the observations follows the actions",
    "The residual is 0 for displacements of something visible, and 1 if nothing follows them. Are they velocities, "
    "targets or commands, shifted by a row, of changing sign or scale? Or do the observations not show where the agent "
    "is (aliasing)? Record position after minus position before.",
    above=FOLLOWS,
)
OTHER_SCALES = NOT_DISPLACEMENTS._replace(
    name="changing-scale",
    keys="residual direction probe_steps",
    what="the agent moves in the direction of the actions, but not by their length",
    advice="The actions look like velocities over steps of different duration, or like commands with a gain that "
    "changes. Record position after minus position before; a velocity needs a factor, the duration of its step.",
)
DISCONNECTED = Rule(
    "disconnected",
    "stray_share",
    "the agent's positions form parts that no move links",
    "The offset between the parts cannot be learned: collect moves between them, or train on one part.",
    above=(0.05, 0.2),
)
NO_LASTING_SCENE = Rule(
    "no-lasting-scene",
    "scene_spread moving_share probe_steps",
    "apart from the agent, o' has nothing in common with o",
    "Is the object visible? Or does it move in nearly every triple, with or without contact? It must rest in some of "
    "them: move the agent past it, and wait until it is at rest.",
    below=(0.5, 0.02),
)
NO_CONTACTS = Rule(
    "no-contacts",
    "moving_share held_rows",
    "the object never moves, or hardly ever",
    "Without contacts its position cannot be learned: collect moves that touch it, best in 10 to 50 % of the triples.",
)
FEW_CONTACTS = NO_CONTACTS._replace(
    name="few-contacts",
    what="contacts are rare",
    advice="The object's position is learned from them: collect more triples, or more moves towards the object.",
)
NO_TWO_CLASSES = Rule(
    "no-two-classes",
    "separation moving_share probe_steps",
    "triples with and without contact do not separate",
    "Does the object drift or vibrate without contact (residual motion)? Does a contact move it visibly? Wait until "
    "everything rests before an observation is taken.",
    below=(SEPARABLE, 0.0),
)
SMALL_PUSHES = NO_TWO_CLASSES._replace(
    what="triples with and without contact do not separate in a short training run",
    advice="But the agent's path explains many of them, so the contacts may move the object only a little, and a full "
    "training may separate them: train, and read its verdict. Contacts that move the object further are easier.",
)
UNEXPLAINED = Rule(
    "unexplained-contacts",
    "explained probe_steps",
    "the agent's path does not explain whether the object moves",
    "Does it move by itself (residual motion, another agent, a second object)? Are the actions joint angles, along "
    "which the agent moves on arcs? Or do the observations not show where it is (aliasing)? Guessing gives 0.5.",
    below=EXPLAINED,
)
HIDDEN = Rule(
    "hidden-object",
    "hidden_share probe_steps",
    "the object is hidden in some observations",
    "Positions are still learned where it is visible, and rep.confidence shows where that is. Another camera, several "
    "views, or more moves without contact make it better.",
    above=(0.02, float("inf")),
)
UNREACHABLE = Rule(
    "unreachable",
    "unreached_share",
    "the object is often at positions without any contact",
    "These positions cannot be learned: let the agent pass all positions of the object, on all sides.",
    above=(0.12, 0.3),
)


def undecided(seen: dict[str, float]) -> bool:
    """Whether a longer run might change the findings."""
    if seen["residual"] > FOLLOWS[1]:
        return False
    if "separation" not in seen:  # only the agent was measured
        return seen["residual"] > FOLLOWS[0]
    if seen["moving_share"] < NONE and seen.get("explained", 0.5) < EXPLAINED[1]:
        return False
    return (
        seen["separation"] < SEPARABLE or seen.get("explained", 1.0) < WELL_EXPLAINED or seen["residual"] > FOLLOWS[0]
    )


def judge(seen: dict[str, float]) -> list[Finding]:
    """Findings from a probe's measurements. A finding whose precondition fails is not judged."""
    blind = NOT_DISPLACEMENTS.severity(seen) == "blocking"
    straight = seen.get("direction", 0.0) > STRAIGHT
    follows = OTHER_SCALES if straight else NOT_DISPLACEMENTS
    about_agent = ([] if blind else SATURATED.judge(seen)) or follows.judge(seen)
    if blind:
        return about_agent
    return [*about_agent, *DISCONNECTED.judge(seen), *(_about_object(seen) if "separation" in seen else [])]


def _about_object(seen: dict[str, float]) -> list[Finding]:
    explained = seen.get("explained", 0.5) >= EXPLAINED[0]
    separable = seen.get("separation", 1.0) >= SEPARABLE
    # Geometry confirms contacts that move the object only a little: chance would not explain them.
    contacts = max(seen["moving_share"], seen["contact_share"]) if explained else seen["moving_share"]
    if not separable and (found := NO_LASTING_SCENE.judge(seen)):
        return found
    if contacts < NONE:
        return [NO_CONTACTS.finding("blocking" if seen["held_rows"] >= CERTAIN_ROWS else "warning", seen)]
    if contacts < RARE:
        return [FEW_CONTACTS.finding("warning" if separable else "blocking", seen)]
    if (unclear := NO_TWO_CLASSES.severity(seen)) is not None:
        # Contacts that nudge the object, if the agent's path explains them, separate in a longer run.
        nudged = explained and seen["moving_share"] < seen["contact_share"] / 2
        return [SMALL_PUSHES.finding("warning", seen) if nudged else NO_TWO_CLASSES.finding(unclear, seen)]
    return [*UNEXPLAINED.judge(seen), *UNREACHABLE.judge(seen), *HIDDEN.judge(seen)]
