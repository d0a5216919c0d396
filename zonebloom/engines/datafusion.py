"""DataFusion: an indexed data set as a table. A query reads only the rows that may match.

DataFusion hands the filters that pyarrow can express to the data set, and does not apply them again. So they have
pyarrow's semantics: NaN equals nothing. Lists of IN are SQL's.

Design: docs/design/engines.md#datafusion
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from zonebloom.ground.errors import PredicateError
from zonebloom.index.doors import opened
from zonebloom.index.index import Index
from zonebloom.predicates.arrow_pickle import UnreadableExpressionError, with_lists_of_sql
from zonebloom.search.arrow_dataset import IndexedDataset

if TYPE_CHECKING:
    import pyarrow.compute as pc
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
    dataset = opened(source, storage_options).dataset().meant_as(_as_sql)
    context.register_dataset(name, dataset)
    return dataset


def _as_sql(expression: pc.Expression) -> pc.Expression:
    """What DataFusion means by `expression`: it writes IN with four values and more as pyarrow's ``is_in``."""
    try:
        return with_lists_of_sql(expression)
    except UnreadableExpressionError as error:
        if "is_in" in str(expression):
            raise PredicateError("pyarrow must write a list in a form that is known", got=str(error)) from error
        return expression
