"""Optional libraries, which an extra of palpate installs."""

import importlib
from types import ModuleType


def demand(module: str, *, library: str, extra: str, needs: str) -> ModuleType:
    """Import a module. If `library` is not installed, the error begins with `needs` and names the extra to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] != library:
            raise
        advice = f"which is not installed; pip install 'palpate[{extra}]'"
        raise ModuleNotFoundError(f"{needs}, {advice}", name=error.name) from error
