"""zonebloom on Spark, through PySpark alone: build and refresh on the cluster, pruned reads, pruned joins.

`ZoneBloom(spark)` is the whole interface. Index, kernels and evaluator are the library's; Spark only distributes the
work. Nothing here calls the JVM, so every call works on a Spark Connect session too.

`facade` is the interface. `catalog` finds indexes and data sets by name, path or DataFrame. `executors` runs functions
on executors. `indexing/`, `scan/` and `join/` do the work; `pushdown/` translates conditions.

Names are loaded when they are first used. Design: docs/design/spark.md
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zonebloom.engines.spark.facade import ZoneBloom
    from zonebloom.engines.spark.scan.read import read

_HOME_OF = {"ZoneBloom": "facade", "read": "scan.read"}

__all__ = ["ZoneBloom", "read"]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'zonebloom.engines.spark' has no attribute {name!r}")
    import_module("zonebloom.engines.spark.executors").check_pyspark()
    value = getattr(import_module(f"zonebloom.engines.spark.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
