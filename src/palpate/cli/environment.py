"""Options of verbs that collect triples from an environment."""

import ast
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Environment:
    """How an environment makes triples."""

    size: int | None = None
    """Side of the pictures in pixels (our worlds)."""
    contact_share: float | None = None
    """Contact share (our worlds, not in explore). Default: the world's. --option contact_share=None gives the share of
    random motion."""
    agent_position: str | None = None
    """Other environments: reading of the agent's position, such as info:pos; the action of a triple is its change.
    Default: info:displacement if there is one, else the environment's action."""
    agent_heading: str | None = None
    """Other environments: reading of the direction in which the agent faces, in radians; actions are then (forward,
    sideways, turn), for --group se2."""
    agent_rotation: str | None = None
    """Other environments: reading of the agent's rotation matrix in space; actions then have 6 numbers, for --group
    se3."""
    observation: str | None = None
    """Other environments: reading of the observation, such as observation:pixels, or render. Default: the whole
    observation."""
    aggregate: int | None = None
    """Other environments: environment steps per triple, all with the same action. Default: 1."""
    settle: int | None = None
    """Other environments: maximum steps to wait until nothing moves; if something still moves, the triple is
    dropped."""
    hold: str | None = None
    """Other environments: the action while waiting, such as 0,0, or a reading of it. Default: 0; required unless 0 lies
    inside the action space."""
    watch: tuple[str, ...] = ()
    """Other environments: readings that must rest, besides the agent's position. Default: the observation."""
    tolerance: float | None = None
    """Other environments: a number rests if it changes by at most this much in a step. Default: 0.001."""
    truth: tuple[str, ...] = ()
    """Other environments: readings of true states, for evaluation, such as object=info:block_pose[:2]
    angle=info:block_pose[2] contact=moved."""
    option: tuple[str, ...] = ()
    """Options of the environment, such as obs_type=pixels max_episode_steps=120."""
    workers: int | None = None
    """Number of processes; the triples do not depend on it. Default: one per available core. Worlds that can be
    streamed use one."""

    def processes(self) -> int:
        from palpate.workers import available_cores

        return available_cores() if self.workers is None else self.workers

    def options(self) -> dict[str, Any]:
        """The given options of the world and of its stepping."""
        names = (
            "size",
            "contact_share",
            "agent_position",
            "agent_heading",
            "agent_rotation",
            "observation",
            "aggregate",
            "settle",
            "tolerance",
        )
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        if self.hold is not None:
            given["hold"] = _literal(self.hold)
        if self.watch:
            given["watch"] = self.watch
        if self.truth:
            given["truth"] = _pairs("truth", self.truth)
        options = {name: _literal(text) for name, text in _pairs("option", self.option).items()}
        for name in given.keys() & options.keys():
            raise ValueError(f"{name} is given twice, as --{name.replace('_', '-')} and as --option; leave out one")
        return given | options


def _pairs(flag: str, pairs: tuple[str, ...]) -> dict[str, str]:
    wrong = [pair for pair in pairs if not pair.partition("=")[0].isidentifier() or "=" not in pair]
    if wrong:
        raise ValueError(f"{flag} is {wrong[0]!r}; allowed are pairs name=value")
    return {name: text for name, _, text in (pair.partition("=") for pair in pairs)}


def _literal(text: str) -> Any:
    """The value of a Python literal, or of true and false; else the text itself."""
    if text in ("true", "false"):
        return text == "true"
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text
