"""`ZoneTable` and `ZoneBuilder` for users: a table of zones that is searched without a data set.

Spec: specs/pruning.md#zone-table-search
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zonebloom.bloom import zones as bloom
from zonebloom.bloom.selection import Bounds, RowSelection
from zonebloom.ground.errors import PredicateError
from zonebloom.predicates import Predicate, parse_predicate
from zonebloom.search.evaluate import evaluate
from zonebloom.search.probed_column import ProbedColumn
from zonebloom.search.result import SearchResult, TouchedRanges

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class ZoneTable(bloom.ZoneTable):
    """One filter for each zone of a column, and the position of each zone; immutable.

    - Rows are in order of `(fragment_id, zone_start)`; zones of one fragment do not overlap.
    - Every bitset is a positive multiple of 32 bytes.

    Make one with `ZoneTable.from_arrow`, `ZoneBuilder` or `Index.zone_table`.
    """

    @classmethod
    def of(cls, zones: bloom.ZoneTable) -> ZoneTable:
        """The same zones; only their positions are copied."""
        return cls(zones.batches(), zones.schema)

    @property
    def fragment_ids(self) -> NDArray[np.uint64]:
        """The fragment of each zone."""
        return self.positions.fragment_ids

    @property
    def zone_starts(self) -> NDArray[np.uint64]:
        """Offset of the first row of each zone."""
        return self.positions.zone_starts

    @property
    def zone_lengths(self) -> NDArray[np.uint64]:
        """Rows of each zone."""
        return self.positions.zone_lengths

    @property
    def has_null(self) -> NDArray[np.bool_]:
        """Whether a row of each zone is null."""
        return self.positions.has_null

    def search(self, predicate: Predicate | str | Any) -> SearchResult:
        """Row ranges that may hold rows for which `predicate` is true; no data set is needed.

        The predicate may name one column, which means the column of the table. Rows outside the zones are unknown,
        and are not returned.

        Raises
        ------
        PredicateError
            The predicate names more than one column.

        Spec: specs/pruning.md#zone-table-search
        """
        tree = parse_predicate(predicate)
        names = tree.columns()
        if len(names) > 1:
            raise PredicateError(
                "a zone table describes one column",
                got=f"a predicate over {', '.join(sorted(names))}",
                do="search an index",
            )
        searched = _Alone(self)
        bounds, reasons, _ = evaluate(tree, searched, {})
        return SearchResult(
            bounds.kind(searched.universe),
            bounds.true_rows,
            reasons,
            universe=searched.universe,
            zones=TouchedRanges.of_zones(self.positions),
        )


class ZoneBuilder(bloom.ZoneBuilder):
    """Turns the batches of a column into zones.

    The zones do not depend on batch boundaries: feeding the same rows in any cut gives the same bytes.

    Parameters
    ----------
    column_type
        Arrow type of the values; arrays of another type are an error.
    column
        Name of the column; it is stored with the zones.
    rows_per_zone, fpp, sizing
        See `build_index`.
    sink
        A function for each finished record batch, of at most 1024 zones and about 4 MiB. The batch is valid only during
        the call, because its memory is reused. Without a sink, `finish` returns the batches.

    Examples
    --------
    >>> import pyarrow as pa, zonebloom as zb
    >>> builder = zb.ZoneBuilder(pa.int64(), rows_per_zone=2)
    >>> builder.add(0, pa.array([1, 2, 3]))
    >>> builder.finish().to_arrow().select(["fragment_id", "zone_start", "zone_length"]).to_pydict()
    {'fragment_id': [0, 0], 'zone_start': [0, 2], 'zone_length': [2, 1]}

    Spec: specs/zones.md#zone-builder
    """

    def finish(self) -> ZoneTable:
        """The zones of all rows that were added.

        Raises
        ------
        InvalidArgumentError
            The builder has a sink, which has the zones already.
        """
        return ZoneTable.of(super().finish())


class _Alone:
    """A search's target of one zone table, without a data set."""

    constant_columns: frozenset[str] = frozenset()

    def __init__(self, zones: ZoneTable) -> None:
        self._zones = zones
        self.universe = RowSelection.of_zones(zones.positions)

    def column(self, name: str) -> ProbedColumn:
        """The filters of the one column."""
        return ProbedColumn.of(name, self._zones.column_type, self._zones, RowSelection.empty())

    def constant_bounds(self, predicate: Predicate) -> Bounds:
        """No bounds: no value is known without filters."""
        del predicate
        return Bounds.unknown(self.universe)
