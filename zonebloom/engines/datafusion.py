"""DataFusion: an indexed data set as a table. A query reads only the rows that may match.

DataFusion hands the filters that pyarrow can express to the data set, and does not apply them again. So they have
pyarrow's semantics: NaN equals nothing.

Design: docs/design/engines.md#datafusion
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from zonebloom.index.doors import opened
from zonebloom.index.index import Index
from zonebloom.search.arrow_dataset import IndexedDataset

if TYPE_CHECKING:
    from datafusion import SessionContext

__all__ = ["register"]


def register(
    context: SessionContext,
    name: str,
    source: str | os.PathLike[str] | Index,
    *,
    storage_options: Mapping[str, str] | None = None,
) -> IndexedDataset:
    """Register the indexed data set `source`, a path or an `Index`, in `context` as table `name`.

    Returns
    -------
    IndexedDataset
        The registered data set. Its `last_scan` has the counts of the last query: kept and total.

    Examples
    --------
    >>> import tempfile, pathlib, pyarrow as pa, pyarrow.parquet as pq, zonebloom as zb
    >>> from datafusion import SessionContext
    >>> from zonebloom.engines.datafusion import register
    >>> lake = pathlib.Path(tempfile.mkdtemp(), "lake")
    >>> lake.mkdir()
    >>> pq.write_table(pa.table({"id": range(50_000)}), lake / "a.parquet")
    >>> index = zb.build_index(lake, "id")
    >>> context = SessionContext()
    >>> events = register(context, "events", index)
    >>> context.sql("SELECT id FROM events WHERE id = 40000").to_pydict()
    {'id': [40000]}
    >>> events.last_scan.kept.rows
    8192

    Design: docs/design/engines.md#datafusion
    """
    dataset = opened(source, storage_options).dataset()
    context.register_dataset(name, dataset)
    return dataset
