"""Findings from the measurements of a short training run."""

from palpate.contacts.split import SEPARABLE
from palpate.data.check import Finding, Severity

FOLLOWS = (0.3, 0.6)  # residual of the displacements, in actions: warns, forbids
EVEN = (0.75, 0.55)  # distance per length of action, of the longest moves over the shortest
ALIVE = 0.5  # least median distance of unrelated scenes, at most 4: below it, scenes do not separate
NO_CONTACTS, FEW_CONTACTS = 0.004, 0.012
EXPLAINED = (0.66, 0.58)  # balanced accuracy of the contacts that geometry predicts: warns, forbids
UNREACHED = (0.12, 0.3)  # share of the object's positions without contacts
STRAYS = (0.05, 0.2)  # share of the agent's positions that no move links to the rest
DEAD = 0.02  # median distance below which scenes show nothing but the agent
SURE_ROWS = 500  # triples after which the absence of contacts is certain


def undecided(seen: dict[str, float]) -> bool:
    """Whether a longer run might change the findings."""
    if seen["residual"] > FOLLOWS[1]:
        return False
    if seen["moving_share"] < NO_CONTACTS and seen.get("explained", 0.5) < EXPLAINED[1]:
        return False
    return seen["separation"] < SEPARABLE or seen.get("explained", 1.0) < EXPLAINED[0] or seen["residual"] > FOLLOWS[0]


def judge(seen: dict[str, float]) -> list[Finding]:
    """Findings from a probe's measurements. Nothing is judged whose precondition fails."""
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
            "long actions move the agent less, relative to their length, than short ones",
            "reach_of_long_moves residual",
            "They are commands that the agent does not reach (a limit, a wall): record the displacement achieved.",
        )
    elif residual:
        add(
            "not-displacements",
            residual,
            "nothing in the observations moves by the actions",
            "residual probe_steps",
            "The residual is 0 for displacements of something visible, and 1 if nothing follows them. Are they "
            "velocities, targets or commands, shifted by a row, of changing sign or scale? Or do the observations not "
            "show where the agent is (aliasing)? Record position after minus position before.",
        )
    if residual == "forbids":
        return found
    if (strays := above("stray_share", STRAYS)) is not None:
        add(
            "disconnected",
            strays,
            "the agent's positions form parts that no move links",
            "stray_share",
            "The offset between the parts cannot be learned: collect moves between them, or train on one part.",
        )
    # Geometry confirms contacts that move the object only a little: chance would not explain them.
    contacts = seen["moving_share"]
    if seen.get("explained", 0.5) >= EXPLAINED[0]:
        contacts = max(contacts, seen["touched_share"])
    if seen["scene_spread"] < ALIVE and seen.get("separation", 1.0) < SEPARABLE:
        add(
            "no-lasting-scene",
            "warns" if seen["scene_spread"] > DEAD else "forbids",
            "apart from the agent, o' has nothing in common with o",
            "scene_spread moving_share probe_steps",
            "Is the object visible? Or does it move in nearly every triple, with or without contact? It must rest in "
            "some of them: move the agent past it, and wait until it is at rest.",
        )
    elif contacts < NO_CONTACTS:
        add(
            "no-contacts",
            "forbids" if seen["held_rows"] >= SURE_ROWS else "warns",
            "the object never moves",
            "moving_share held_rows",
            "Without contacts its position cannot be learned: let the agent run into it in at least 2 % of the "
            "triples.",
        )
    elif contacts < FEW_CONTACTS:
        add(
            "few-contacts",
            "warns" if seen.get("separation", 1.0) >= SEPARABLE else "forbids",
            "contacts are rare",
            "moving_share held_rows",
            "The object's position is learned from them: collect more triples, or let the agent seek the object.",
        )
    elif (unclear := below("separation", (SEPARABLE, 0.0))) is not None:
        # Contacts that nudge the object, if the agent's path explains them, separate in a longer run.
        nudged = seen["moving_share"] < seen["touched_share"] / 2 and seen.get("explained", 0.5) >= EXPLAINED[0]
        add(
            "no-two-classes",
            "warns" if nudged else unclear,
            "triples with and without contact do not separate",
            "separation moving_share probe_steps",
            "Does the object drift or tremble without contact (residual motion)? Does a contact move it visibly? Wait "
            "until everything rests before an observation is taken.",
        )
    else:
        if (unexplained := below("explained", EXPLAINED)) is not None:
            add(
                "unexplained-contacts",
                unexplained,
                "the agent's path does not explain whether the object moves",
                "explained probe_steps",
                "Does it move by itself (residual motion, another agent, a second object)? Or do the observations not "
                "show where it is (aliasing)? Chance explains 0.5.",
            )
        if (unreached := above("unreached_share", UNREACHED)) is not None:
            add(
                "unreachable",
                unreached,
                "the object is often at positions without any contact",
                "unreached_share",
                "These positions cannot be learned: let the agent pass all positions of the object, on all sides.",
            )
    return found


def delayed(shift: int, residual: float, before: float) -> Finding:
    which, when = ("after", "late") if shift > 0 else ("before", "early")
    return Finding(
        "shifted-actions",
        "forbids",
        f"the actions were recorded a row too {when}",
        {"residual": before, "residual when shifted": residual},
        f"Give each triple the action of the row {which} it.",
    )
