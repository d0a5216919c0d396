"""zonebloom: which rows of a data lake can hold a value.

A zone bloom index keeps one Split Block Bloom Filter for each zone of 8192 rows, beside the data files, as an Arrow
table in the schema of Lance's index. A search returns the row ranges that may match; no row that matches is ever lost.

Names are loaded when they are first used, so that `import zonebloom` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zonebloom.bloom.sbbf import Sbbf
    from zonebloom.build.advise import Forecast, whatif
    from zonebloom.errors import ZoneBloomError
    from zonebloom.formats.parquet.bloom import parquet_bloom, parquet_blooms
    from zonebloom.formats.parquet.bloom_writer import add_parquet_blooms
    from zonebloom.index import Index, build_index, dataset, delete_index, import_index, open_index
    from zonebloom.maintain.lance_audit import LanceAudit, audit_lance
    from zonebloom.predicates import And, Equals, IsIn, IsNull, Not, Or, Predicate, col
    from zonebloom.reasons import Reason, ReasonCode
    from zonebloom.search.lake import Lake, open_lake
    from zonebloom.search.result import SearchResult
    from zonebloom.search.selection import Kind, RowSelection
    from zonebloom.search.zone_table import ZoneBuilder, ZoneTable

__version__ = "0.1.0"

_HOMES = {
    "zonebloom.errors": ("ZoneBloomError",),
    "zonebloom.index": ("Index", "build_index", "dataset", "delete_index", "import_index", "open_index"),
    "zonebloom.formats.parquet.bloom": ("parquet_bloom", "parquet_blooms"),
    "zonebloom.formats.parquet.bloom_writer": ("add_parquet_blooms",),
    "zonebloom.maintain.lance_audit": ("LanceAudit", "audit_lance"),
    "zonebloom.predicates": ("And", "Equals", "IsIn", "IsNull", "Not", "Or", "Predicate", "col"),
    "zonebloom.build.advise": ("Forecast", "whatif"),
    "zonebloom.search.lake": ("Lake", "open_lake"),
    "zonebloom.search.result": ("SearchResult",),
    "zonebloom.reasons": ("Reason", "ReasonCode"),
    "zonebloom.bloom.sbbf": ("Sbbf",),
    "zonebloom.search.selection": ("Kind", "RowSelection"),
    "zonebloom.search.zone_table": ("ZoneBuilder", "ZoneTable"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "And",
    "Equals",
    "Forecast",
    "Index",
    "IsIn",
    "IsNull",
    "Kind",
    "Lake",
    "LanceAudit",
    "Not",
    "Or",
    "Predicate",
    "Reason",
    "ReasonCode",
    "RowSelection",
    "Sbbf",
    "SearchResult",
    "ZoneBloomError",
    "ZoneBuilder",
    "ZoneTable",
    "add_parquet_blooms",
    "audit_lance",
    "build_index",
    "col",
    "dataset",
    "delete_index",
    "import_index",
    "open_index",
    "open_lake",
    "parquet_bloom",
    "parquet_blooms",
    "whatif",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'zonebloom' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
