"""MuJoCo, imported at first use, with OpenGL that needs no screen."""

import ctypes
import functools
import importlib
import os
import sys
from types import ModuleType
from typing import Any

from palpate.extras import demand

INSTALL = (
    "on Debian and Ubuntu install libegl1 and libgl1-mesa-dri (EGL, also in software), or libosmesa6 with "
    "MUJOCO_GL=osmesa"
)


_opened_by: set[int] = set()  # processes that have opened OpenGL; it would hang in a fork of them


@functools.cache
def load() -> ModuleType:
    """The mujoco module. `MUJOCO_GL`, which it reads when it is imported, is chosen first unless the user has."""
    if not os.environ.get("MUJOCO_GL") and sys.platform == "linux":
        backend = _headless_backend()
        if backend:
            os.environ["MUJOCO_GL"] = backend
    try:
        return demand("mujoco", library="mujoco", extra="soccer", needs="the soccer world needs MuJoCo")
    except ModuleNotFoundError:
        raise
    except (ImportError, AttributeError, OSError, RuntimeError) as error:
        raise OSError(_no_backend(error)) from error


def open_gl(model: Any, width: int, height: int) -> tuple[Any, Any]:
    """An OpenGL context of the chosen backend, made current, and the model's textures and meshes in it."""
    mujoco, backend = load(), os.environ.get("MUJOCO_GL", "").lower().strip()
    if _opened_by and os.getpid() not in _opened_by:
        raise OSError(
            "this process was forked from one that had drawn pictures, which OpenGL does not survive: spawn it "
            "instead (Gymnasium's vectors: vector_kwargs={'context': 'spawn'}), or draw nothing before"
        )
    _opened_by.add(os.getpid())
    try:
        # By its own module: the user may have imported mujoco before `load` chose.
        source = importlib.import_module(f"mujoco.{backend}") if backend in ("egl", "osmesa") else mujoco
        window = source.GLContext(width, height)
        window.make_current()
        return window, mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_50)
    except Exception as error:  # each backend has errors of its own
        raise OSError(_no_backend(error)) from error


def _no_backend(error: Exception) -> str:
    backend = os.environ.get("MUJOCO_GL", "")
    return f"no picture can be drawn: MUJOCO_GL is {backend!r}, which fails with {error!r}; {INSTALL}"


def _headless_backend() -> str | None:
    """EGL, then OSMesa, by the libraries that are installed; None leaves the choice to MuJoCo."""
    for backend, names in (("egl", ("libEGL.so.1",)), ("osmesa", ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so"))):
        for name in names:
            try:
                ctypes.CDLL(name)
            except OSError:
                continue
            return backend
    return None
