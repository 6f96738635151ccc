"""Command-line options from dataclasses: a field is an option, and the string below the field is its help text.

A field that is itself a dataclass contributes its own fields, under a heading of their own. `--help` shows the options
named in the verb's `SHOWN`, or all of them; `--help-all` always shows all. A verb with the option `config` reads a
file of settings; `REPLACES` names the settings of the file that an option on the command line drops.
"""

import argparse
import ast
import difflib
import inspect
import re
import shutil
import sys
import textwrap
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from palpate.spelling import did_you_mean

T = TypeVar("T")
Positional = Annotated[T, "positional"]

WIDEST = 100  # columns of a help text
NAMES = {int: "INT", float: "NUMBER", str: "TEXT", Path: "PATH"}
NOT_IN_FILES = ("config", "resume", "force")


class UsageError(Exception):
    """A command line that cannot be parsed; the message is one line."""


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a verb."""

    name: str
    kind: Any  # its type, without None
    default: Any  # MISSING if a value is required
    help: str
    group: str | None  # the verb's field that holds the dataclass of this option
    positional: bool
    open: bool  # None is allowed
    words: tuple[str, ...] = ()  # allowed besides values of its type

    @property
    def flag(self) -> str:
        return self.name.upper() if self.positional else f"--{self.name.replace('_', '-')}"

    @property
    def several(self) -> bool:
        return get_origin(self.kind) is tuple

    @property
    def plain(self) -> Any:
        """The type of one value."""
        return get_args(self.kind)[0] if self.several else self.kind

    def explanation(self) -> str:
        if self.positional and get_args(self.kind):
            return f"{', '.join(get_args(self.kind))}. {self.help}"
        shown = self.default is not MISSING and not isinstance(self.default, bool | None) and self.default != ()
        return f"{self.help} (default: {self.default})" if shown else self.help

    def add_to(self, parser: Any, negatable: bool = False) -> None:
        """Declare this option to argparse; a value that is not given stays absent. `negatable`: every truth value has
        its --no- form."""
        more: dict[str, Any] = {"help": self.explanation().replace("%", "%%")}
        if self.positional:
            parser.add_argument(self.name, metavar=self.flag, type=self.read, nargs="?", default=None, **more)
            return
        more |= {"dest": self.name, "default": argparse.SUPPRESS}
        if self.kind is bool:
            both = negatable or self.open or self.default is True
            parser.add_argument(self.flag, action=argparse.BooleanOptionalAction if both else "store_true", **more)
            return
        choices = get_args(self.plain)
        metavar = f"{{{','.join(choices)}}}" if choices else "|".join((NAMES[self.plain], *self.words))
        more |= {"metavar": metavar, "type": self.read}
        if self.several:
            more |= {"nargs": "+", "action": "extend"}
        parser.add_argument(self.flag, **more)

    def read(self, text: str) -> Any:
        """A value from its text."""
        if text in self.words:
            return text
        choices = get_args(self.plain)
        if choices:
            if text not in choices:
                raise argparse.ArgumentTypeError(f"{text!r} is not one of {', '.join(choices)}")
            return text
        if self.plain is Path and not text:
            raise argparse.ArgumentTypeError("'' is not a path")
        try:
            return self.plain(text)
        except ValueError:
            expected = " or ".join(("a whole number" if self.plain is int else "a number", *map(repr, self.words)))
            raise argparse.ArgumentTypeError(f"{text!r} is not {expected}") from None

    def accept(self, value: Any) -> Any:
        """A value from a file, whose types must be right already."""
        if value in self.words:
            return value
        if self.several and isinstance(value, list):
            return tuple(self.read(str(each)) for each in value)
        if self.kind is bool or isinstance(value, bool):
            right = self.kind is bool and isinstance(value, bool)
        elif self.kind is float:
            right = isinstance(value, int | float)
        else:
            right = isinstance(value, int if self.kind is int else str)
        if not right or self.several:
            raise argparse.ArgumentTypeError(f"{value!r} has the wrong type")
        return value if self.kind is bool else self.read(str(value))


class _Parser(argparse.ArgumentParser):
    def __init__(self) -> None:
        super().__init__(add_help=False, allow_abbrev=False)
        self._negative_number_matcher = re.compile(r"-\.?\d")  # a value, also in -1e-3 and -1,0

    def error(self, message: str) -> NoReturn:
        raise UsageError(message.removeprefix("argument "))


def parse(verb: type[T], program: str, arguments: Sequence[str]) -> T:
    """The verb with its values; raises `UsageError`, or prints help and exits. `program` is what a user types."""
    options = list(options_of(verb))
    single = list({option.name: option for option in reversed(options)}.values())[::-1]  # one may belong to two fields
    end = arguments.index("--") if "--" in arguments else len(arguments)  # no options after it
    for flag, shown in (("--help-all", None), ("--help", _shown(verb)), ("-h", _shown(verb))):
        if flag in arguments[:end]:
            print(help_text(verb, program, single, shown))
            sys.exit(0)
    parser, from_file = _Parser(), any(option.name == "config" for option in options)
    for option in single:
        option.add_to(parser, negatable=from_file)
    found, unknown = parser.parse_known_args([*map(_dashed, arguments[:end]), *arguments[end:]])
    if unknown:
        raise UsageError(_unknown(unknown[0], [option.flag for option in options if not option.positional]))
    given = {key: value for key, value in vars(found).items() if value is not None}
    if "config" in given:
        replaced = {
            name for option, names in getattr(verb, "REPLACES", {}).items() if option in given for name in names
        }
        values = _from_file(given["config"], options)
        given = {name: value for name, value in values.items() if name not in replaced} | given
    missing = [option.flag for option in options if option.default is MISSING and option.name not in given]
    if missing:
        raise UsageError(f"missing {', '.join(missing)}")
    return _built(verb, options, given)


def options_of(verb: Any, group: str | None = None) -> Iterator[Option]:
    """The options of a verb, including those of dataclasses in its fields."""
    hints, texts = get_type_hints(verb, include_extras=True), _texts(verb)
    for each in fields(verb):
        hint = hints[each.name]
        if is_dataclass(hint):
            yield from options_of(hint, each.name)
            continue
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        hint = get_args(hint)[0] if marks else hint
        union = get_origin(hint) in (Union, UnionType)
        kinds = [kind for kind in get_args(hint) if kind is not NoneType] if union else [hint]
        yield Option(
            name=each.name,
            kind=kinds[0],
            default=each.default,
            help=texts.get(each.name, ""),
            group=group,
            positional="positional" in marks,
            open=union and NoneType in get_args(hint),
            words=tuple(word for kind in kinds[1:] for word in get_args(kind)),
        )


def help_text(verb: Any, program: str, options: Sequence[Option], shown: Sequence[str] | None) -> str:
    """The help of a verb: its docstring, then the options, those of a nested dataclass under a heading."""
    words = " ".join(option.flag for option in options if option.positional)
    required = " ".join(
        f"{option.flag} {NAMES.get(option.plain, '')}".strip()
        for option in options
        if option.default is MISSING and not option.positional
    )
    usage = " ".join(filter(None, ("usage:", program, words, required, "[options]")))
    width = min(shutil.get_terminal_size().columns, WIDEST)
    paragraphs = [_filled(text, width) for text in inspect.cleandoc(verb.__doc__).split("\n\n")]
    hints = get_type_hints(verb)
    kept = [option for option in options if shown is None or option.name in shown]
    groups = dict.fromkeys(option.group for option in kept) if shown is None else {None: None}
    sections = []
    for group in groups:
        title = f"{inspect.cleandoc(hints[group].__doc__).splitlines()[0]}\n" if group else ""
        members = [option for option in kept if shown is not None or option.group == group]
        sections.append(title + _listed(members, width))
    if len(kept) < len(options):
        sections.append(f"{program} --help-all shows {len(options) - len(kept)} more options.")
    return "\n\n".join([usage, *paragraphs, *sections])


def _listed(options: Sequence[Option], width: int) -> str:
    parser = argparse.ArgumentParser(
        add_help=False, usage="", formatter_class=lambda prog: argparse.HelpFormatter(prog, 2, 26, width)
    )
    section = parser.add_argument_group()
    for option in options:
        option.add_to(section)
    return parser.format_help().partition("\n\n")[2].strip("\n")


def _filled(text: str, width: int) -> str:
    """A paragraph within the width; an indented one, such as a command, as it is."""
    return text if text.startswith(" ") else textwrap.fill(" ".join(text.split()), width)


def _shown(verb: Any) -> Sequence[str] | None:
    return getattr(verb, "SHOWN", None)


def _texts(verb: Any) -> dict[str, str]:
    """The string below each field."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(verb))).body
    assert isinstance(tree, ast.ClassDef)
    texts, last = {}, None
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and last is not None:
            texts[last] = " ".join(str(node.value.value).split())
        last = node.target.id if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) else None
    return texts


