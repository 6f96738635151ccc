"""What made a result: hardware, torch, palpate and its commit."""

import os
import platform
import re
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
        where = Path(palpate.__file__).parent
        return subprocess.run(["git", *arguments], cwd=where, capture_output=True, text=True, check=True).stdout.strip()

    try:
        git("ls-files", "--error-unmatch", "__init__.py")  # the package may lie in a checkout of something else
        return git("describe", "--always", "--dirty", "--exclude", "*")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


@cache
def hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    listing = Path("/proc/cpuinfo")  # Linux
    model = re.search(r"model name\s*: (.*)", listing.read_text(encoding="utf-8")) if listing.exists() else None
    return f"{model[1] if model else platform.processor() or platform.machine()}, {os.cpu_count()} cores"
