"""The error for a literal that does not convert exactly, and the result type of a conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.ground.reasons import ReasonCode

if TYPE_CHECKING:
    from numpy.typing import NDArray

Part: TypeAlias = "tuple[pa.Array, NDArray[np.bool_] | None]"
"""Values of the column's storage type, in order; and whether each literal has one, or is out of the type's range. None:
all have one."""

_SHOWN_LETTERS = 80


class MisfitError(Exception):
    """A literal does not convert exactly, so the whole fit prunes nothing.

    `where` says of each literal whether it is a misfit; None if it is not known.
    """

    def __init__(
        self, message: str, where: NDArray[np.bool_] | None = None, code: ReasonCode = ReasonCode.TYPE_MISMATCH
    ) -> None:
        super().__init__(message)
        self.where = where
        self.code = code


def misfit(source: pa.Array, target: pa.DataType, where: NDArray[np.bool_] | None = None) -> MisfitError:
    """The error for those of `source` at which `where` is true, or for all; its message shows the first."""
    where = np.ones(len(source), np.bool_) if where is None else where
    first = int(np.flatnonzero(where)[0])
    shown = " ".join(source.slice(first, 1).to_string().strip("[]").split())  # as_py() fails on years past 9999
    shown = f"{shown[:77]}..." if len(shown) > _SHOWN_LETTERS else shown
    return MisfitError(f"a literal must convert exactly to {target}, got {shown} of type {source.type}", where)


def nan_misfit(where: NDArray[np.bool_]) -> MisfitError:
    """The error for literals that are NaN."""
    return MisfitError("a literal must not be NaN, whose bit patterns are many", where, ReasonCode.NAN_LITERAL)
