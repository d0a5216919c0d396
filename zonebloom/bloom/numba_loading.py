"""When compiled kernels are worth loading: Numba takes 0.3 s once, and Python and NumPy answer a few keys in less.

A process imports Numba once the time without it, that of the next answer included, exceeds the cost of importing it.
So no process takes more than about twice the time of the better choice.
"""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from math import inf
from types import ModuleType

_LOADING_SECONDS = 0.2
"""CPU time of importing Numba and the first call of a kernel, where its machine code is cached: 0.2 to 0.4 s."""
SECONDS_A_PROBE = 7e-8
"""A pair of a filter and a hash, in NumPy."""
_seconds_without = 0.0
_KERNELS = "zonebloom.bloom.kernels"


@cache
def _is_installed() -> bool:
    from importlib.util import find_spec  # noqa: PLC0415 - few searches ask

    return find_spec("numba") is not None


def is_worth_loading(kernels: str, seconds: float) -> bool:
    """Whether the module `kernels` is loaded, or should be for an answer that takes `seconds` without it."""
    global _seconds_without  # noqa: PLW0603 - what a process has loaded is of the process too
    if kernels in sys.modules:
        return True
    _seconds_without += seconds
    return _seconds_without > _LOADING_SECONDS and _is_installed()


def kernels_to_read(name: str, seconds: float = inf) -> ModuleType:
    """The kernels of module `name` for a search; NumPy's in their place without Numba, or for work of few `seconds`."""
    module = f"{_KERNELS}.{name}"
    return import_module(module if is_worth_loading(module, seconds) else "zonebloom.bloom.kernels_in_numpy")


def compile_seconds() -> float:
    """Seconds that this process has compiled kernels; Numba is not loaded for the answer."""
    return float(sys.modules[_KERNELS].compile_seconds()) if _KERNELS in sys.modules else 0.0