def _dashed(word: str) -> str:
    """An option with dashes in its name, as in --batch-size=64, if it was written with underscores."""
    name, equals, value = word.partition("=")
    return f"{name.replace('_', '-')}{equals}{value}" if word.startswith("--") else word


def _unknown(word: str, flags: Sequence[str]) -> str:
    if not word.startswith("-"):
        return f"unexpected {word!r}"
    name = word.partition("=")[0].lstrip("-").encode("unicode_escape").decode()  # an error is one line
    near = difflib.get_close_matches(name, [flag.lstrip("-") for flag in flags], 1)
    return f"unknown option --{name}" + (f"; did you mean --{near[0]}?" if near else "")


def _from_file(path: Path, options: Sequence[Option]) -> dict[str, Any]:
    """The values in a TOML file, by the names of the options."""
    try:
        with path.open("rb") as file:
            values = tomllib.load(file)
    except FileNotFoundError as error:
        raise UsageError(f"there is no file {path}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is not TOML: {error}") from error
    known = {option.name: option for option in options if option.name not in NOT_IN_FILES}
    found = {}
    for key, value in values.items():
        if key in NOT_IN_FILES:
            raise UsageError(f"{path}: {key} is allowed only on the command line, as --{key}")
        if key not in known:
            raise UsageError(f"{path}: unknown setting {key!r}{did_you_mean(key, known)}")
        try:
            found[key] = known[key].accept(value)
        except argparse.ArgumentTypeError as error:
            raise UsageError(f"{path}: {key}: {error}") from error
    return found


def _built(verb: type[T], options: Sequence[Option], given: Mapping[str, Any]) -> T:
    hints = get_type_hints(verb)
    values: dict[str, Any] = {}
    for group in dict.fromkeys(option.group for option in options):
        own = {option.name: given[option.name] for option in options if option.group == group and option.name in given}
        own = {key: tuple(value) if isinstance(value, list) else value for key, value in own.items()}
        values |= {group: hints[group](**own)} if group else own
    return verb(**values)
