"""`locate` on Spark: the row ranges that may hold each key of a DataFrame, as a DataFrame; no key is collected.

The driver lists the data set and opens the index once. Each task asks the index for its own keys, over that listing.

Spec: specs/spark.md#locate
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from zonebloom.engines.spark.build.driver import sent_dataset
from zonebloom.engines.spark.executors import pickled, shipped, unpickled
from zonebloom.errors import InvalidArgumentError
from zonebloom.search import locate as library
from zonebloom.search.snapshot import load_snapshot
from zonebloom.search.view import View

if TYPE_CHECKING:
    from zonebloom.engines.spark.catalog import Catalog, Place

_PLACES = (("path", "string"), ("fragment_id", "long"), ("start", "long"), ("stop", "long"))


def locate(catalog: Catalog, path: Any, column: str, keys: DataFrame, index: Place = None) -> DataFrame:
    """One row for each key of `keys` and row range that may hold it: the key, path, fragment_id, start, stop.

    Raises
    ------
    InvalidArgumentError
        `keys` has several columns, or its column has the name of a column of the result.
    ColumnNotFoundError
        The column is not indexed.

    Spec: specs/spark.md#locate
    """
    if len(keys.columns) != 1 or keys.columns[0] in dict(_PLACES):
        message = f"keys must have one column, of another name than {', '.join(dict(_PLACES))}"
        raise InvalidArgumentError(f"{message}, got {', '.join(keys.columns)}")
    view = catalog.view(path, index)
    if view.column(column) is None:
        raise view.snapshot.not_indexed(column)
    store, version = view.snapshot.store, view.snapshot.manifest.version
    sent = pickled((store, version, sent_dataset(view.dataset), dict(view.listing)))
    schema = StructType(list(keys.schema))
    for name, kind in _PLACES:
        schema = schema.add(name, kind)
    return keys.distinct().mapInArrow(shipped(keys_located, sent, column), schema)


# --- on executors -----------------------------------------------------------------------------------------------------


def keys_located(sent: bytes, column: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The row ranges of the keys of a task."""
    store, version, dataset, listing = unpickled(sent)
    view: View | None = None
    for batch in batches:
        if view is None:
            view = View(load_snapshot(store, version), dataset, listing)
        found = library.locate(view, column, batch.column(0), exact=False)
        numbers = [found[name].cast(pa.int64()) for name, kind in _PLACES if kind == "long"]
        arrays = [batch.column(0).take(found["key_index"].combine_chunks()), found["path"], *numbers]
        table = pa.table(arrays, names=[batch.schema.names[0], *dict(_PLACES)])
        yield from table.to_batches()
