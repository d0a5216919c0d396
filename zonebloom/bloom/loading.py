"""When compiled kernels are worth loading: Numba takes 0.3 s once, and Python and NumPy answer a few keys in less.

A process loads them when its answers without them, those given and the one asked for, would have paid for it: so no
process waits for more than about twice the time that the better choice would have taken.
"""

from __future__ import annotations

import sys

_LOADING_SECONDS = 0.2
"""CPU time of importing Numba and the first call of a kernel, where its machine code is cached: 0.2 to 0.4 s."""
_seconds_without = 0.0


def is_worth_loading(kernels: str, seconds: float) -> bool:
    """Whether the module `kernels` is loaded, or should be for an answer that takes `seconds` without it."""
    global _seconds_without  # noqa: PLW0603 - what a process has loaded is of the process too
    if kernels in sys.modules:
        return True
    _seconds_without += seconds
    return _seconds_without > _LOADING_SECONDS
