"""The data of a run, from a user's data: a feed of batches, a sample for the scales, held-out triples."""

import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from palpate.choices import Facts
from palpate.config import TURNING, ObjectiveConfig, SettledTraining
from palpate.data.labelled import Labelled, LabelledResident, LabelledStream
from palpate.data.logs.log import open_log
from palpate.data.sources import Resident, source
from palpate.data.stream import SteerableWorld, World, first_triples
from palpate.data.transitions import Batch, Transitions
from palpate.envs.registration import STREAMS, group_of, options_of, recorded, stream_world
from palpate.groups.base import Group
from palpate.scans import is_carried, is_scan
from palpate.training.feeds import Feed, Oversampled, Selected
from palpate.traits import Traits

HELD_OUT_SHARE, HELD_OUT_MOST, HELD_OUT_BYTES = 0.1, 1000, 1024**3  # of a fixed set: never trained on
RECORDED = "check how they were recorded, or run `palpate check`"
OF_READINGS = {"agent_heading": "se2", "agent_rotation": "se3"}  # groups of what `collect` reads
FEWEST_DIFFERENT = 8  # triples of a sample
SAMPLE_ROWS, SAMPLE_BYTES = 2048, 256 * 1024**2  # to take the scales from

Data = Transitions | Labelled | World | str | os.PathLike[str]


class Material(NamedTuple):
    """The data of a run."""

    feed: Feed
    sample: Batch  # some rows to take the scales from
    actions: Tensor  # all of them, for the unit
    held_out: Batch | None  # triples of a fixed set that select the weights
    name: str
    episode: Tensor | None = None  # of the held-out triples


def origin_of(data: object, name: str = "data") -> dict[str, Any]:
    """Where data come from, by the names of `palpate train`; empty for data in memory."""
    if isinstance(data, str) and _is_world(data):
        return {"env": data}
    if isinstance(data, str | os.PathLike):
        return {name: str(Path(data).absolute())}
    return dict(getattr(data, "recipe", {}))


def world_of(data: Transitions | Labelled | World) -> dict[str, Any]:
    """The id of the environment that data come from, and its options if it is one of our worlds; empty if unknown."""
    if isinstance(data, Transitions | Labelled):
        return recorded(triples_of(data).attributes)
    env = getattr(data, "recipe", {}).get("env")
    return options_of(data) or ({} if env is None else {"env": str(env)})


def known_group(data: Transitions | Labelled | World) -> tuple[str | None, str]:
    """The group of the actions as far as it is recorded, and by what; (None, "") if it is not."""
    attributes = triples_of(data).attributes if isinstance(data, Transitions | Labelled) else {}
    if (read := attributes.get("group")) in TURNING:
        return str(read), f"the log was read with group={read!r}"
    for name, group in OF_READINGS.items():
        if name in attributes:
            return group, f"the log was collected with {name}"
    env = world_of(data).get("env")
    group_of_env = None if env is None else group_of(env)
    return group_of_env, "" if group_of_env is None else f"the data come from {env}"


def require_group(data: Transitions | Labelled | World, scene: ObjectiveConfig, traits: Traits) -> None:
    """Refuse a group or a motion that the actions do not have, if theirs is known; and a method without the group."""
    group, (known, by) = scene.group, known_group(data)
    if scene.turns and known == group and (motion := world_of(data).get("motion", scene.motion)) != scene.motion:
        raise ValueError(f"motion is {scene.motion!r}, but {by}, whose agent needs {motion!r}: give motion={motion!r}")
    if known is None or known == group or (known not in TURNING and not traits.turns):
        return
    actions = "moves along the agent's own axes" if known in TURNING else "displacements along fixed axes"
    advice = f"give group={known!r}" if traits.turns else "this method learns no agent that turns"
    raise ValueError(f"group is {group!r}, but {by}, so the actions are {actions}: {advice}")


def _is_world(name: str) -> bool:
    return name in STREAMS or (name.startswith("palpate/") and not Path(name).exists())


def opened_data(data: Data, traits: Traits, device: torch.device) -> Transitions | Labelled | World:
    if isinstance(data, str) and _is_world(data):
        return stream_world(data, device=device)
    if isinstance(data, str | os.PathLike):
        return open_log(data) if traits.unsupervised else Labelled.open(data)
    if isinstance(data, type) or not isinstance(data, Transitions | Labelled | World):
        raise ValueError(
            f"data is {data!r}; allowed are Transitions, a file of them, or a world with device, observation_shape, n, "
            "sample and render_pair (palpate.data.stream.World)"
        )
    return data


def triples_of(data: Transitions | Labelled) -> Transitions:
    return data.transitions if isinstance(data, Labelled) else data


def log_options(data: Transitions | Labelled | World) -> dict[str, Any]:
    """What was taken from another project's log; empty for other data."""
    recipe = data.recipe if isinstance(data, Transitions) else {}
    return {name: value for name, value in recipe.items() if name != "data"}


def facts_of(data: Transitions | Labelled | World, device: torch.device) -> Facts:
    if isinstance(data, Transitions | Labelled):
        triples = triples_of(data)
        shape, count = triples.observation_shape, triples.substeps
        facts = Facts(shape, triples.n, len(triples), False, device.type, count)
        return facts if facts.picture else _looked_at(facts, triples.rows(_spread_rows(triples)))
    if torch.device(data.device).type != device.type:
        raise ValueError(
            f"the world is on {data.device}, but training runs on {device}; build it with device={device.type!r}"
        )
    facts = Facts(tuple(data.observation_shape), data.n, None, isinstance(data, SteerableWorld), device.type)
    if facts.picture:
        return facts
    return _looked_at(facts, first_triples(data, _rows_of(data), torch.Generator(data.device).manual_seed(0)))


