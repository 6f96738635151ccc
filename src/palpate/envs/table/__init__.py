"""A table with a gripper and a block, simulated by MuJoCo. Importing it does not import MuJoCo; making a world does."""

from palpate.envs.table.config import TableConfig
from palpate.envs.table.world import Rows, Scene, Table, Triples

__all__ = ["Rows", "Scene", "Table", "TableConfig", "Triples"]
