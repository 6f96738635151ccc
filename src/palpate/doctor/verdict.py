"""What the numbers of a short training run mean."""

from palpate.contacts.split import SEPARABLE
from palpate.data.check import Finding, Severity

FOLLOWS = (0.3, 0.6)  # residual of the displacements, in actions: warns, forbids
EVEN = (0.75, 0.55)  # how far the longest moves get, over how far the shortest do
ALIVE = 0.5  # least median distance of unrelated scenes, whose largest is 4: below, nothing in them was told apart
NO_CONTACTS, FEW_CONTACTS = 0.004, 0.012
EXPLAINED = (0.66, 0.58)  # balanced accuracy of geometry on the contacts: warns, forbids
UNREACHED = (0.12, 0.3)  # share of the object's places that are never touched
STRAYS = (0.05, 0.2)  # share of the agent's places that nothing links to the rest
DEAD = 0.02  # scenes nearer than this have nothing in them
SURE_ROWS = 500  # triples in which a contact would have turned up


def undecided(seen: dict[str, float]) -> bool:
    """Whether a longer run might say something else."""
    if seen["residual"] > FOLLOWS[1]:
        return False
    if seen["moving_share"] < NO_CONTACTS and seen.get("explained", 0.5) < EXPLAINED[1]:
        return False
    return seen["separation"] < SEPARABLE or seen.get("explained", 1.0) < EXPLAINED[0] or seen["residual"] > FOLLOWS[0]


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


def delayed(shift: int, residual: float, before: float) -> Finding:
    which, when = ("after", "late") if shift > 0 else ("before", "early")
    return Finding(
        "shifted-actions",
        "forbids",
        f"the actions were written down a row too {when}",
        {"residual": before, "residual when shifted": residual},
        f"Give each triple the action of the row {which} it.",
    )
