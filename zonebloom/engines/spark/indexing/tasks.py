"""Functions for executors beside `build_units`: footers, and single calls. Nothing here imports Spark.

Design: docs/design/spark.md#tasks
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from zonebloom.formats import DatasetSnapshot
from zonebloom.indexing.fill import inspect
from zonebloom.indexing.optimize import Optimization, optimize
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.manifest import list_versions, read_version
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.store import Store


def read_footers(
    dataset: DatasetSnapshot, files: Sequence[tuple[str, Fingerprint, int]]
) -> list[tuple[str, tuple[Fragment, pa.Schema] | str]]:
    """Each of `files` with its fragment and schema, or the reason why it has none. Equal schemas are pickled once."""
    schemas: list[pa.Schema] = []
    outcomes = []
    for path, fingerprint, fragment_id in files:
        outcome = inspect(dataset, path, fingerprint, fragment_id)
        if not isinstance(outcome, str):
            fragment, schema = outcome
            if schema not in schemas:
                schemas.append(schema)
            outcome = fragment, schemas[schemas.index(schema)]
        outcomes.append((path, outcome))
    return outcomes


def optimize_newest(store: Store) -> Optimization:
    """`Index.optimize` of the current version when the task begins. So a second attempt finds the work done."""
    return optimize(store, read_version(store, list_versions(store)[-1]))


def call(store: Store, asked: tuple[Callable[..., Any], tuple[Any, ...]]) -> Any:
    """A function of the index's store."""
    function, arguments = asked
    return function(store, *arguments)
