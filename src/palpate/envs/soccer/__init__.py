"""Soccer, with MuJoCo's physics and pictures. Importing it does not import MuJoCo; making a world does."""

from palpate.envs.soccer.config import DrivingConfig, SoccerConfig
from palpate.envs.soccer.driving import SoccerDriving
from palpate.envs.soccer.world import Rows, Scene, Soccer, Triples

__all__ = ["DrivingConfig", "Rows", "Scene", "Soccer", "SoccerConfig", "SoccerDriving", "Triples"]