def _rows_of(world: World) -> int:
    """Rows of a sample of a world."""
    return max(8, min(SAMPLE_ROWS, SAMPLE_BYTES // (2 * math.prod(world.observation_shape))))


def _looked_at(facts: Facts, rows: Batch) -> Facts:
    """With what some triples show about the sensor."""
    scan = is_scan(rows.o)
    return facts._replace(scan=scan, carried=scan and is_carried(rows.o, rows.o_next))


def make_material(
    data: Transitions | Labelled | World, traits: Traits, config: SettledTraining, device: torch.device, group: Group
) -> Material:
    if isinstance(data, Transitions | Labelled):
        return _from_set(data, traits, config, device, group)
    return _from_world(data, traits, config, device)


def _from_world(world: World, traits: Traits, config: SettledTraining, device: torch.device) -> Material:
    if config.compile and hasattr(world, "compile"):
        world.compile()
    sample = first_triples(world, _rows_of(world), torch.Generator(device).manual_seed(config.seed + 1))
    require_variety(sample)
    feed = (
        Selected(
            world, config.batch_size, least_contacts=config.least_contacts, chosen_moves=config.chosen_moves or 0.0
        )
        if traits.unsupervised
        else Feed(LabelledStream(world), config.batch_size)
    )
    return Material(feed, sample, sample.a, None, f"stream of {getattr(world, 'config', type(world).__name__)}")


def _from_set(
    data: Transitions | Labelled, traits: Traits, config: SettledTraining, device: torch.device, group: Group
) -> Material:
    triples = triples_of(data)
    sample = triples.rows(_spread_rows(triples))
    require_variety(sample)
    if not traits.unsupervised:
        if not isinstance(data, Labelled):
            raise ValueError("method is 'supervised', but the data have no true states; give a Labelled set or a world")
        return Material(
            Feed(LabelledResident(data, device), config.batch_size), sample, triples.action, None, repr(data)
        )
    most = max(2, min(HELD_OUT_MOST, HELD_OUT_BYTES * len(triples) // triples.nbytes))
    share = max(min(HELD_OUT_SHARE, most / len(triples), 1 - config.batch_size / len(triples)), 2 / len(triples))
    held_out, kept = triples.split(share, seed=config.seed)
    held_rows = Batch(*(x.to(device) for x in held_out.rows(slice(None))))
    kept_source = source(kept, device, config.seed)
    if isinstance(kept_source, Resident):
        kept_source.connect(kept.episode, group.travelled)
    feed = (
        Oversampled(kept_source, config.batch_size, config.least_contacts)
        if isinstance(kept_source, Resident) and config.least_contacts > 0
        else Feed(kept_source, config.batch_size)
    )
    return Material(feed, sample, triples.action, held_rows, repr(triples), held_out.episode)


def some_rows(data: Transitions | Labelled | World, count: int, seed: int) -> Batch:
    """So many random rows at most, on the CPU."""
    if not isinstance(data, Transitions | Labelled):
        drawn = first_triples(data, count, torch.Generator(data.device).manual_seed(seed + 2))
        return Batch(*(x.cpu() for x in drawn))
    triples = triples_of(data)
    order = torch.randperm(len(triples), generator=torch.Generator().manual_seed(seed))
    return Batch(*(x.float() for x in triples.rows(order[:count].sort().values.numpy())))


def require_variety(rows: Batch) -> None:
    """Refuse rows without enough different observations or triples."""

    def constant(x: Tensor) -> bool:
        return bool((x == x[:1]).all())

    count = len(rows.a)
    if constant(rows.o) and constant(rows.o_next):
        every = "" if torch.equal(rows.o[0], rows.o_next[0]) else " before a move, and all after one,"
        raise ValueError(f"all {count:,} observations of a sample{every} are the same; {RECORDED}")
    if (found := _different(rows)) < min(FEWEST_DIFFERENT, count):
        raise ValueError(
            f"a sample of {count:,} triples has only {found} different ones; at least {FEWEST_DIFFERENT} are needed: "
            f"{RECORDED}"
        )


def _different(rows: Batch) -> int:
    """Number of different triples, counted up to `FEWEST_DIFFERENT`."""
    left = torch.ones(len(rows.a), dtype=torch.bool, device=rows.a.device)
    for count in range(FEWEST_DIFFERENT):
        if not left.any():
            return count
        first = int(left.int().argmax())
        at = (rows.a == rows.a[first]).all(1).nonzero()[:, 0]  # few, as a rule; only their observations are compared
        at = at[torch.stack([(x[at] == x[first]).flatten(1).all(1) for x in (rows.o, rows.o_next)]).all(0)]
        left[at] = left[first] = False
    return FEWEST_DIFFERENT


def _spread_rows(triples: Transitions) -> list[int]:
    """Evenly spaced row numbers of the whole set, as many as fit into bounded memory."""
    most = max(8, SAMPLE_BYTES * len(triples) // triples.nbytes)
    count = min(len(triples), SAMPLE_ROWS, most)
    return [i * len(triples) // count for i in range(count)]
