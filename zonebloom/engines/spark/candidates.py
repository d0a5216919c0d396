"""`map_candidates`: a function over the rows of candidate row ranges; no task opens a file that cannot match.

Design: docs/design/spark.md#row-ranges
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import StructType

from zonebloom.bloom.hashing import names_of
from zonebloom.bloom.selection import RowSelection
from zonebloom.engines.spark.pushdown.names import Names
from zonebloom.engines.spark.scan.lake import Lake
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.row_ranges import Function, read_rows
from zonebloom.engines.spark.scan.settings import altering_setting
from zonebloom.engines.spark.versions import arrow_of
from zonebloom.ground.errors import InvalidArgumentError, StaleIndexError

if TYPE_CHECKING:
    from zonebloom.search.view import View

_SCHEMA = pa.schema([("path", pa.string()), ("fingerprint", pa.string()), ("start", pa.int64()), ("stop", pa.int64())])


def map_candidates(
    lake: Lake,
    wanted: str | Column | DataFrame | pa.Table,
    function: Function,
    schema: Any,
    columns: Sequence[str] | None,
) -> DataFrame:
    """See `ZoneBloom.map_candidates`."""
    if not callable(function):
        raise InvalidArgumentError("function must take an iterator of record batches", got=f"{function!r:.80}")
    if isinstance(wanted, (DataFrame, pa.Table)):
        view, result = lake.present()[0], None
        rows = _given(view, arrow_of(wanted) if isinstance(wanted, DataFrame) else wanted)
    else:
        query = lake.query(wanted)
        view, result, rows = query.view, query.result, query.result.row_ranges
    layout = Layout(view)
    asked = layout.schema(None if columns is None else names_of(columns))
    if not asked.names:
        raise InvalidArgumentError("columns must be one or more names", got="none")
    _check_values(lake, layout, rows, asked)
    mapped = read_rows(lake.spark, layout, rows, asked, function=function, schema=schema, result=result)
    return lake.reader.frame(view, mapped.schema, mapped)


def _check_values(lake: Lake, layout: Layout, rows: RowSelection, asked: StructType) -> None:
    """Refuse rows whose values Spark would read otherwise."""
    view = layout.view
    problem = lake.misplaced(view, [view.files.paths[number] for number in np.unique(rows.fragment_ids).tolist()])
    shadowed = Names(view).shadowed if layout.is_hive else frozenset()
    both = next((name for name in asked.names if name.lower() in shadowed), None)
    if problem is None and both is not None:
        problem = f"column {both} in files and in folders, and Spark takes the values of folders"
    problem = problem or altering_setting(lake.spark, view, asked)
    if problem is not None:
        raise InvalidArgumentError(
            "tasks must find the values that Spark reads",
            got=problem,
            do="use read(path).where(condition), pass the path of the files, or leave columns out by columns=",
        )


def _given(view: View, table: pa.Table) -> RowSelection:
    """The caller's row ranges, which must be those of the present files."""
    problem = next((f"none named {name}" for name in _SCHEMA.names if name not in table.column_names), None)
    if problem is None:
        try:
            table = table.select(_SCHEMA.names).cast(_SCHEMA)
            problem = next((f"a null as {name}" for name in _SCHEMA.names if table[name].null_count), None)
        except pa.ArrowException as error:
            problem = str(error)
    if problem is not None:
        raise InvalidArgumentError(
            f"row ranges must have the columns {', '.join(_SCHEMA.names)}, without nulls",
            got=problem,
            do="take them from search().to_arrow()",
        )
    ranges = []
    for path, fingerprint, start, stop in zip(*(table[name].to_pylist() for name in _SCHEMA.names), strict=True):
        file = view.files.get(path)
        if file is None or file.fingerprint.text != fingerprint or stop > file.num_rows:
            raise StaleIndexError(
                "row ranges must be those of files that did not change",
                got=f"some of {path}, which changed or which Spark skips",
                do="call search() again",
            )
        ranges.append((file.fragment_id, start, stop))
    return RowSelection.from_ranges(ranges)
