"""The names of our worlds."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import gymnasium
import torch

from palpate.envs.goal import MAX_STEPS
from palpate.envs.lidar import Lidar, LidarConfig, LidarTurning
from palpate.envs.many import ManyConfig, SpritesMany
from palpate.envs.options import configured
from palpate.envs.soccer import DrivingConfig, Soccer, SoccerConfig, SoccerDriving
from palpate.envs.sprites import Sprites, SpritesConfig
from palpate.envs.table import Table, TableConfig
from palpate.envs.turning import SpritesTurning, TurningConfig
from palpate.spelling import did_you_mean

SPRITES: dict[str, dict[str, Any]] = {
    "palpate/Sprites-v0": {},
    "palpate/SpritesBackground-v0": {"background": True},
    "palpate/SpritesAnisotropic-v0": {"body": "rectangle"},
}
MANY: dict[str, dict[str, Any]] = {"palpate/SpritesMany-v0": {}}
TURNING: dict[str, dict[str, Any]] = {"palpate/SpritesTurning-v0": {}}
LIDAR: dict[str, dict[str, Any]] = {"palpate/Lidar-v0": {}}
LIDAR_TURNING: dict[str, dict[str, Any]] = {"palpate/LidarTurning-v0": {}}
DRAWN = SPRITES | MANY | TURNING  # worlds that draw pictures in batches
STREAMS = DRAWN | LIDAR | LIDAR_TURNING
SOCCER: dict[str, dict[str, Any]] = {
    "palpate/Soccer-v0": {"view": "third"},
    "palpate/SoccerFirstPerson-v0": {"view": "first"},
}
DRIVING: dict[str, dict[str, Any]] = {"palpate/SoccerDriving-v0": {}}
FIELDS = SOCCER | DRIVING  # worlds whose scenes can be drawn from above the field
TABLE: dict[str, dict[str, Any]] = {"palpate/Table-v0": {}}
KINDS: tuple[tuple[dict[str, dict[str, Any]], Any, Any], ...] = (
    (SPRITES, Sprites, SpritesConfig),
    (MANY, SpritesMany, ManyConfig),
    (TURNING, SpritesTurning, TurningConfig),
    (LIDAR, Lidar, LidarConfig),
    (LIDAR_TURNING, LidarTurning, LidarConfig),
    (SOCCER, Soccer, SoccerConfig),
    (DRIVING, SoccerDriving, DrivingConfig),
    (TABLE, Table, TableConfig),
)
# Episodes that end, and a reward; by their classes.
TASKS = {"palpate/SoccerGoal-v0": "SoccerGoalEnv", "palpate/SoccerDrivingGoal-v0": "DrivingGoalEnv"}


def register() -> None:
    """Register the ids with Gymnasium; `import palpate.envs` does so."""
    shells = {
        "SpritesEnv": SPRITES,
        "ManyEnv": MANY,
        "TurningEnv": TURNING,
        "LidarEnv": LIDAR,
        "LidarTurningEnv": LIDAR_TURNING,
        "SoccerEnv": SOCCER,
        "DrivingEnv": DRIVING,
        "TableEnv": TABLE,
    }
    for shell, worlds in shells.items():
        for name, options in worlds.items():
            gymnasium.register(name, f"palpate.envs.shells:{shell}", kwargs=options)
    for name, shell in TASKS.items():
        gymnasium.register(name, f"palpate.envs.goal:{shell}", max_episode_steps=MAX_STEPS)


def stream_world(
    env_id: str, *, device: torch.device | str = "cpu", **options: Any
) -> Sprites | SpritesMany | SpritesTurning | Lidar:
    """A world fast enough to train on directly."""
    if env_id in FIELDS | TABLE:
        raise ValueError(
            f"env is {env_id!r}, which is simulated triple by triple, too slowly for streaming: first "
            f"`palpate collect {env_id} --out log.h5`, then `palpate train --data log.h5`"
        )
    made: Sprites | SpritesMany | SpritesTurning | Lidar = world(env_id, device=device, **options)
    made.recipe = {"env": env_id, **options}
    return made


def options_of(made: Any) -> dict[str, Any]:
    """The id and the options of one of our worlds, as `world` takes them; empty for any other object."""
    for ids, kind, config in KINDS:
        if type(made) is kind:
            env = getattr(made, "recipe", {}).get("env", next(iter(ids)))
            return {"env": env, **{each.name: made.settings()[each.name] for each in fields(config)}}
    return {}


def group_of(env_id: str) -> str | None:
    """The group of the actions of one of our worlds; None for any other environment."""
    kinds = [kind for ids, kind, _ in KINDS if env_id in ids]
    return getattr(kinds[0], "group", "translations") if kinds else None


def recorded(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The id of the environment that the attributes of triples name, and its options if it is one of our worlds."""
    env = attributes.get("environment")
    if not isinstance(env, str):
        return {}
    known = [each.name for ids, _, config in KINDS if env in ids for each in fields(config)]
    options = {name: _plain(attributes[name]) for name in known if name in attributes}
    return {"env": env, **options}


def _plain(value: Any) -> Any:
    """A value of Python for one that a file holds, which has no None."""
    value = value.item() if hasattr(value, "item") else value
    return None if value == "None" else value


def world(env_id: str, *, device: torch.device | str = "cpu", **options: Any) -> Any:
    """The world behind an id: one that streams batches on `device`, or one that makes rows on the CPU.

    Typed as Any: the id determines the type.
    """
    worlds = STREAMS | FIELDS | TABLE
    if env_id not in worlds:
        meant = did_you_mean(env_id, worlds, alike=0.3)
        others = "" if env_id.startswith("palpate/") else "; one of another package is written MODULE:ID"
        raise ValueError(f"env is {env_id!r}; the worlds here are {', '.join(worlds)}{meant}{others}")
    kind, config = next((kind, config) for ids, kind, config in KINDS if env_id in ids)
    settings = configured(config, worlds[env_id] | options)
    return kind(settings, device) if env_id in STREAMS else kind(settings)
