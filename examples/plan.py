"""Play the soccer game without learning a policy: positions are metric, so a few lines of geometry suffice.

    python examples/plan.py --model runs/x     with a representation trained on palpate/Soccer-v0
    python examples/plan.py --truth            with the true states, the limit
    python examples/plan.py --truth --agent differential
    python examples/plan.py --truth --balls 2 --kick 1     kick the red one of two balls

The plan: stand behind the ball on the line to the goal, then walk along that line. `model = model.align(...)` moves the
learned frame onto the field, from a few known positions of the agent. An agent that turns (`--agent driving`, or
`differential` without sideways moves) drives along its own axes; its representation has group="se2". Of several balls,
the one with the number `--kick` belongs in the goal: orange, red, blue, violet. The agent walks around the others, and
clears away one that lies on the line to the goal. A representation's objects have an order of their own: `--object` is
the number of the one to kick.
"""

import argparse
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np

import palpate
import palpate.envs  # registers the worlds
from palpate.envs.goal import GOAL
from palpate.envs.soccer.config import REACH

FIRST_SEED = 10**6  # the held-out starts of `palpate reproduce control`
MARGIN = 0.03  # distance kept from the ball on the way around it
ON_LINE = 0.01  # the agent walks if it is off the line to the goal by less than this
AROUND = np.stack([(np.cos(t), np.sin(t)) for t in np.arange(16) * np.pi / 8])

FACING = 0.02  # radians: a differential drive turns before it drives if it is off its way by more than this
GAMES: dict[str, tuple[str, dict[str, Any]]] = {
    "displacements": ("palpate/SoccerGoal-v0", {}),
    "driving": ("palpate/SoccerDrivingGoal-v0", {}),
    "differential": ("palpate/SoccerDrivingGoal-v0", {"sideways": False}),
}

State = tuple[np.ndarray, Any, np.ndarray]  # agent, its heading or None, and balls [k, 2]


def plan(agent: np.ndarray, balls: np.ndarray, kicked: int, goal: np.ndarray, reach: float) -> np.ndarray:
    """The next displacement; `reach` is the distance at which agent and ball touch."""
    ball, others = balls[kicked], np.delete(balls, kicked, 0)
    to_goal = (goal - ball) / max(np.linalg.norm(goal - ball), 1e-9)
    to_ball = ball - agent
    off = abs(to_goal[0] * to_ball[1] - to_goal[1] * to_ball[0])
    behind = ball - to_goal * (reach + MARGIN)
    if off < ON_LINE and to_ball @ to_goal > 0 and clearance(agent, behind, others) > reach:
        return goal - to_goal * reach - agent  # the ball in front of the agent then lies in the goal
    around = np.array([behind, *(ball + 1.5 * (reach + MARGIN) * AROUND)])
    left = np.linalg.norm(around - behind, axis=1)
    # Around the other balls, as long as that leads nearer; else through them.
    for avoided, nearer in ((balls, np.linalg.norm(agent - behind) - ON_LINE), (balls[[kicked]], np.inf)):
        free = np.array([clearance(agent, place, avoided) for place in around]) > reach + MARGIN / 2
        free &= left < nearer
        if free.any():
            place: np.ndarray = around[np.where(free, left, np.inf).argmin()]
            return place - agent
    return -to_ball  # too close for a detour


def clearance(start: np.ndarray, end: np.ndarray, balls: np.ndarray) -> float:
    """Distance of the nearest of some balls [k, 2] from the way."""
    way, offset = end - start, balls - start
    share = np.clip(offset @ way / max(way @ way, 1e-12), 0, 1)
    return float(np.linalg.norm(share[:, None] * way - offset, axis=1).min(initial=np.inf))


def along_own_axes(move: np.ndarray, heading: float, agent: str) -> np.ndarray:
    """The action that leads along a displacement of the field. A differential drive first turns, its front or its back
    to the way, whichever is nearer."""
    cos, sin = np.cos(heading), np.sin(heading)
    ahead, left = cos * move[0] + sin * move[1], cos * move[1] - sin * move[0]
    if agent == "driving":
        return np.array([ahead, left, 0.0])
    off = np.arctan(left / ahead) if abs(ahead) > 1e-9 else np.pi / 2
    if abs(off) > FACING and np.hypot(ahead, left) > 1e-9:
        return np.array([0.0, off])
    return np.array([ahead, 0.0])


