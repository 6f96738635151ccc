"""Choose the command whose contact is least certain."""

from typing import final

import numpy as np
import torch

from palpate.data.transitions import Transitions
from palpate.exploring.steering import Steering
from palpate.networks import one_thread
from palpate.representation import Representation


@final
class LeastCertain:
    """A `Chooser` that selects the command with the least certain contact: the one with P(contact) closest to 1/2.

    The model computes P(contact) from the observation before the move. It does not use the outcome, so the selection
    does not bias the outcome. While an object is not placed, P(contact) includes the contact share: if contacts are
    rare, it is below 1/2 on the learned boundary.
    """

    def __init__(self, model: Representation, steering: Steering, share: float) -> None:
        self.share = share
        self._model, self._steering = model, steering
        self._contact_share = float(model.facts["quality"]["contact_share"])

    def __call__(self, observation: np.ndarray, commands: np.ndarray) -> int:
        return int(np.argmax(self.uncertainty(observation, commands)))

    @torch.no_grad()
    def uncertainty(self, observation: np.ndarray, commands: np.ndarray) -> np.ndarray:
        """Minus the absolute log-odds of contact, [c]; the largest is the least certain."""
        with one_thread():  # sums in one order, whatever the number of threads
            o = canonical(observation)
            pose = self._model.model.pose(o)
            assert pose is not None  # `explore` refuses methods that predict no contacts
            agent = pose.double().expand(len(commands), -1)
            moves = self._steering.predict(agent, torch.from_numpy(commands).double())
            found = self._model.model.uncertainty(o, moves.float()[None], self._contact_share)
            assert found is not None
            return found[0].numpy()


def canonical(observation: np.ndarray) -> torch.Tensor:
    """One observation as a row of a file of triples: [1, ...]."""
    o = observation[None]
    return Transitions(observation=o, action=np.zeros((1, 1), np.float32), next_observation=o).rows(slice(None)).o
