"""Groups of the agent's actions, one file each. All code that compares, moves or aligns agents uses a group."""

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.groups.arm import Arm
from palpate.groups.base import Group
from palpate.groups.se2 import SE2
from palpate.groups.se3 import SE3
from palpate.groups.so2 import SO2
from palpate.groups.substeps import Substeps
from palpate.groups.translations import Translations


def make_group(config: ModelConfig) -> Group:
    """The group of a model's actions. No code outside this file chooses a group."""
    return group_of_actions(config.action_shape, config.objective)


def group_of_actions(shape: tuple[int, ...], scene: ObjectiveConfig) -> Group:
    """The group of actions of this shape: (numbers,), or (sub-steps, numbers of each)."""
    *parts, count = shape
    group = _group(count, scene)
    return Substeps(group, parts[0]) if parts else group


def _group(count: int, scene: ObjectiveConfig) -> Group:
    match scene.group:
        case "se2":
            return SE2(count, scene.motion)
        case "se3":
            return SE3(scene.motion)
        case "so2":
            return SO2()
        case "arm":
            return Arm()
    return Translations(count)


def group_of_records(n: int, turn_width: int) -> Group:
    """The group of actions that are recorded as changes of an agent's position [n], or also of its heading, one number,
    or of its rotation vector, three."""
    if not turn_width:
        return Translations(n)
    found = {group.turn_width: group for group in (SE2(), SE3())}[turn_width]
    if n != found.n:
        what = "agent_heading is given" if turn_width == 1 else "agent_rotation is given"
        needs = "a heading needs one of 2, in a plane" if turn_width == 1 else "a rotation needs one of 3, in space"
        raise ValueError(f"{what} for a position of {n} numbers; {needs}")
    return found
