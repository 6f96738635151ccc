"""Where blocks come from: a world, in this process or in workers, and the attributes of its files."""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any, TypeAlias, final

import gymnasium

from palpate.collecting.blocks import AnyWorld, Block, RowWorld, Span, make
from palpate.collecting.parallel import Recipe, blocks_of_workers
from palpate.collecting.stepped import Chooser, Stepped
from palpate.collecting.stepping import NAMES as STEPPING
from palpate.collecting.stepping import Stepping

Source: TypeAlias = str | gymnasium.Env[Any, Any] | Callable[[], gymnasium.Env[Any, Any]]


@final
class Origin:
    """Makes blocks, in this process or in workers."""

    def __init__(self, world: Callable[[], AnyWorld], attributes: dict[str, Any], seed: int, workers: int) -> None:
        self._make, self._seed = world, seed
        self.world: Any = world()  # also with workers: bad settings raise here, before a worker starts
        self._workers = workers if isinstance(self.world, RowWorld) else 1
        # A world's own settings are complete, so that two sets can be compared later.
        attributes |= self.world.settings() if hasattr(self.world, "settings") else {}
        plain = {name: x if isinstance(x, str | int | float) else str(x) for name, x in attributes.items()}
        self.attributes = {**plain, "seed": seed}

    def blocks(self, wanted: Sequence[Span], finish: Callable[[Block], Any]) -> Generator[Any, None, None]:
        if min(self._workers, len(wanted)) > 1:
            yield from blocks_of_workers(Recipe(self._make, self._seed, finish), wanted, self._workers)
        else:
            yield from (finish(make(self.world, self._seed, span)) for span in wanted)

    def close(self) -> None:
        if isinstance(self.world, RowWorld):
            self.world.close()


def stepped(
    env: Source,
    seed: int,
    workers: int,
    options: dict[str, Any],
    *,
    labelled: bool = False,
    chooser: Chooser | None = None,
) -> Origin:
    """Blocks of a Gymnasium environment; `options` are those of its stepping and, for an id, of the environment."""
    options = dict(options)
    stepping = Stepping(**{name: options.pop(name) for name in STEPPING if name in options})
    if isinstance(env, str):
        if stepping.observation == "render":
            options.setdefault("render_mode", "rgb_array")
        # The id may be unknown in a worker: it receives the whole entry, or the module to import.
        make_env: Callable[[], gymnasium.Env[Any, Any]] = partial(
            _made, env if ":" in env else gymnasium.spec(env), **options
        )
    elif options:
        raise ValueError(
            f"options {sorted(options)} are for ids; set them on the environment instead. Allowed options of stepping: "
            f"{', '.join(STEPPING)}"
        )
    elif not isinstance(env, gymnasium.Env):
        make_env = env
    elif workers > 1:
        raise ValueError(
            f"workers is {workers}, but an existing environment cannot move to other processes; give its id, or a "
            "function that makes it"
        )
    else:
        return Origin(
            lambda: Stepped(env, stepping, labelled=labelled, ours=False, chooser=chooser), options, seed, workers
        )
    return Origin(
        lambda: Stepped(make_env(), stepping, labelled=labelled, ours=True, chooser=chooser), options, seed, workers
    )


def _made(entry: Any, **options: Any) -> gymnasium.Env[Any, Any]:
    try:
        return gymnasium.make(entry, **options)
    except ModuleNotFoundError as error:  # the module before the colon, or one that the environment needs
        advice = "pip install 'palpate[pusht]'" if "gym_pusht" in str(entry) else "install the package that holds it"
        raise ValueError(f"env is {entry!r}: {error}; {advice}") from error
    except TypeError as error:
        raise ValueError(f"{entry} does not take these options: {error}") from error
