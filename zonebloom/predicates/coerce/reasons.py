"""The error for a literal that does not convert exactly, and the result type of a conversion."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from zonebloom.reasons import ReasonCode

if TYPE_CHECKING:
    from numpy.typing import NDArray

Part: TypeAlias = tuple[pa.Array, int]
"""Values of the column's storage type, and the number of literals out of its range."""

_SHOWN_LETTERS = 80


class MisfitError(Exception):
    """A literal does not convert exactly, so the whole fit prunes nothing."""

    def __init__(self, message: str, code: ReasonCode = ReasonCode.TYPE_MISMATCH) -> None:
        super().__init__(message)
        self.code = code


def misfit(source: pa.Array, target: pa.DataType, where: NDArray[np.bool_] | None = None) -> MisfitError:
    """The error for the first of `source`, or the first of it at which `where` is true."""
    first = 0 if where is None else int(np.flatnonzero(where)[0])
    shown = " ".join(source.slice(first, 1).to_string().strip("[]").split())  # as_py() fails on years past 9999
    shown = f"{shown[:77]}..." if len(shown) > _SHOWN_LETTERS else shown
    return MisfitError(f"a literal must convert exactly to {target}, got {shown} of type {source.type}")


def nan_misfit() -> MisfitError:
    """The error for a NaN among the literals."""
    return MisfitError("a literal must not be NaN, whose bit patterns are many", ReasonCode.NAN_LITERAL)
