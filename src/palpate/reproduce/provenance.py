"""What made a result: hardware, torch, palpate and its commit."""

import os
import platform
import subprocess
from functools import cache
from pathlib import Path

import torch

import palpate


def provenance(device: torch.device) -> dict[str, str]:
    """The entries of a run's JSON."""
    versions = {"torch": torch.__version__, "palpate": palpate.__version__}
    return {"hardware": hardware(device), **versions, "commit": commit()}


@cache
def commit() -> str:
    """The commit of this package's source; "unknown" if it is not a git checkout."""

    def git(*arguments: str) -> str:
        try:
            where = Path(palpate.__file__).parent
            done = subprocess.run(["git", *arguments], cwd=where, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return ""
        return done.stdout.strip()

    tracked = git("ls-files", "--error-unmatch", "__init__.py")
    return (git("describe", "--always", "--dirty", "--exclude", "*") if tracked else "") or "unknown"


@cache
def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        model = platform.processor() or platform.machine()
    return f"{model}, {os.cpu_count()} cores"
