"""Groups of the agent's actions, one file each. All code that compares, moves or aligns agents uses a group."""

from palpate.config import ModelConfig
from palpate.groups.base import Group
from palpate.groups.translations import Translations


def make_group(config: ModelConfig) -> Group:
    """The group of a model's actions. No code outside this file chooses a group."""
    return Translations(config.n)


def group_of_displacements(n: int) -> Group:
    """The group of actions that are recorded as an agent's displacements in n dimensions."""
    return Translations(n)
