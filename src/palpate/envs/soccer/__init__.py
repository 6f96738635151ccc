"""Soccer, with MuJoCo's physics and pictures. Importing it does not import MuJoCo; making a world does."""

from palpate.envs.soccer.config import SoccerConfig
from palpate.envs.soccer.world import Rows, Scene, Soccer, Triples

__all__ = ["Rows", "Scene", "Soccer", "SoccerConfig", "Triples"]
