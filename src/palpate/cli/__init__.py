"""The command line: parse, print, exit. Each verb is a file that delays heavy imports."""

import os
import shlex
import sys

from palpate import __version__
from palpate.cli.bench import Bench
from palpate.cli.check import Check
from palpate.cli.collect import Collect
from palpate.cli.demo import Demo
from palpate.cli.encode import Encode
from palpate.cli.evaluate import Evaluate
from palpate.cli.explore import Explore
from palpate.cli.export import Export
from palpate.cli.outcome import short_warnings
from palpate.cli.parsing import UsageError, parse
from palpate.cli.reproduce import Reproduce
from palpate.cli.train import Train
from palpate.cli.view import View
from palpate.spelling import did_you_mean

VERBS = {
    "demo": Demo,
    "collect": Collect,
    "explore": Explore,
    "check": Check,
    "train": Train,
    "evaluate": Evaluate,
    "encode": Encode,
    "view": View,
    "export": Export,
    "reproduce": Reproduce,
    "bench": Bench,
}
DESCRIPTION = "Learn metric positions of an agent and an object from what the agent saw and how it moved."


def main() -> None:
    """Run one verb. Exit codes: 0 done, 1 our bug, with its traceback, 2 the user's mistake, in one line, 3 `check`
    found blocking problems, 130 interrupted."""
    arguments = sys.argv[1:] or ["--help"]
    short_warnings()
    try:
        if arguments[0] in ("--help", "--help-all", "-h", "--version"):
            print(f"palpate {__version__}" if arguments[0] == "--version" else _overview())
        else:
            parsed(arguments)()
    except UsageError as error:
        hint = "" if str(error).endswith("?") else f"; see palpate {arguments[0]} --help"
        print(f"palpate {arguments[0]}: {error}{hint}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("palpate: stopped", file=sys.stderr)
        sys.exit(130)
    except BrokenPipeError:  # the reader of our output has closed it; nothing may be flushed to it at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError) as error:
        if os.environ.get("PALPATE_TRACEBACK"):
            raise
        print(f"palpate: {_one_line(error)}", file=sys.stderr)
        sys.exit(2)
    except Exception as error:
        _explain(error, arguments)


def parsed(
    arguments: list[str],
) -> Demo | Collect | Explore | Check | Train | Evaluate | Encode | View | Export | Reproduce | Bench:
    """The verb of a command line, with its options."""
    name, *rest = arguments
    if name not in VERBS:
        meant = did_you_mean(name, VERBS, f"allowed are {', '.join(VERBS)}")
        raise ValueError(f"{name!r} is not a verb of palpate{meant}")
    if name == "train" and rest and not rest[0].startswith("-"):  # as in `palpate collect`
        raise ValueError(f"train takes a world as --env {rest[0]}, a file as --data {rest[0]}")
    return parse(VERBS[name], f"palpate {name}", rest)


def _overview() -> str:
    """The verbs with the first sentence of their docstrings."""
    verbs = "\n".join(f"  {name:<11}{(verb.__doc__ or '').partition('.')[0]}" for name, verb in VERBS.items())
    return f"usage: palpate VERB [options]\n\n{DESCRIPTION}\n\n{verbs}\n\npalpate VERB --help shows its options."


def _explain(error: Exception, arguments: list[str]) -> None:
    """Explain interruptions and mistakes, and exit; any other error is raised again."""
    from palpate.collecting.parts import Stopped
    from palpate.reproduce.crew import Halted
    from palpate.training.loop import Interrupted
    from palpate.training.notes import NonFiniteLoss
    from palpate.workers import WorkerError

    if isinstance(error, Halted):
        again = shlex.join(["palpate", *(a for a in arguments if a != "--force")])
        print(f"palpate: {error}. To continue:\n  {again}", file=sys.stderr)
        sys.exit(130)
    if isinstance(error, WorkerError):
        print(f"{error.trace}palpate: {_one_line(error)}", file=sys.stderr)
        sys.exit(1)
    resume = [] if arguments[0] == "reproduce" else ["--resume"]  # which resumes by itself
    if isinstance(error, Interrupted | Stopped):
        again = shlex.join(["palpate", *(a for a in arguments if a not in ("--resume", "--force")), *resume])
        print(f"palpate: {error}. To continue:\n  {again}", file=sys.stderr)
        sys.exit(130)
    # An extra that is not installed; any other missing module is our bug.
    extra = isinstance(error, ModuleNotFoundError) and "pip install 'palpate[" in str(error)
    if extra or isinstance(error, NonFiniteLoss) or type(error).__module__.startswith("gymnasium.error"):
        print(f"palpate: {error}", file=sys.stderr)
        sys.exit(2)
    raise error


def _one_line(error: Exception) -> str:
    return " ".join("; ".join([str(error), *getattr(error, "__notes__", ())]).split())
