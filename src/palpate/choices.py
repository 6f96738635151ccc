"""Choose the settings that a user leaves open, with a reason for each. Plain values in, plain values out."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from palpate.traits import Traits

# Larger pictures are averaged to about this many pixels on a side: a step costs less, and a body is still visible.
SMALL_SIDE, LARGE_SIDE = 64, 128
CHOSEN_MOVES = 0.5  # of a batch
SMALL_RATE = 5e-3
FRESH_REST, FIXED_REST = 0.02, 0.1  # smallest scale of L_- in the plane
REFINED_DIMENSIONS = 3  # at most; the terms of a polynomial are too many beyond
FEWEST_BATCHES = 8  # in a data set: with fewer, every batch would contrast the same triples


class Choice(NamedTuple):
    """A setting, its value and the reason for it."""

    name: str
    value: Any
    reason: str

    def __str__(self) -> str:
        return f"{self.name} {self.value}: {self.reason}"


class Facts(NamedTuple):
    """Properties of the data and the machine, known before a run starts."""

    shape: tuple[int, ...]  # of an observation
    n: int  # numbers of an action; for `choose` the dimension of positions
    triples: int | None  # of a data set; None: a streamed world
    steerable: bool  # a streamed world in which moves can be chosen
    device: str
    substeps: int = 1  # of an action
    objects: tuple[int, str] | None = None  # how many were found, and why; None: the user gave their number
    scan: bool = False  # the observations are scans, see `palpate.scans`
    carried: bool = False  # by the agent

    @property
    def picture(self) -> bool:
        return len(self.shape) == 3

    @property
    def fresh(self) -> bool:
        return self.triples is None


def choose(given: Mapping[str, Any], facts: Facts, traits: Traits) -> list[Choice]:
    """Choose every setting that can be left open; `given` settings, from the user, are kept."""
    chosen: dict[str, Choice] = {}

    def add(name: str, value: Any, reason: str) -> Any:
        chosen[name] = Choice(name, given[name], "as given") if name in given else Choice(name, value, reason)
        return chosen[name].value

    if facts.objects is not None:
        add("objects", *facts.objects)
    encoder = add("encoder", *_encoder(facts))
    add("shrink", *_shrink(facts, encoder, traits))
    optimizer = add("optimizer", *_optimizer(encoder, traits))
    small_and_fresh = facts.fresh and encoder == "small"
    if traits.muon and optimizer == "adamw" and encoder == "small":
        if facts.fresh:
            add("learning_rate", SMALL_RATE, "small CNNs learn faster from fresh triples")
        elif given.get("group", "translations") != "translations":
            add("learning_rate", SMALL_RATE, "small CNNs find headings sooner")
    add("batch_size", *_batch_size(facts, given))
    add("steps", *_steps(facts, encoder, optimizer, given.get("objects", 1) if traits.one_by_one else 1))
    add("augment", *_augment(facts, encoder, traits))
    moves = add("chosen_moves", *_chosen_moves(facts, traits))
    if traits.has_body:
        add("body", *_body(facts, given))
        add("refine", *_refine(facts, traits, moves, small_and_fresh))
        add("rest_floor", *_rest_floor(facts, traits))
    elif not traits.unsupervised:
        add("body", "ball", "true states give the positions; ellipse also learns the angle")
    return list(chosen.values())


def _encoder(facts: Facts) -> tuple[str, str]:
    if facts.scan:
        return "scan", "neighbouring numbers are alike, as in a laser scan"
    if not facts.picture:
        return "mlp", f"observations are {facts.shape[0]} numbers"
    return ("resnet18", "pictures, on a GPU") if facts.device == "cuda" else ("small", "pictures, on a CPU")


def _shrink(facts: Facts, encoder: str, traits: Traits) -> tuple[int, str]:
    side = LARGE_SIDE if encoder == "resnet18" else SMALL_SIDE
    if not facts.picture:
        return 1, "observations are not pictures"
    height, width = facts.shape[1:]
    shrink = shrink_to(side, height, width)
    if shrink == 1:
        return 1, "pictures keep their size"
    if traits.reconstructs:
        return 1, (
            f"this method reconstructs pictures at full size; a step with {height} x {width} pixels costs about "
            f"{shrink**2} times as much as with {height // shrink} x {width // shrink}, so smaller pictures save time"
        )
    return shrink, (
        f"{height} x {width} pixels are more than the encoder's {side}, so squares are averaged: with shrink=1 a step "
        f"would cost about {shrink**2} times as much; things smaller than {shrink} pixels may vanish"
    )


def shrink_to(side: int, height: int, width: int) -> int:
    """Side of the squares whose averages leave at most `side` pixels, and at least 16 where the picture has them."""
    return min(-(-max(height, width) // side), max(1, min(height, width) // 16))


def _optimizer(encoder: str, traits: Traits) -> tuple[str, str]:
    if not traits.muon:
        return "adamw", "this method is worse with muon"
    if encoder == "small":
        return "adamw", "with muon, small CNNs place the agent better and the object worse"
    return "muon", "it learns positions faster"


def _batch_size(facts: Facts, given: Mapping[str, Any]) -> tuple[int, str]:
    if facts.triples is None:
        if not facts.picture and given.get("group", "translations") != "translations":
            return 256, "headings gain from more triples, and numbers cost little"
        return 128, "fresh triples at every step"
    most = 128 if facts.picture else 256
    batch = max(2, min(most, facts.triples // FEWEST_BATCHES))
    few = f", at least {FEWEST_BATCHES} batches in {facts.triples:,} triples" if batch < most else ""
    return batch, ("pictures" if facts.picture else "numbers, which cost little") + few


def _steps(facts: Facts, encoder: str, optimizer: str, stages: int) -> tuple[int, str]:
    """More triples allow more steps before they are memorised."""
    if stages > 1:
        steps, why = _steps(facts, encoder, optimizer, 1)
        return stages * steps, f"{steps:,} for each object; {why}"
    if facts.triples is None:
        return 2500, "fresh triples at every step"
    if encoder == "resnet18":
        return 2500, "a ResNet gains little after that"
    # On a CPU a step of Muon costs an MLP 2.5 times as much as one of AdamW, and fewer suffice.
    least, most, each = (600, 1200, 16) if facts.picture or optimizer == "muon" else (1500, 3000, 6)
    if encoder == "scan":
        least, most, each = 800, 1500, 12
    if facts.n > 2:
        least, most, each = max(least, 1000), max(most, 2000), min(each, 10)
    steps = max(least, min(most, facts.triples // each))
    bound = "the minimum" if steps == least else "the maximum" if steps == most else "suitable"
    return steps, f"{bound} for {facts.triples:,} triples, some minutes on two cores"


def _augment(facts: Facts, encoder: str, traits: Traits) -> tuple[str, str]:
    if facts.fresh or not facts.picture:
        return "none", "fresh triples at every step" if facts.fresh else "observations are not pictures"
    if encoder == "resnet18" and traits.shifts:
        return "shift", "a large network would memorise repeated pictures"
    return "light", "changing light prevents networks from memorising repeated pictures"


def _chosen_moves(facts: Facts, traits: Traits) -> tuple[float, str]:
    if not facts.fresh:
        return 0.0, "the moves of a data set are fixed"
    if not facts.steerable:
        return 0.0, "this world is not steerable"
    if not traits.predicts:
        return 0.0, "this method predicts no contacts"
    return CHOSEN_MOVES, "moves with an uncertain contact are the most informative"


def _body(facts: Facts, given: Mapping[str, Any]) -> tuple[str, str]:
    group = given.get("group", "translations")
    if group == "arm":
        return "footprint", "an arm is long, and turns with its shape"
    if facts.picture and facts.n == 2 and group != "so2" and "radius" not in given:
        return "outline", "the radius may differ by direction; for an object that turns use ellipse"
    long = "; for a long agent use footprint" if group == "se2" else ""
    return "ball", f"one radius; for an object that turns in the plane use ellipse{long}"


def _refine(facts: Facts, traits: Traits, moves: float, small_and_fresh: bool) -> tuple[bool, str]:
    if not facts.fresh:
        return False, "a refinement needs fresh triples"
    if not traits.refines or not moves:
        return False, "a refinement needs chosen moves and a fixed camera"
    if small_and_fresh:
        return False, "small CNNs gain little from a refinement"
    if facts.n > REFINED_DIMENSIONS:
        return False, f"a refinement has too many terms beyond {REFINED_DIMENSIONS} dimensions"
    return True, "a refinement corrects smooth position bias"


def _rest_floor(facts: Facts, traits: Traits) -> tuple[float, str]:
    if facts.fresh and traits.refines:
        return rest_floor(facts.n, FRESH_REST), "at the end all observations of one place should agree"
    if facts.fresh:
        return rest_floor(facts.n, FIXED_REST), "smaller floors are only tested with a fixed camera"
    return rest_floor(facts.n, FIXED_REST), "repeated triples agree more than new ones would"


def rest_floor(n: int, plane: float = FIXED_REST) -> float:
    """The floor in n dimensions for which a distance weighs, (1 + n) / 2 scale^2, as much as in the plane."""
    return round(((1 + n) / 3) ** 0.5 * plane, 4)
