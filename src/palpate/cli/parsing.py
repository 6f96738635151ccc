"""The parser's error boxes as one line."""

import difflib
import io
import re
from collections.abc import Iterator
from contextlib import redirect_stderr
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import tyro

COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RULE = "─-╰╯│ "  # between the sections of a box, in Unicode or ASCII
FRAME = re.compile(r"^(│ |  )| *│?$")
POSITIONAL = get_args(tyro.conf.Positional[str])[1]


class Misread(Exception):  # noqa: N818 - reads as what it is
    """What is wrong with the command line."""


def parse(verbs: Any, arguments: list[str], description: str) -> Any:
    """The verb with its values; raises `Misread`, or ends the process after `--help`."""
    box = io.StringIO()
    try:
        with redirect_stderr(box):
            verb, unknown = tyro.cli(
                verbs, prog="palpate", description=description, args=arguments, return_unknown_args=True
            )
        if not unknown:
            return verb
        says = ""
    except SystemExit as end:
        if not end.code:
            raise
        says, missing, unknown = _flattened(box.getvalue())
    chosen = next(get_args(each)[0] for each in get_args(verbs) if each.__metadata__[0].name == arguments[0])
    if unknown:
        says = _unknown(unknown[0], list(_flags(chosen)))
    elif missing:
        says = f"missing {', '.join(_named(missing, chosen))}"
    raise Misread(says if says.endswith("?") else f"{says}; see palpate {arguments[0]} --help")


def _unknown(word: str, flags: list[str]) -> str:
    if not word.startswith("-"):
        return f"unexpected {word!r}"
    name = word.split("=")[0].strip("-").replace("_", "-")
    near = difflib.get_close_matches(name, flags, 1)
    return f"unknown option --{name}" + (f"; did you mean --{near[0]}?" if near else "")


def _flags(verb: Any) -> Iterator[str]:
    """The options of a verb, those of the settings inside it too."""
    hints = get_type_hints(verb)
    for each in fields(verb):
        yield from _flags(hints[each.name]) if is_dataclass(hints[each.name]) else [each.name.replace("_", "-")]


def _named(missing: list[str], verb: Any) -> list[str]:
    """The names of missing options and positional arguments; for the latter the parser gives only types."""
    hints = get_type_hints(verb, include_extras=True)
    words = [name.upper() for name, hint in hints.items() if POSITIONAL in getattr(hint, "__metadata__", ())]
    flags = [each for each in missing if each.startswith("-")]
    return words[len(words) - (len(missing) - len(flags)) :] + flags


def _flattened(box: str) -> tuple[str, list[str], list[str]]:
    """The text of a box without its frame and help, the missing options, and the unknown ones."""
    title, *lines = COLOUR.sub("", box).splitlines()
    sections: list[list[str]] = [[]]
    for line in lines:
        if line.strip(RULE):
            sections[-1].append(FRAME.sub("", line))
        else:
            sections.append([])
    sections = [section for section in sections if section]
    says = " ".join(line.strip() for line in sections[0])
    says = re.sub(r"^Error parsing (\S*__\S*: )?", "", says).removesuffix(".")
    if len(sections) > 1 and sections[1][0] == "Got errors:":  # one for None, then one for the type of the option
        reason = " ".join(line.strip() for line in sections[1]).rpartition("- <class ")[2].partition(": ")[2]
        says = f"{says.partition(': ')[0]}: {reason}"
    if "Required options" not in title:
        return says[:1].lower() + says[1:], [], []
    # Names are indented by four spaces, their help by more.
    names = [[line.strip() for line in section if re.match(r" {4}\S", line)] for section in sections]
    return says, names[0], names[1] if any("Unrecognized" in line for line in sections[1]) else []
