"""The command line: parse, print, exit. A verb is a file; heavy imports are inside it."""

import difflib
import os
import shlex
import sys
import warnings
from typing import Annotated, get_args

import tyro

from palpate import __version__
from palpate.cli.bench import Bench
from palpate.cli.check import Check
from palpate.cli.collect import Collect
from palpate.cli.demo import Demo
from palpate.cli.evaluate import Evaluate
from palpate.cli.export import Export
from palpate.cli.parsing import Misread, parse
from palpate.cli.reproduce import Reproduce
from palpate.cli.train import Train

Verb = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[Collect, tyro.conf.subcommand("collect")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Train, tyro.conf.subcommand("train")]
    | Annotated[Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[Export, tyro.conf.subcommand("export")]
    | Annotated[Reproduce, tyro.conf.subcommand("reproduce")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)

OF_SEVERAL = ("--watch", "--truth", "--option", "--worlds", "--methods")  # flags with several values
DESCRIPTION = "Learn where an agent and an object are, in metric coordinates, from what it saw and how it moved."


def main() -> None:
    """Exit 0: done. 1: our bug, with its traceback. 2: the user's mistake, in one line. 3: `check` found blocking
    problems. 130: stopped by Ctrl-C."""
    arguments = sys.argv[1:] or ["--help"]
    if arguments == ["--version"]:
        print(f"palpate {__version__}")
        return
    warnings.formatwarning = lambda message, *where: f"palpate: {message}\n"
    try:
        _demand_verb(arguments[0])
        _demand_flags(arguments)
        verb = parse(Verb, arguments, DESCRIPTION)
        verb()
    except Misread as error:
        print(f"palpate {arguments[0]}: {error}", file=sys.stderr)
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


def _demand_verb(word: str) -> None:
    verbs = [verb.__metadata__[0].name for verb in get_args(Verb)]
    if word not in (*verbs, "--help", "-h") and not word.startswith("--tyro"):  # which prints completions for a shell
        near = difflib.get_close_matches(word, verbs, 1)
        allowed = f"did you mean {near[0]!r}?" if near else f"allowed are {', '.join(verbs)}"
        raise ValueError(f"{word!r} is not a verb of palpate; {allowed}")


def _demand_flags(arguments: list[str]) -> None:
    """Refuse two common mistakes: a world without --env, as in `collect`, and a repeated flag of several values, whose
    first values would be lost."""
    for flag in OF_SEVERAL:
        if arguments.count(flag) > 1:
            raise ValueError(f"{flag} is given twice; give it once, followed by all its values")
    if arguments[0] == "train" and len(arguments) > 1 and not arguments[1].startswith("-"):
        raise ValueError(f"train takes a world as --env {arguments[1]}, a file as --data {arguments[1]}")


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