def within(move: np.ndarray, most: np.ndarray) -> np.ndarray:
    """The move, shortened to what one step allows."""
    return (move * min(1.0, float((most / np.abs(move).clip(1e-9)).min()))).astype(np.float32)


def learned(folder: str, env: Any, known: int, kicked: int) -> tuple[Callable[[np.ndarray], State], float]:
    """A function from an observation to positions in the field, and the distance at which agent and ball touch."""
    model = palpate.load(folder)
    starts = [env.reset(seed=seed) for seed in range(known)]
    observation = np.stack([o for o, _ in starts])
    model = model.align({"observation": observation, "agent": np.stack([info["agent"] for _, info in starts])})
    covariances = model.encode(observation).covariances
    if covariances is None or not model.model.places_object:
        raise SystemExit(f"plan: {folder} holds a model without a body; train one with the default method")

    def see(o: np.ndarray) -> State:
        encoding = model.encode(o[None])
        heading = None if encoding.heading is None else encoding.heading[0]
        return encoding.agent[0], heading, encoding.objects[0]

    return see, float(np.sqrt(np.linalg.eigvalsh(covariances[0, kicked]).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--model", help="folder of a representation")
    which.add_argument("--truth", action="store_true", help="use the true states")
    parser.add_argument("--agent", choices=GAMES, default="displacements", help="how the agent moves")
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--ball", choices=("centre", "random"), default="centre", help="where the ball starts")
    parser.add_argument("--balls", type=int, default=1, help="how many there are")
    parser.add_argument("--kick", type=int, default=0, help="number of the ball that belongs in the goal")
    parser.add_argument("--object", type=int, help="its number among the representation's objects; default: --kick")
    parser.add_argument("--known", type=int, default=20, help="number of known agent positions that align the frame")
    arguments = parser.parse_args()
    if min(arguments.episodes, arguments.known) < 1:
        parser.error(f"episodes is {arguments.episodes} and known {arguments.known}; allowed is 1 or more")
    game, options = GAMES[arguments.agent]
    options = options | {"ball": arguments.ball, "balls": arguments.balls, "counts": arguments.kick}
    turns, kicked = arguments.agent != "displacements", arguments.kick
    if arguments.truth:
        env: Any = gymnasium.make(game, observation="state", **options)
        positions = -2 * arguments.balls  # at the end of a state
        see = lambda o: (o[:2], np.arctan2(o[3], o[2]) if turns else None, o[positions:].reshape(-1, 2))  # noqa: E731
        reach = REACH
    else:
        try:
            config = palpate.load(arguments.model).config
        except (OSError, ValueError) as error:
            parser.error(str(error))
        if turns != (config.objective.group == "se2"):
            parser.error(f"the agent is {arguments.agent}, but the model's group is {config.objective.group!r}")
        if config.objects != arguments.balls:
            parser.error(f"there are {arguments.balls} balls, but the model has {config.objects} objects")
        kicked = kicked if arguments.object is None else arguments.object
        if not 0 <= kicked < config.objects:
            parser.error(f"object is {kicked}; allowed is 0 to {config.objects - 1}")
        env = gymnasium.make(game, size=config.observation_shape[-1], **options)
        see, reach = learned(arguments.model, env, arguments.known, kicked)
    most, goal = env.action_space.high, np.array(GOAL)
    goals, steps, returns = 0, [], []
    for episode in range(arguments.episodes):
        o, info = env.reset(seed=FIRST_SEED + episode)
        total, step, scored, ended = 0.0, 0, False, False
        while not ended:
            # After a goal the agent leaves the ball alone.
            agent, heading, balls = see(o)
            move = np.zeros(2) if info["goal"] else plan(agent, balls, kicked, goal, reach)
            if turns:
                move = along_own_axes(move, heading, arguments.agent)
            o, reward, terminated, truncated, info = env.step(within(move, most))
            total, step, ended = total + float(reward), step + 1, terminated or truncated
            if info["goal"] and not scored:
                scored = True
                steps.append(step)
        goals += scored
        returns.append(total)
    env.close()
    print(f"goals in {goals} of {arguments.episodes} episodes ({goals / arguments.episodes:.0%})")
    took = f"; a goal took {np.median(steps):.0f} steps" if steps else ""
    print(f"return {np.mean(returns):.2f} on average{took}")


if __name__ == "__main__":
    main()
