"""The command line's parser: values, files of settings, one-line errors, help that a newcomer can read."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest

from palpate import cli
from palpate.cli.parsing import Positional, UsageError, help_text, options_of, parse
from palpate.config import ObjectiveConfig, TrainingConfig

Command = Callable[..., tuple[int, str, str]]


@dataclass(frozen=True, kw_only=True)
class Inner:
    """Inner settings."""

    rate: float | None = None
    """Speed, in % of
    the usual one."""


@dataclass(frozen=True, kw_only=True)
class Verb:
    """Do something. Then stop.

      palpate verb x

    This is all.
    """

    SHOWN: ClassVar = ("place", "count", "rate")

    place: Positional[Path]
    """Where."""
    count: int = 3
    """How many."""
    kind: Literal["a", "b"] | None = None
    words: tuple[str, ...] = ()
    few: int | Literal["auto"] = 1
    quiet: bool = False
    careful: bool = True
    exact: bool | None = None
    config: Path | None = None
    inner: Inner = field(default_factory=Inner)


def read(text: str) -> Verb:
    return parse(Verb, "palpate verb", text.split())


class TestValues:
    def test_defaults(self) -> None:
        assert read("x") == Verb(place=Path("x"))

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("--count 5", {"count": 5}),
            ("--count=-5", {"count": -5}),
            ("--kind b", {"kind": "b"}),
            ("--few 2", {"few": 2}),
            ("--few auto", {"few": "auto"}),
            ("--words a b --words c", {"words": ("a", "b", "c")}),
            ("--quiet", {"quiet": True}),
            ("--no-careful", {"careful": False}),
            ("--exact", {"exact": True}),
            ("--no-exact", {"exact": False}),
            ("--rate 1e-3", {"inner": Inner(rate=1e-3)}),
            ("--rate -1e-3", {"inner": Inner(rate=-1e-3)}),
            ("--words -1,0 -.5", {"words": ("-1,0", "-.5")}),
            ("--quiet --no-quiet", {"quiet": False}),
        ],
    )
    def test_given(self, text: str, expected: dict[str, Any]) -> None:
        assert read(f"x {text}") == Verb(place=Path("x"), **expected)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "missing PLACE"),
            ("x y", "unexpected 'y'"),
            ("x --cuont 3", "unknown option --cuont; did you mean --count?"),
            ("x --something", "unknown option --something"),
            ("x --coun 3", "unknown option --coun; did you mean --count?"),
            ("x --count", "--count: expected one argument"),
            ("x --count 2.5", "--count: '2.5' is not a whole number"),
            ("x --rate fast", "--rate: 'fast' is not a number"),
            ("x --kind c", "--kind: 'c' is not one of a, b"),
            ("x --few many", "--few: 'many' is not a whole number or 'auto'"),
            ("x --config=", "--config: '' is not a path"),
        ],
    )
    def test_mistakes(self, text: str, message: str) -> None:
        with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
            read(text)

    def test_underscores_are_dashes(self) -> None:
        assert parse(TrainingConfig, "x", ["--batch_size=8"]).batch_size == 8

    def test_two_dashes_end_the_options(self) -> None:
        assert read("--quiet -- --a_b") == Verb(place=Path("--a_b"), quiet=True)
        assert read("-- --help") == Verb(place=Path("--help"))


class TestFile:
    def test_values_and_precedence(self, tmp_path: Path) -> None:
        path = tmp_path / "run.toml"
        path.write_text('place = "p"\ncount = 7\nrate = 2\nwords = ["a"]\nquiet = true\n')
        expected = {"place": Path("p"), "inner": Inner(rate=2.0), "words": ("a",), "quiet": True, "config": path}
        assert read(f"--config {path}") == Verb(count=7, **expected)
        assert read(f"--config {path} --count 8") == Verb(count=8, **expected)
        assert read(f"--config {path} --no-quiet") == Verb(count=7, **expected | {"quiet": False})

    def test_a_word_in_place_of_a_number(self, tmp_path: Path) -> None:
        (tmp_path / "run.toml").write_text('few = "auto"\n')
        assert read(f"x --config {tmp_path / 'run.toml'}").few == "auto"
        assert parse(cli.Train, "x", ["--out", "y", "--objects", "auto"]).scene.objects == "auto"

    def test_another_source_of_data_replaces_that_of_the_file(self, tmp_path: Path) -> None:
        def train(text: str, *words: str) -> tuple[Any, ...]:
            (tmp_path / "run.toml").write_text(text)
            read = parse(cli.Train, "x", ["--config", str(tmp_path / "run.toml"), "--out", "y", *words])
            return read.data, read.env, read.size, read.contact_share

        world = 'env = "a"\nsize = 32\ncontact_share = 0.2\n'
        assert train(world, "--data", "log.h5") == (Path("log.h5"), None, None, None)
        assert train(world, "--env", "b") == (None, "b", 32, 0.2)
        assert train('data = "log.h5"\n', "--env", "b", "--size", "16") == (None, "b", 16, None)

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("cuont = 3", "unknown setting 'cuont'; did you mean 'count'?"),
            ("count = 2.5", "count: 2.5 has the wrong type"),
            ("count = true", "count: True has the wrong type"),
            ("quiet = 1", "quiet: 1 has the wrong type"),
            ('kind = "c"', "kind: 'c' is not one of a, b"),
            ('words = "a"', "words: 'a' has the wrong type"),
            ('few = "many"', "few: 'many' has the wrong type"),
            ("count", "is not TOML"),
            ('config = "other.toml"', "config is allowed only on the command line, as --config"),
            ("resume = true", "resume is allowed only on the command line, as --resume"),
            ('place = ""', "place: '' is not a path"),
        ],
    )
    def test_mistakes(self, tmp_path: Path, text: str, message: str) -> None:
        (tmp_path / "run.toml").write_text(text)
        with pytest.raises(UsageError, match=re.escape(message)):
            read(f"x --config {tmp_path / 'run.toml'}")


class TestHelp:
    def test_the_short_help_shows_some_options(self) -> None:
        shown = help_text(Verb, "palpate verb", list(options_of(Verb)), Verb.SHOWN)
        usage, says, example, *_ = shown.split("\n\n")
        assert (usage, says) == ("usage: palpate verb PLACE [options]", "Do something. Then stop.")
        assert example == "  palpate verb x"
        assert re.search(r"--count INT +How many. \(default: 3\)", shown)
        assert "Speed, in % of the usual one." in shown
        assert "--quiet" not in shown
        assert shown.endswith("palpate verb --help-all shows 7 more options.")

    def test_the_full_help_groups_all_options(self) -> None:
        shown = help_text(Verb, "palpate verb", list(options_of(Verb)), None)
        assert all(option.flag in shown for option in options_of(Verb))
        assert shown.index("--quiet") < shown.index("Inner settings.") < shown.index("--rate")

    @pytest.mark.parametrize("verb", cli.VERBS)
    def test_of_every_verb(self, command: Command, verb: str) -> None:
        code, out, err = command(verb, "--help")
        assert (code, err) == (0, "")
        assert len(out.splitlines()) <= 45
        assert max(map(len, out.splitlines())) <= 80
        assert "None" not in out
        code, out, _ = command(verb, "--help-all")
        assert code == 0
        assert all(option.help for option in options_of(cli.VERBS[verb]))

    def test_train_has_every_setting(self, command: Command) -> None:
        out = command("train", "--help-all")[1]
        settings = [each for config in (ObjectiveConfig, TrainingConfig) for each in fields(config)]
        assert all(f"--{each.name.replace('_', '-')}" in out for each in settings)
        assert "so2: turns about a pivot" in " ".join(out.split())  # the help of logs about --group is shorter

    def test_overview(self, command: Command) -> None:
        code, out, _ = command("--help")
        assert code == 0
        assert command("--help-all")[:2] == (0, out)
        assert all(f"\n  {verb} " in out for verb in cli.VERBS)
        assert max(map(len, out.splitlines())) <= 100


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("train --out x --stps 3", "palpate train: unknown option --stps; did you mean --steps?"),
        ("train", "palpate train: missing --out; see palpate train --help"),
        ("train --out x --log-every 0", "palpate: log_every is 0; allowed is 1 to 2**62"),
        ("train --out x --radius -1", "palpate: radius is -1.0; allowed is more than 0"),
        ("foo", "palpate: 'foo' is not a verb of palpate; allowed are demo, collect, explore"),
        ("--foo", "palpate: '--foo' is not a verb of palpate; allowed are demo"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(command: Command, arguments: str, says: str) -> None:
    code, out, err = command(*arguments.split())
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(says)
