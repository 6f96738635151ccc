"""The figures of a run that has no report, drawn by the same functions as in a report."""

import threading
from typing import TYPE_CHECKING, NamedTuple, final

from palpate.viewer.opened import collected, opened, opened_with_truth
from palpate.viewer.run import RunFolder

if TYPE_CHECKING:
    from palpate.data.labelled import Labelled
    from palpate.data.transitions import Transitions
    from palpate.representation import Representation

STREAMED, STREAM_SEED = 600, 10**6  # triples that a streamed world makes for the figures


class Source(NamedTuple):
    """Triples to draw on."""

    labelled: "Labelled | None"
    triples: "Transitions | None"
    note: str


def source_of(run: RunFolder) -> Source:
    """The test triples of a run, or else its own data, or else fresh triples of its world, if that streams."""
    from palpate.envs.registration import STREAMS

    if run.test is not None and (labelled := opened_with_truth(run.test)) is not None:
        return Source(labelled, None, f"Test triples: {run.test.name}.")
    if run.data is not None:
        labelled = opened_with_truth(run.data)
        if labelled is not None:
            note = f"Triples of {run.data.name}, on which the run was trained: new ones may be placed less accurately."
            return Source(labelled, None, note)
        return Source(None, opened(run.data, run.reading), f"Triples of {run.data.name}; no true states are known.")
    if run.world.get("env") in STREAMS:
        fresh = collected(run.world, STREAMED, STREAM_SEED)
        return Source(fresh, None, f"{STREAMED} fresh triples of {run.world['env']}.")
    return Source(None, None, "The run's data are not on this machine, so nothing can be drawn on them.")


@final
class Drawing:
    """Loads the model and draws, in a daemon thread. `changed` counts the results for the page.

    The thread also imports torch. In the server's thread, this import would block the page for seconds.
    """

    def __init__(self, run: RunFolder) -> None:
        self.run = run
        self.model: Representation | None = None
        self.made: int | None = None  # of the model that was loaded
        self.figures: dict[str, bytes] = {}
        self.notes: list[str] = []
        self.error, self.finished, self.changed = "", False, 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it runs, or has drawn the present model already."""
        if self._thread is not None and self._thread.is_alive():
            return
        if self.finished and not self.error and self.made == self.run.made:
            return
        self.error, self.finished = "", False
        self._thread = threading.Thread(target=self._work, name="drawing", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        tried: int | None = -1
        while tried != self.run.made:  # a run that was overwritten in the meantime is drawn too
            tried, self.error = self.run.made, ""
            try:
                self.draw()
            except Exception as error:  # the page shows it; a run may vanish at any time
                self.error = " ".join(f"{error}".split()) or type(error).__name__
        self.finished = True
        self.changed += 1

    def draw(self) -> None:
        """Load the model, then draw."""
        from palpate.figures import png
        from palpate.networks import few_threads
        from palpate.pictures import estimated, measured
        from palpate.representation import load

        made = self.run.made
        self.model = load(self.run.path)
        self.made, self.figures = made, {}
        self.changed += 1
        source = source_of(self.run)
        self.notes = [source.note]
        with few_threads():
            if source.labelled is not None:
                figures, notes = measured(self.model, source.labelled)
            else:
                figures, notes = ({}, []) if source.triples is None else estimated(self.model, source.triples)
        for name, figure in figures.items():
            self.figures[name] = png(figure)
            self.changed += 1
        self.notes += notes
