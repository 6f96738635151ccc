"""What all pages of one `palpate view` share. Slow work is done in daemon threads, so Ctrl-C never waits for it."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar, final

from palpate.data.logs.options import LogOptions
from palpate.viewer.opened import is_triples, kind_of, opened, opened_with_truth, require_log, run_of
from palpate.viewer.run import RunFolder

if TYPE_CHECKING:
    from palpate.data.stream import SteerableWorld
    from palpate.doctor.check import Checkup
    from palpate.representation import Representation
    from palpate.viewer.drawing import Drawing
    from palpate.viewer.grounds import Ground
    from palpate.viewer.log import Log
    from palpate.viewer.play import Play
    from palpate.viewer.ranking import Ranking

T = TypeVar("T")
# Errors of files and of users' own worlds, which the page shows. Others are our bugs.
SHOWN = (OSError, ValueError, RuntimeError, LookupError)


@final
class Task(Generic[T]):
    """A result that a daemon thread computes."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.value: T | None = None
        self.error = ""
        self.done = False
        self._work = work
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        try:
            self.value = self._work()
        except Exception as error:  # the page shows it
            self.error = one_line(error)
        self.done = True


def one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


@final
class LogWork:
    """What is computed from one opened log, each part once."""

    def __init__(self, log: "Log") -> None:
        self.log = log
        self.ranking: Ranking | None = None
        self.examination: Task[Checkup] | None = None
        self.checkup: Task[Checkup] | None = None


