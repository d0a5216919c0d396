"""`locate` on Spark: the row ranges that may hold each key of a DataFrame, as a DataFrame; no key is collected.

The driver lists the data set and opens the index once. Each task asks the index for its own keys, over that listing.

Design: docs/design/spark.md#locate
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField, StructType

from zonebloom.engines.spark.executors import pickled, shipped, unpickled
from zonebloom.engines.spark.frames import check_batch
from zonebloom.engines.spark.join.keys import check_pair, distinct
from zonebloom.engines.spark.pushdown.calendars import are_old
from zonebloom.engines.spark.pushdown.translate import EVERY_ROW
from zonebloom.engines.spark.pushdown.types import Binder, UnboundError
from zonebloom.engines.spark.runner import sent_dataset
from zonebloom.engines.spark.scan.choice import BY_ID
from zonebloom.engines.spark.scan.lake import Lake
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.search import locate as library
from zonebloom.search.query import Query
from zonebloom.search.view import View
from zonebloom.storage.snapshot import load_snapshot

_PLACES = (("path", "string"), ("fragment_id", "long"), ("start", "long"), ("stop", "long"), ("fingerprint", "string"))

_MOST_LINES = 1 << 20
"""Lines that a task holds at once for keys that may be in any row of new files."""


def locate(lake: Lake, column: str, keys: DataFrame) -> DataFrame:
    """See `ZoneBloom.locate`."""
    view, binder = lake.present()
    check_batch(keys)
    if len(keys.columns) != 1 or keys.columns[0].lower() in dict(_PLACES):
        raise InvalidArgumentError(
            f"keys must have one column, of another name than {', '.join(dict(_PLACES))} in any case",
            got=", ".join(keys.columns),
            do='use keys.toDF("key")',
        )
    if view.column(column) is None:
        raise view.snapshot.not_indexed(column)
    wanted = distinct(keys).toDF("key")  # `mapInArrow` takes no dots or backticks in names
    check_pair(keys.schema[0], _as_stored(column, binder, is_by_id=lake.is_by_id))
    store, version = view.snapshot.store, view.snapshot.manifest.version
    sent = pickled((store, version, sent_dataset(view.dataset), dict(view.listing)))
    schema = StructType(list(wanted.schema))
    for name, kind in _PLACES:
        schema = schema.add(name, kind)
    located = wanted.mapInArrow(shipped(keys_located, sent, column), schema)
    return located.toDF(*keys.columns, *dict(_PLACES))


def _as_stored(column: str, binder: Binder, *, is_by_id: bool) -> StructField:
    """The indexed `column` in Spark's type.

    Raises
    ------
    InvalidArgumentError
        Spark may read other values than the index has.
    """
    try:
        target = binder.target(binder.path(column))
        problem = BY_ID if is_by_id else None
    except UnboundError as error:
        problem = str(error)
    if problem is not None:
        raise InvalidArgumentError(
            f"Spark must read column {column} as it is stored",
            got=problem,
            do=f'use read(path).where("{column} IN (...)"), which gives the rows',
        )
    return StructField(column, target.spark)


# --- on executors -----------------------------------------------------------------------------------------------------


def keys_located(sent: bytes, column: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The row ranges of the keys of a task."""
    store, version, dataset, listing = unpickled(sent)
    view: View | None = None
    for batch in batches:
        if view is None:
            view = View(load_snapshot(store, version), dataset, listing)
        for lines in _lines(view, column, batch.column(0)):
            places = [lines[name].cast(pa.int64()) if kind == "long" else lines[name] for name, kind in _PLACES]
            arrays = [batch.column(0).take(lines["key_index"].combine_chunks()), *places]
            table = pa.table(arrays, names=[batch.schema.names[0], *dict(_PLACES)])
            yield from table.to_batches()


def _lines(view: View, column: str, keys: pa.Array) -> Iterator[pa.Table]:
    """The lines of each key. A key that an old writer may have stored as another day or time may be in any row."""
    if pa.types.is_date(keys.type) or pa.types.is_timestamp(keys.type):
        is_old = are_old(keys)
        every_row = Query(view, EVERY_ROW, own_filters=False).result.to_arrow()
        anywhere = every_row.add_column(0, "key_index", pa.nulls(len(every_row), pa.int64()))
        yield from _for_each_key(anywhere, pc.if_else(is_old, keys, None))
        keys = pc.if_else(is_old, None, keys)
    yield from _for_each_key(library.locate(view, column, keys, exact=False), keys)


def _for_each_key(located: pa.Table, keys: pa.Array) -> Iterator[pa.Table]:
    """`located` with a line for each key in place of a line for any key, in parts of at most a million lines."""
    yield located.filter(located["key_index"].is_valid())
    of_any = located.filter(located["key_index"].is_null())
    slots = np.flatnonzero(keys.is_valid().to_numpy(zero_copy_only=False))
    step = max(1, _MOST_LINES // max(1, len(of_any)))
    for first in range(0, len(slots) if len(of_any) else 0, step):
        part = slots[first : first + step]
        lines = of_any.take(pa.array(np.tile(np.arange(len(of_any)), len(part))))
        yield lines.set_column(0, located.schema.field(0), pa.array(np.repeat(part, len(of_any)), pa.int64()))
