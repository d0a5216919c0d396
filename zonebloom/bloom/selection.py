"""Sets of rows as ranges, and a predicate's bounds in three-valued logic.

A ladder:

- a **row address** is ``fragment_id << 32 | row offset``, a uint64;
- a **row range** is half-open, ``[start, stop)``, inside one fragment;
- a `RowSelection` is a set of rows: sorted, disjoint, non-empty, non-adjacent row ranges;
- a `Bounds` has the rows in which a predicate can be TRUE, and the rows in which it can be FALSE.

Set operations cost O(m log n), where m is the smaller number of ranges. They cost O(m + n) only if the result is that
large. NumPy only.

Spec: specs/pruning.md#row-selection.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np

from zonebloom.bloom.addresses import MAX_FRAGMENT_ID, MAX_ROWS
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.ground.reasons import counted

if TYPE_CHECKING:
    import numpy.typing as npt

    from zonebloom.bloom.addresses import Addresses
    from zonebloom.bloom.zones import ZonePositions

_SHOWN_RANGES = 10
"""Number of ranges that a notebook shows."""
_OFFSET_BITS = np.uint64(32)
_OFFSET_MASK = np.uint64(2**32 - 1)


class RowRange(NamedTuple):
    """The rows ``[start, stop)`` of one fragment."""

    fragment_id: int
    start: int
    stop: int


class RowSelection:
    """A set of rows, as sorted, disjoint, non-empty row ranges that are never adjacent inside a fragment.

    Immutable: its arrays cannot be written. Two selections of the same rows are equal.

    Examples
    --------
    >>> selection = RowSelection.from_ranges([(0, 5, 10), (0, 0, 5), (1, 0, 3)])
    >>> list(selection)
    [RowRange(fragment_id=0, start=0, stop=10), RowRange(fragment_id=1, start=0, stop=3)]
    >>> (selection & RowSelection.from_ranges([(0, 8, 99)])).num_rows
    2

    Spec: specs/pruning.md#row-selection.
    """

    __slots__ = ("_ends", "_firsts")

    _firsts: Addresses
    _ends: Addresses

    def __init__(self) -> None:
        """Raise: a selection is made by `empty`, `from_ranges` or `from_arrays`."""
        raise TypeError("a RowSelection must be made by empty(), from_ranges() or from_arrays(), got a direct call")

    @classmethod
    def _trusted(cls, firsts: Addresses, ends: Addresses) -> Self:
        """The selection of address ranges that already satisfy the invariants."""
        self = object.__new__(cls)
        firsts.flags.writeable = False
        ends.flags.writeable = False
        self._firsts = firsts
        self._ends = ends
        return self

    @classmethod
    def empty(cls) -> Self:
        """No row."""
        return cls._trusted(np.empty(0, np.uint64), np.empty(0, np.uint64))

    @classmethod
    def from_ranges(cls, ranges: Iterable[tuple[int, int, int]]) -> Self:
        """The rows of any of `ranges`, each ``(fragment_id, start, stop)``, in any order.

        Raises
        ------
        InvalidArgumentError
            As `from_arrays`.
        """
        rows = list(ranges)
        for row in rows:
            if not hasattr(row, "__len__") or len(row) != len(RowRange._fields):
                raise InvalidArgumentError("a row range must be (fragment_id, start, stop)", got=f"{row!r}")
        fragment_ids, starts, stops = zip(*rows, strict=True) if rows else ((), (), ())
        return cls.from_arrays(fragment_ids, starts, stops)

    @classmethod
    def from_arrays(cls, fragment_ids: Any, starts: Any, stops: Any) -> Self:
        """The rows of any of the ranges ``[starts[i], stops[i])`` of ``fragment_ids[i]``.

        Parameters
        ----------
        fragment_ids, starts, stops
            Integer arrays of equal length, in any order. Overlapping ranges are merged, and empty ranges are dropped.

        Raises
        ------
        InvalidArgumentError
            An array is not a 1-d array of integers, the lengths differ, a start is past its stop, a fragment id exceeds
            `MAX_FRAGMENT_ID`, or a stop exceeds `MAX_ROWS`.
        """
        ids = _unsigned("fragment_ids", fragment_ids, MAX_FRAGMENT_ID)
        lows = _unsigned("starts", starts, MAX_ROWS)
        highs = _unsigned("stops", stops, MAX_ROWS)
        if not len(ids) == len(lows) == len(highs):
            raise InvalidArgumentError(
                "fragment_ids, starts and stops must have one length", got=f"{len(ids)}, {len(lows)} and {len(highs)}"
            )
        backwards = np.flatnonzero(lows > highs)
        if len(backwards):
            i = backwards[0]
            raise InvalidArgumentError(
                "a row range must have start <= stop", got=f"[{lows[i]}, {highs[i]}) of fragment {ids[i]}"
            )
        base = ids << _OFFSET_BITS
        return cls.from_addresses(base | lows, base | highs)

    @classmethod
    def of_zones(cls, zones: ZonePositions) -> Self:
        """The rows of `zones`, which may be in any order. Invalid row ranges raise as in `from_arrays`."""
        return cls.from_arrays(zones.fragment_ids, zones.zone_starts, zones.zone_stops)

    @classmethod
    def from_addresses(cls, firsts: Addresses, ends: Addresses) -> Self:
        """The union of ranges of row addresses, in any order, some of them empty or overlapping.

        Not checked: the arrays have equal length, no other code changes them, and each range is within one fragment.
        """
        filled = firsts < ends
        if not filled.all():
            firsts, ends = firsts[filled], ends[filled]
        if len(firsts) and not (firsts[1:] >= firsts[:-1]).all():
            order = np.argsort(firsts, kind="stable")  # timsort: linear if the input is two sorted runs
            firsts, ends = firsts[order], ends[order]
        return cls.from_sorted_addresses(firsts, ends)

    @classmethod
    def from_sorted_addresses(cls, firsts: Addresses, ends: Addresses) -> Self:
        """As `from_addresses`. Not checked: the ranges are in order of `firsts`, and none is empty."""
        if len(firsts) and not (firsts[1:] > ends[:-1]).all():
            reach = ends if (firsts[1:] >= ends[:-1]).all() else np.maximum.accumulate(ends)
            begins = (firsts[1:] > reach[:-1]).nonzero()[0] + 1  # positions index five times faster than a mask
            firsts, ends = firsts[np.append(0, begins)], reach[np.append(begins - 1, len(reach) - 1)]
        return cls._trusted(firsts, ends)

    # --- what it holds ------------------------------------------------------------------------------------------------

    def _repr_html_(self) -> str:
        """For notebooks: the number of rows, and the first ranges."""
        from zonebloom.ground.rendering import Table, headed, listed  # noqa: PLC0415 - only for people

        first = self._head(_SHOWN_RANGES)
        more = [f"and {len(self) - len(first):,} more ranges"] if len(self) > len(first) else []
        return headed(
            f"{counted(self.num_rows, 'row')} in {counted(len(self), 'row range')}",
            Table(RowRange._fields, list(first)).html(),
            listed(more),
        )

    @property
    def fragment_ids(self) -> Addresses:
        """The fragment id of each range, uint64, ascending."""
        return self._firsts >> _OFFSET_BITS

    @property
    def starts(self) -> Addresses:
        """The first row offset of each range, uint64."""
        return self._firsts & _OFFSET_MASK

    @property
    def stops(self) -> Addresses:
        """The row offset past each range's last row, uint64."""
        return self._ends & _OFFSET_MASK

    @property
    def num_rows(self) -> int:
        """The number of rows in all ranges."""
        return int((self._ends - self._firsts).sum(dtype=np.uint64))

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self._firsts)

    def __iter__(self) -> Iterator[RowRange]:
        """The ranges in order of fragment and start."""
        columns = zip(self.fragment_ids.tolist(), self.starts.tolist(), self.stops.tolist(), strict=True)
        return (RowRange(*row) for row in columns)

    def __repr__(self) -> str:
        shown = ", ".join(f"{r.fragment_id}:[{r.start}, {r.stop})" for r in self._head(4))
        more = ", …" if len(self) > 4 else ""  # noqa: PLR2004 -- the number shown, one line above
        return f"<RowSelection {counted(self.num_rows, 'row')} in {counted(len(self), 'range')}: {shown}{more}>"

    def _head(self, num_ranges: int) -> RowSelection:
        return RowSelection._trusted(self._firsts[:num_ranges], self._ends[:num_ranges])

    def __eq__(self, other: object) -> bool:
        """Whether both hold the same rows."""
        if not isinstance(other, RowSelection):
            return NotImplemented
        return self is other or (
            len(self) == len(other)
            and bool((self._firsts == other._firsts).all())
            and bool((self._ends == other._ends).all())
        )

    __hash__: ClassVar[None] = None  # type: ignore[assignment]  # equality costs O(ranges), so hashing would too

    def fragment(self, fragment_id: int) -> RowSelection:
        """The rows of one fragment; a view, O(log n)."""
        if not 0 <= fragment_id <= MAX_FRAGMENT_ID:
            raise InvalidArgumentError(f"fragment_id must be in 0..{MAX_FRAGMENT_ID}", got=fragment_id)
        base = fragment_id << 32
        low, high = np.searchsorted(self._firsts, np.array([base, base | MAX_ROWS], np.uint64))
        return RowSelection._trusted(self._firsts[low:high], self._ends[low:high])

    def contains(self, addresses: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        """Whether each row address (uint64, any shape) is selected; O(log n) an address."""
        rows = np.asarray(addresses)
        if rows.dtype.kind not in "iu" and rows.size:
            raise InvalidArgumentError("row addresses must be unsigned integers", got=f"dtype {rows.dtype}")
        rows = rows.astype(np.uint64, copy=False)
        if not len(self):
            return np.zeros(rows.shape, np.bool_)
        nearest = np.searchsorted(self._firsts, rows, side="right") - 1
        inside: npt.NDArray[np.bool_] = (nearest >= 0) & (rows < self._ends[nearest])
        return inside

    # --- set operations -----------------------------------------------------------------------------------------------

    def __and__(self, other: RowSelection) -> RowSelection:
        """The rows in both; O(m log n + result) for m the smaller number of ranges."""
        if self is other:
            return self
        smaller, larger = (self, other) if len(self) <= len(other) else (other, self)
        return RowSelection._trusted(*_intersected(smaller._firsts, smaller._ends, larger._firsts, larger._ends))

    def __or__(self, other: RowSelection) -> RowSelection:
        """The rows in either; O(m log n) if one side contains the other, else O(m + n)."""
        smaller, larger = (self, other) if len(self) <= len(other) else (other, self)
        if smaller is larger or larger._holds(smaller):
            return larger
        firsts = np.concatenate((larger._firsts, smaller._firsts))
        return RowSelection.from_addresses(firsts, np.concatenate((larger._ends, smaller._ends)))

    def __sub__(self, other: RowSelection) -> RowSelection:
        """The rows that only the left side has; O(m log n), or O(m + n) if a row is removed."""
        removed = self & other
        if not len(removed):
            return self
        # each removed piece lies in one range, and splits it into the rows before and the rows after the piece
        firsts = np.insert(self._firsts, np.searchsorted(self._firsts, removed._ends), removed._ends)
        ends = np.insert(self._ends, np.searchsorted(self._ends, removed._firsts), removed._firsts)
        filled = firsts < ends
        return RowSelection._trusted(firsts[filled], ends[filled])

    def issubset(self, other: RowSelection) -> bool:
        """Whether every row is also in `other`; O(m log n), m the number of ranges here."""
        return self is other or other._holds(self)

    def _holds(self, other: RowSelection) -> bool:
        """Whether each range of `other` lies in one range of this. Ranges are maximal, so this means: is a subset."""
        if not len(other):
            return True
        if not len(self):
            return False
        nearest = np.searchsorted(self._firsts, other._firsts, side="right") - 1
        return bool(((nearest >= 0) & (other._ends <= self._ends[nearest])).all())


def _unsigned(name: str, values: Any, limit: int) -> Addresses:
    """`values` as uint64, or an error that names the argument and the first value outside ``0..limit``."""
    array = np.asarray(values)
    if array.ndim == 1 and array.size == 0:
        return np.empty(0, np.uint64)
    is_whole = array.dtype.kind in "iu" or (
        array.dtype.kind == "O" and all(isinstance(value, Integral) for value in array.flat)
    )
    if array.ndim != 1 or not is_whole:
        raise InvalidArgumentError(f"{name} must be a 1-d array of integers", got=f"{array.ndim}-d of {array.dtype}")
    outside = np.flatnonzero((array < 0) | (array > limit))
    if len(outside):
        raise InvalidArgumentError(f"{name} must be in 0..{limit}", got=f"{array[outside[0]]} at {outside[0]}")
    return array.astype(np.uint64)


def _intersected(
    smaller_firsts: Addresses, smaller_ends: Addresses, larger_firsts: Addresses, larger_ends: Addresses
) -> tuple[Addresses, Addresses]:
    """The intersection of two lists of disjoint, sorted ranges.

    Each range of `smaller` overlaps a run of `larger`: from the first range that ends after its start to the last that
    begins before its end. Both lists have gaps between their ranges. At the end of each piece one list has a gap, so
    pieces are never adjacent.
    """
    low = np.searchsorted(larger_ends, smaller_firsts, side="right")
    num_met = np.maximum(np.searchsorted(larger_firsts, smaller_ends, side="left") - low, 0)
    mine = np.repeat(np.arange(len(smaller_firsts)), num_met)
    shift = low - (np.cumsum(num_met) - num_met)
    theirs = np.arange(len(mine)) + shift[mine]
    firsts = np.maximum(smaller_firsts[mine], larger_firsts[theirs])
    ends = np.minimum(smaller_ends[mine], larger_ends[theirs])
    filled = firsts < ends
    return firsts[filled], ends[filled]


class Kind(enum.StrEnum):
    """The relation of a result's rows to the matching rows."""

    EXACT = "exact"
    """The rows are exactly the matching rows."""
    AT_MOST = "at_most"
    """The matching rows are among these rows; no other row matches."""
    AT_LEAST = "at_least"
    """Only the condition's opposite was bounded, so every row is kept: the negation of an at_most."""

    @property
    def meaning(self) -> str:
        """The kind for people: the rows are rows to read; they are the matching rows only if exact."""
        return {
            Kind.EXACT: "just the rows that match",
            Kind.AT_MOST: "all rows that match, and perhaps others",
            Kind.AT_LEAST: "nothing could be left out",
        }[self]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The rows in which a predicate can be TRUE, and those in which it can be FALSE; in all other rows it is NULL.

    - Every row that makes the predicate TRUE is in `true_rows`, and every row that makes it FALSE in `false_rows`.
    - If `exact`, these sets have no other rows.

    Both properties hold for the results of ``~``, ``&`` and ``|``, with NULLs too. The spec has a proof, and the tests
    check it by brute force.

    Spec: specs/pruning.md#bounds.
    """

    true_rows: RowSelection
    """Every row in which the predicate can be TRUE: the rows that must be read."""
    false_rows: RowSelection
    """Every row in which the predicate can be FALSE: the rows that must be read for its negation."""
    exact: bool
    """Whether both sets are exact, not upper bounds."""
    is_true_bounded: bool = True
    """Whether the rows that can be TRUE are bounded; if not, `true_rows` is every row."""
    is_false_bounded: bool = True
    """Whether the rows that can be FALSE are bounded; if not, `false_rows` is every row."""

    @classmethod
    def at_most(cls, rows: RowSelection, universe: RowSelection) -> Bounds:
        """The bounds that a filter proves: TRUE in no row outside `rows`, FALSE possible in every row."""
        return cls(rows, universe, exact=False, is_false_bounded=False)

    @classmethod
    def unknown(cls, universe: RowSelection) -> Bounds:
        """Nothing is known: every row may be TRUE, and may be FALSE."""
        return cls(universe, universe, exact=False, is_true_bounded=False, is_false_bounded=False)

    def __invert__(self) -> Bounds:
        """The bounds of NOT: TRUE and FALSE change places, NULL stays."""
        return Bounds(
            self.false_rows,
            self.true_rows,
            exact=self.exact,
            is_true_bounded=self.is_false_bounded,
            is_false_bounded=self.is_true_bounded,
        )

    def __and__(self, other: Bounds) -> Bounds:
        """The bounds of AND: TRUE needs both, FALSE needs one."""
        return Bounds(
            self.true_rows & other.true_rows,
            self.false_rows | other.false_rows,
            exact=self.exact and other.exact,
            is_true_bounded=self.is_true_bounded or other.is_true_bounded,
            is_false_bounded=self.is_false_bounded and other.is_false_bounded,
        )

    def __or__(self, other: Bounds) -> Bounds:
        """The bounds of OR: TRUE needs one, FALSE needs both."""
        return ~(~self & ~other)

    def kind(self, universe: RowSelection) -> Kind:
        """The relation of `true_rows` to the matching rows; `universe` is all rows."""
        if self.exact:
            return Kind.EXACT
        if self.true_rows == universe and self.false_rows != universe:
            return Kind.AT_LEAST
        return Kind.AT_MOST