@final
class Session:
    """A path and everything that is computed from it, each part once, or again when a followed run is overwritten."""

    def __init__(
        self,
        path: Path,
        *,
        live: bool = False,
        world: "SteerableWorld | None" = None,
        model: Path | None = None,
        reading: LogOptions | None = None,
    ) -> None:
        self.path, self.live, self._world = run_of(path), live, world
        self.model = None if model is None else run_of(model)
        self.kind = kind_of(self.path)
        self.run = RunFolder(self.path) if self.kind == "run" else None
        if live and self.run is None:
            raise ValueError(f"live is for the folder of a run, and {path} is a log; leave out --live")
        if reading is not None and reading.given and self.run is not None:
            raise ValueError(f"{next(iter(reading.given))} is only for a log, and {path} is a run; leave it out")
        if self.run is not None and model is not None:
            raise ValueError(f"model is {model}, but {path} is a run, which has its own model; give a log instead")
        self._reading = reading or LogOptions()
        self._loaded: Representation | None = None  # the model of --model
        if self.run is None:
            self._open_log()
        self.follows = self.run is not None and (live or self.run.state != "complete")
        self._lock = threading.Lock()
        self._made = None if self.run is None else self.run.made  # time of the model that all below belongs to
        self._drawing: Drawing | None = None
        self._log: Task[Log] | None = None
        self._work: LogWork | None = None
        self._play: Task[Play] | None = None
        self._ground: tuple[Any, Ground] | None = None  # used again after a retraining: OpenGL stays in its thread
        self.player = ThreadPoolExecutor(1, thread_name_prefix="play")  # OpenGL is bound to one thread

    def _open_log(self) -> None:
        """Refuse a log, a model, or a pair of them, that cannot be used. Options that are not given are the run's."""
        if self.model is not None:
            from palpate.representation import load

            if kind_of(self.model) != "run":
                raise ValueError(f"model is {self.model}, which is neither a run nor a saved model; give its folder")
            self._loaded = load(self.model)
            if not is_triples(self.path):
                self._reading = replace(self._reading, **self._reading.lacks(RunFolder(self.model).reading))
        triples = require_log(self.path, self._reading)
        if self._loaded is not None and triples is not None:
            from palpate.viewer.answers import require_fit

            require_fit(self._loaded, triples)

    @property
    def command(self) -> list[str]:
        """The command that opens this page again."""
        options = {"model": self.model, **self._reading.given}
        given = [(f"--{name}", str(value)) for name, value in options.items() if value is not None]
        return ["palpate", "view", str(self.path), *chain.from_iterable(given), *(["--live"] if self.live else [])]

    @property
    def drawing(self) -> "Drawing":
        """The model and the figures; the first call imports torch."""
        from palpate.viewer.drawing import Drawing

        with self._lock:
            if self._drawing is None:
                assert self.run is not None
                self._drawing = Drawing(self.run)
            return self._drawing

    def _renew(self) -> None:
        """Forget what belongs to an older model than the run's, and the errors from before there was one."""
        made = self.run.made if self.run is not None and self.follows else None
        if made is None or made == self._made:
            return
        self._made = made
        self._end_ranking()
        self._log = self._work = self._play = None

    def _end_ranking(self) -> None:
        if self._work is not None and self._work.ranking is not None:
            self._work.ranking.end()

    def retry(self) -> None:
        """Forget errors, so that a page that is loaded again tries again."""
        with self._lock:
            if self._log is not None and self._log.error:
                self._log = None
            if self._play is not None and self._play.error:
                self._play = None

    @property
    def log(self) -> "Task[Log]":
        """The log, with the present model. A page asks again, and shows the new task after a retraining."""
        with self._lock:
            self._renew()
            if self._log is None:
                self._log = Task(self._make_log)
            return self._log

    def _make_log(self) -> "Log":
        from palpate.viewer.drawing import Source, source_of
        from palpate.viewer.log import Log

        if self.run is None:
            known = opened_with_truth(self.path)
            if known is not None:
                return Log(known.transitions, self._loaded, known.truth, self._reading.group)
            return Log(opened(self.path, self._reading), self._loaded, group=self._reading.group)
        path = self.run.data or self.run.test
        labelled, triples = (None, None) if path is None else (opened_with_truth(path), None)
        if labelled is None:
            source = Source(None, opened(path, self.run.reading), "") if path is not None else source_of(self.run)
            labelled, triples = source.labelled, source.triples
        if labelled is not None:
            return Log(labelled.transitions, self._model(), labelled.truth)
        if triples is None:
            raise ValueError("the run's data are not on this machine; palpate view FILE shows a log without a run")
        return Log(triples, self._model())

    def _model(self) -> Any:
        """The present model of the run, from the drawing's thread if that has loaded it."""
        from palpate.representation import load

        assert self.run is not None
        drawing = self.drawing
        return drawing.model if drawing.model is not None and drawing.made == self.run.made else load(self.run.path)

    def _of(self, log: "Log") -> LogWork:
        if self._work is None or self._work.log is not log:
            self._end_ranking()
            self._work = LogWork(log)
        return self._work

    def ranking(self, log: "Log") -> "Ranking | None":
        """The lists of a log with a model. The first call starts to compute them."""
        from palpate.viewer.ranking import Ranking

        with self._lock:
            work = self._of(log)
            if work.ranking is None and log.model is not None:
                work.ranking = Ranking(log.model, log.triples)
                work.ranking.start()
            return work.ranking

    def examination(self, log: "Log") -> "Task[Checkup]":
        """The checks of the arrays."""
        with self._lock:
            work = self._of(log)
            if work.examination is None:
                work.examination = Task(lambda: _check(log, probe=False))
            return work.examination

    def checkup(self, log: "Log", *, start: bool = False) -> "Task[Checkup] | None":
        """`palpate check` with its training run, which `start=True` begins."""
        with self._lock:
            work = self._of(log)
            if start and (work.checkup is None or work.checkup.done):
                work.checkup = Task(lambda: _check(log, probe=True))
            return work.checkup

    @property
    def play(self) -> "Task[Play]":
        with self._lock:
            self._renew()
            if self._play is None:
                self._play = Task(lambda: self.player.submit(self._make_play).result())
            return self._play

    def _make_play(self) -> "Play":
        from palpate.viewer.grounds import Streamed, ground
        from palpate.viewer.play import Play

        model = self._model()
        if self._world is not None:
            return Play(model, Streamed(self._world, type(self._world).__name__))
        assert self.run is not None
        recipe = self.run.world
        if self._ground is None or self._ground[0] != recipe:
            self._ground = recipe, ground(recipe)
        return Play(model, self._ground[1])

    def close(self) -> None:
        """End the threads that can be ended."""
        if self._work is not None and self._work.ranking is not None:
            self._work.ranking.stop()
        self.player.shutdown(wait=False, cancel_futures=True)


def _check(log: "Log", *, probe: bool) -> "Checkup":
    from palpate.doctor.check import check

    return check(log.triples, group=log.scene.group, motion=log.scene.motion, probe=probe)
