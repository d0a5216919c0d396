"""zonebloom on Spark, through PySpark alone: build and refresh on the cluster, pruned reads, pruned joins.

`ZoneBloom(spark)` is the whole interface. Index, kernels and evaluator are the library's; Spark only distributes the
work. Nothing here calls the JVM, so every call works on a Spark Connect session too.

`facade` is the interface. `catalog` finds indexes and data sets by name, path or DataFrame. `executors` runs functions
on executors, and `runner` builds there. `scan/` and `join/` read; `pushdown/` translates conditions.

`ZoneBloom` is loaded when it is first used. Design: docs/design/spark.md
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zonebloom.engines.spark.facade import ZoneBloom

__all__ = ["ZoneBloom"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'zonebloom.engines.spark' has no attribute {name!r}")
    import_module("zonebloom.engines.spark.executors").check_pyspark()
    return import_module("zonebloom.engines.spark.facade").ZoneBloom


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
