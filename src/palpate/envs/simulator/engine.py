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
def load(needs: str = "Soccer and Table need MuJoCo") -> ModuleType:
    """The mujoco module; without it the error begins with `needs`.

    `MUJOCO_GL`, which it reads when it is imported, is chosen first unless the user has.
    """
    if not os.environ.get("MUJOCO_GL") and sys.platform == "linux":
        backend = _headless_backend()
        if backend:
            os.environ["MUJOCO_GL"] = backend
    try:
        return demand("mujoco", library="mujoco", extra="soccer", needs=needs)
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
    """EGL where it can open a device, then OSMesa; None leaves the choice to MuJoCo."""
    if _egl_works():
        return "egl"
    for name in ("libOSMesa.so.8", "libOSMesa.so.6", "libOSMesa.so"):
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return "osmesa"
    return None


def _egl_works() -> bool:
    """Whether EGL can initialise a device. MuJoCo cannot be used to try: its first choice is final."""
    try:
        egl = ctypes.CDLL("libEGL.so.1")
    except OSError:
        return False
    egl.eglGetProcAddress.restype = ctypes.c_void_p
    address = [egl.eglGetProcAddress(name) for name in (b"eglQueryDevicesEXT", b"eglGetPlatformDisplayEXT")]
    if not all(address):
        return False
    query = ctypes.CFUNCTYPE(ctypes.c_uint, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(address[0])
    display_of = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p, ctypes.c_void_p)(address[1])
    devices, count = (ctypes.c_void_p * 32)(), ctypes.c_int()
    if not query(len(devices), devices, ctypes.byref(count)):
        return False
    platform_device = 0x313F  # EGL_PLATFORM_DEVICE_EXT
    for device in devices[: count.value]:
        display = display_of(platform_device, device, None)
        if display and egl.eglInitialize(ctypes.c_void_p(display), None, None):
            egl.eglTerminate(ctypes.c_void_p(display))
            return True
    return False
