"""The names of our worlds."""

import difflib
from typing import Any

import gymnasium
import torch

from palpate.envs.sprites import Sprites, SpritesConfig

SPRITES: dict[str, dict[str, Any]] = {
    "palpate/Sprites-v0": {},
    "palpate/SpritesBackground-v0": {"background": True},
    "palpate/SpritesAnisotropic-v0": {"body": "rectangle"},
}


def register() -> None:
    """Make the ids known to `gymnasium.make`; Gymnasium calls this itself, by the package's entry point."""
    for name, options in SPRITES.items():
        if name not in gymnasium.registry:
            gymnasium.register(name, "palpate.envs.shells:SpritesEnv", kwargs=options)


def world(env_id: str, *, device: torch.device | str = "cpu", **options: Any) -> Sprites:
    """The batched world behind an id."""
    if env_id not in SPRITES:
        near = difflib.get_close_matches(env_id, SPRITES, 1, 0.3)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"env is {env_id!r}; the worlds that stream are {', '.join(SPRITES)}{hint}")
    try:
        config = SpritesConfig(**(SPRITES[env_id] | options))
    except TypeError as error:
        raise ValueError(f"{env_id} does not know this option: {error}") from error
    return Sprites(config, device)
