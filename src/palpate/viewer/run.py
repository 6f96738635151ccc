"""The content of a run's folder, as plain values. It is read each time, because the run may be in progress.

Nothing here imports torch: the page shows this before the model is loaded.
"""

import shlex
from pathlib import Path
from typing import Any, Literal, NamedTuple, final

from palpate.data.logs.options import LogOptions
from palpate.findings import Finding
from palpate.folders import OVERWRITING
from palpate.runlog import FIGURES, RUN, read_log
from palpate.verdicts import judged
from palpate.viewer.described import described
from palpate.viewer.opened import settings_file

State = Literal["gone", "unfinished", "complete"]


class Verdict(NamedTuple):
    """The verdict on a run, for a reader."""

    word: str  # good, doubtful, not to be trusted; or what is known instead
    text: str
    numbers: list[tuple[str, str, str]]  # name, value, what it means
    findings: list[Finding]


@final
class RunFolder:
    """The folder of a run, complete or not."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def working(self) -> Path:
        """Where the latest run is: an overwriting run is made in a folder inside that of the old one."""
        pending = self.path / OVERWRITING
        return pending if (pending / RUN).exists() else self.path

    @property
    def state(self) -> State:
        if not self.path.is_dir():
            return "gone"
        return "complete" if (self.working / "config.json").exists() else "unfinished"

    def readings(self) -> list[dict[str, Any]]:
        """The rows of `metrics.jsonl` so far."""
        try:
            return read_log(self.working / "metrics.jsonl")
        except FileNotFoundError:
            return []

    def version(self) -> tuple[int, int]:
        """Size and time of the readings; they change when a row is added."""
        try:
            stat = (self.working / "metrics.jsonl").stat()
        except OSError:
            return 0, 0
        return stat.st_size, stat.st_mtime_ns

    @property
    def made(self) -> int | None:
        """When the model was made; it changes when a run is overwritten. None before there is a model."""
        try:
            return (self.path / "config.json").stat().st_mtime_ns
        except OSError:
            return None

    def described(self) -> dict[str, Any]:
        """The content of `config.json`, or else of `run.json`; refused if it is not as a run writes it."""
        for name in ("config.json", RUN):
            try:
                return described(self.working / name)
            except FileNotFoundError:
                continue
        return {}

    def progress(self) -> tuple[int, int | None]:
        """Steps done, by the last reading, and steps planned."""
        rows = self.readings()
        planned = self.described().get("training", {}).get("steps")
        return (rows[-1]["step"] if rows else 0), planned

    def verdict(self) -> Verdict:
        """The verdict, estimated without true states."""
        if self.state == "unfinished":
            return Verdict("unfinished", "The run is not complete, so there is no verdict yet.", [], [])
        facts = self.described()
        found = [Finding(**finding) for finding in facts.get("findings", [])]
        quality = facts.get("quality")
        if not quality:
            return Verdict("no verdict", "This method has no contacts, so it is not judged without labels.", [], found)
        return Verdict(quality["verdict"], *judged(quality), found)

    def settings(self) -> list[tuple[str, str, str]]:
        """Name, value and reason of each setting; the reason is empty where none was recorded."""
        facts = self.described()
        reasons = {one["name"]: one["reason"] for one in facts.get("choices", [])}
        model = dict(facts.get("model", {}))
        objective = model.pop("objective", {})
        data = facts.get("data", "")
        rows = {"data": data.get("data", "") if isinstance(data, dict) else data}
        rows |= model | objective | facts.get("training", {})
        return [(name.replace("_", " "), _plain(value), reasons.get(name, "")) for name, value in rows.items()]

    @property
    def toml(self) -> dict[str, Any]:
        return settings_file(self.working / "run.toml")

    @property
    def data(self) -> Path | None:
        """The file that the run learned from, if it is still there."""
        return _there(self.toml.get("data"))

    @property
    def reading(self) -> LogOptions:
        """The options with which the run read its log."""
        return LogOptions.of_run(self.toml)

    @property
    def test(self) -> Path | None:
        """The file of the test triples, if it is still there."""
        return _there(self.toml.get("test"))

    @property
    def world(self) -> dict[str, Any]:
        """The id of the environment that the run's data come from, as `env`, and its options; empty if unknown."""
        world: dict[str, Any] = self.described().get("world", {})
        return world

    def figures(self) -> dict[str, bytes]:
        """The PNG files of the run's report; none if the model is newer, or if there is no report."""
        try:
            made = (self.path / "config.json").stat().st_mtime
            paths = {name: self.path / "figures" / f"{name}.png" for name in FIGURES}
            return {name: path.read_bytes() for name, path in paths.items() if _newer(path, made)}
        except OSError:
            return {}

    def resume(self) -> str | None:
        """The command that continues an unfinished run; None if its data were in memory."""
        if not {"data", "env"} & self.toml.keys():
            return None
        return shlex.join(
            ["palpate", "train", "--config", str(self.working / "run.toml"), "--out", str(self.path), "--resume"]
        )


def _there(name: Any) -> Path | None:
    return Path(name) if name and isinstance(name, str) and Path(name).exists() else None


def _newer(path: Path, time: float) -> bool:
    return path.exists() and path.stat().st_mtime >= time


def _plain(value: Any) -> str:
    if isinstance(value, list):
        return " x ".join(map(str, value))
    return "chosen by the data" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
