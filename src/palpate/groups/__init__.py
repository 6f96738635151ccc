"""Groups of the agent's actions, one file each. All code that compares, moves or aligns agents uses a group."""

from palpate.config import ModelConfig, ObjectiveConfig
from palpate.groups.base import Group
from palpate.groups.se2 import SE2
from palpate.groups.se3 import SE3
from palpate.groups.translations import Translations


def make_group(config: ModelConfig) -> Group:
    """The group of a model's actions. No code outside this file chooses a group."""
    return group_of_actions(config.action_width, config.objective)


def group_of_actions(count: int, scene: ObjectiveConfig) -> Group:
    """The group of actions of so many numbers."""
    match scene.group:
        case "se2":
            return SE2(count, scene.motion)
        case "se3":
            return SE3(scene.motion)
    return Translations(count)


def group_of_records(n: int, *, heading: bool) -> Group:
    """The group of actions that are recorded as changes of an agent's position [n], or of position and heading."""
    if not heading:
        return Translations(n)
    if n != 2:
        raise ValueError(f"agent_heading is given for a position of {n} numbers; a heading needs one of 2, in a plane")
    return SE2()
