"""zonebloom on Spark, through PySpark alone: build and refresh on the cluster, pruned reads, pruned joins.

`ZoneBloom(spark)` is the whole surface. The index directory, the kernels and the evaluator are the library's: Spark
adds distribution, nothing else. Every call works on a Spark Connect session too, for nothing here reaches into the JVM.

`facade` is the surface; `catalog` finds indexes by name; `frames` knows which files a DataFrame scans; `building` and
`tasks` are the distributed build; `reading`, `explaining`, `row_ranges`, `source` (the data source) and `joining`
use an index.

Names are loaded when they are first used. Spec: specs/spark.md
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zonebloom.spark.catalog import BFIndexConfig
    from zonebloom.spark.facade import ZoneBloom
    from zonebloom.spark.reading import read
    from zonebloom.spark.source import register

_HOME_OF = {
    "BFIndexConfig": "zonebloom.spark.catalog",
    "ZoneBloom": "zonebloom.spark.facade",
    "read": "zonebloom.spark.reading",
    "register": "zonebloom.spark.source",
}

__all__ = ["BFIndexConfig", "ZoneBloom", "read", "register"]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'zonebloom.spark' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
