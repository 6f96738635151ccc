"""What a run chooses where its user does not, and why: plain values from plain values, known before it starts."""

from typing import Any, NamedTuple

# A step of small CNNs costs what their pictures cost; where a body is a few pixels of 64, averages still place it.
SMALL_SIDE, LARGE_SIDE = 64, 128
JITTER, SWAY = 0.2, 0.04
NUMBERS_FLOOR, PICTURES_FLOOR = 0.1, 0.001
OUTLINE = 4  # harmonics
PROBING = 0.5  # of a batch
STAY_RISE = 30.0
BEND = 9  # degree
SMALL_STAY, SMALL_RATE = 3.0, 5e-3  # the weight of L_- at first; the learning rate with adamw
# Of ObjectiveConfig, for our objective.
CHOSEN_SWITCHES = ("outline", "rim", "contrast_floor", "stay_weight", "stay_rise", "bend")
FEWEST_BATCHES = 8  # in a set: from fewer, the same triples would meet in every batch


class Choice(NamedTuple):
    """One setting, and in words what it follows from."""

    name: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.name} {self.value}: {self.reason}"


def choose(
    given: dict[str, Any],
    *,
    shape: tuple[int, ...],
    n: int,
    triples: int | None,
    device: str,
    method: str,
    objective: str = "contact",
) -> list[Choice]:
    """Encoder, shrink, batch_size, steps, optimizer, jitter, sway, probing, body; for our objective outline, rim,
    contrast_floor, stay_rise and bend; for small CNNs and fresh triples stay_weight and, supervised too, learning_rate.

    `given` holds what the user set, which is taken as it is. `shape` is that of an observation; `triples` is None for a
    world that streams.
    """
    picture = len(shape) == 3
    makes_pictures = method in ("vae", "transporter")
    ours = method == "interaction" and objective == "contact"
    chosen: dict[str, Choice] = {}

    def add(name: str, value: Any, reason: str) -> None:
        chosen[name] = Choice(name, given[name], "as given") if name in given else Choice(name, value, reason)

    if not picture:
        add("encoder", "mlp", f"observations are {shape[0]} numbers")
    elif device == "cuda":
        add("encoder", "resnet18", "pictures, on a GPU")
    else:
        add("encoder", "small", "pictures, on a CPU")

    side = LARGE_SIDE if chosen["encoder"].value == "resnet18" else SMALL_SIDE
    if picture and not makes_pictures and max(shape[1:]) > side:
        shrink = min(-(-max(shape[1:]) // side), max(1, min(shape[1:]) // 16))
        add("shrink", shrink, f"{shape[1]} x {shape[2]} pixels are more than its {side} need: averages of squares")
    else:
        add("shrink", 1, "pictures are seen as they are" if picture else "no pictures")

    if makes_pictures or (method == "interaction" and objective != "contact"):
        add("optimizer", "adamw", "this method is worse with muon")
    elif chosen["encoder"].value == "small":
        add("optimizer", "adamw", "with muon small CNNs place the agent better and the object worse")
    else:
        add("optimizer", "muon", "places are learned sooner")
    small_and_fresh = triples is None and chosen["encoder"].value == "small"
    if (ours or method == "supervised") and small_and_fresh and chosen["optimizer"].value == "adamw":
        add("learning_rate", SMALL_RATE, "small CNNs learn sooner from fresh triples")
    if triples is None:
        add("batch_size", 128, "fresh triples at every step")
        add("steps", 2500, "fresh triples at every step")
    else:
        most = 128 if picture else 256
        batch = max(2, min(most, triples // FEWEST_BATCHES))
        few = f", at least {FEWEST_BATCHES} batches in {triples:,} triples" if batch < most else ""
        add("batch_size", batch, ("pictures" if picture else "numbers, which cost little") + few)
        add("steps", *_steps(triples, n, picture, chosen["encoder"].value, chosen["optimizer"].value))
    if picture and triples is not None:
        add("jitter", JITTER, "in other light each time, pictures that come again are not learned by heart")
    else:
        add("jitter", 0.0, "fresh triples at every step" if triples is None else "no pictures")
    if not picture or triples is None:
        add("sway", 0.0, "no pictures" if not picture else "fresh triples at every step")
    elif method != "interaction":
        add("sway", 0.0, "what is to be learned would have to move too")
    elif given.get("egocentric"):
        add("sway", 0.0, "for cameras that the agent carries it would be another place of the agent")
    elif chosen["encoder"].value != "resnet18":
        add("sway", 0.0, "small networks are worse for it")
    else:
        add("sway", SWAY, "pictures that come again, from a camera that has moved a little")
    placed = given.get("external", "likelihood") == "likelihood"
    remembers = given.get("split_window", 1) > 0  # else contacts are never sure
    if triples is not None:
        add("probing", 0.0, "moves that were made cannot be chosen")
    elif ours and placed and remembers:
        add("probing", PROBING, "moves whose outcome is in doubt say most of where the object is")
    else:
        add("probing", 0.0, "this method foretells no contacts")
    if n == 2:
        add("body", "round", "for a long object that turns, take axes; a warning says if contacts do not fit")
    else:
        add("body", "round", f"axes are for the plane, and actions have {n} dimensions")
    if ours:
        if picture and n == 2 and chosen["body"].value == "round" and placed and "radius" not in given:
            add("outline", OUTLINE, "what the agent touches may reach further to one side than to another")
        elif chosen["body"].value == "axes":
            add("outline", 0, "two axes say how far it reaches")
        else:
            add("outline", 0, "a body of one radius")
        if chosen["body"].value == "axes":
            add("rim", True, "an agent that is a disc touches more than an ellipse")
        if picture:
            add("contrast_floor", PICTURES_FLOOR, "pictures of different scenes are told apart soon")
        else:
            add("contrast_floor", NUMBERS_FLOOR, "numbers change smoothly: a lower one fails where most are touched")
        if triples is not None:
            add("stay_rise", 1.0, "of a fixed set nothing was gained by more")
        elif not placed or given.get("egocentric"):
            add("stay_rise", 1.0, "more was tried with a body and a still camera alone")
        elif small_and_fresh and {"stay_weight", "stay_rise"} & given.keys():
            add("stay_rise", 1.0, "how much L_- weighs is given")
        else:
            if small_and_fresh:
                add("stay_weight", SMALL_STAY, "small CNNs find the object sooner where L_- weighs little at first")
            add("stay_rise", STAY_RISE, "fresh triples at every step: in the end all sights of one place are to agree")
        if triples is not None:
            add("bend", 0, "a last fit needs fresh triples")
        elif not chosen["probing"].value:
            add("bend", 0, "moves that are not chosen say too little for a last fit")
        elif given.get("egocentric"):
            add("bend", 0, "a last fit was tried with a still camera alone")
        elif small_and_fresh:
            add("bend", 0, "small CNNs gain little by a last fit")
        else:
            add("bend", BEND, "a last fit to the contacts of many fresh triples at once")
    return list(chosen.values())


def _steps(triples: int, n: int, picture: bool, encoder: str, optimizer: str) -> tuple[int, str]:
    """More triples carry more steps before they are known by heart; the held-out ones choose the best weights."""
    if encoder == "resnet18":
        return 2500, "after which a GPU's network gains little"
    # On a CPU a step of Muon costs an MLP 2.5 times as much as one of AdamW, and fewer do.
    least, most, each = (600, 1200, 16) if picture or optimizer == "muon" else (1500, 3000, 6)
    if n > 2:  # there is more to tell apart
        least, most, each = max(least, 1000), max(most, 2000), min(each, 10)
    steps = max(least, min(most, triples // each))
    bound = "at least that many" if steps == least else "at most that many" if steps == most else "so many"
    return steps, f"{bound} for {triples:,} triples, some minutes on two cores"
