"""Row addresses: ``fragment_id << 32 | row offset``, a uint64.

Spec: specs/pruning.md#row-selection
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

Addresses: TypeAlias = "npt.NDArray[np.uint64]"

MAX_FRAGMENT_ID = 2**32 - 1
"""The largest fragment id: the upper half of a row address."""
MAX_ROWS = 2**32 - 1
"""The largest ``stop``, so the most rows of one fragment; one less than 2**32, so that the address of ``stop`` never
reaches the next fragment and ranges of two fragments are never adjacent."""
