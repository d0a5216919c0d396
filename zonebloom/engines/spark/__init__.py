"""zonebloom on Spark, through PySpark alone: build and refresh on the cluster, pruned reads, pruned joins.

`ZoneBloom(spark)` is the whole surface. The index directory, the kernels and the evaluator are the library's: Spark
adds distribution, nothing else. Nothing here calls the JVM, so every call works on a Spark Connect session too.

`facade` is the surface. `catalog` finds indexes and data sets by name, path or DataFrame, `executors` runs functions on
executors. `build/`, `scan/` (with the data source) and `join/` do the work; `pushdown/` translates conditions.

Names are loaded when they are first used. Spec: specs/spark.md
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zonebloom.engines.spark.facade import ZoneBloom
    from zonebloom.engines.spark.scan.open import read
    from zonebloom.engines.spark.scan.source import register

_HOME_OF = {"ZoneBloom": "facade", "read": "scan.open", "register": "scan.source"}

__all__ = ["ZoneBloom", "read", "register"]


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
