"""zonebloom: which rows of a data lake can hold a value.

A zone bloom index keeps one Split Block Bloom Filter for each zone of 8192 rows, beside the data files, as an Arrow
table in the schema of Lance's index. A search returns the row ranges that may match; no row that matches is ever lost.

Names are loaded when they are first used, so that `import zonebloom` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from zonebloom.ground.version import __version__ as __version__

if TYPE_CHECKING:
    from zonebloom import errors as errors
    from zonebloom.bloom.sbbf import Sbbf
    from zonebloom.bloom.selection import Kind, RowSelection
    from zonebloom.erasing.erase import erase
    from zonebloom.formats.parquet.bloom_writer import add_parquet_blooms
    from zonebloom.ground.errors import ZoneBloomError
    from zonebloom.ground.reasons import Reason, ReasonCode
    from zonebloom.index.doors import build_index, delete_index, import_index, open_index
    from zonebloom.index.index import Index
    from zonebloom.indexing.whatif import whatif
    from zonebloom.predicates import Equals, IsIn, IsNull, col
    from zonebloom.search.parquet_blooms import parquet_bloom, parquet_blooms
    from zonebloom.search.result import SearchResult
    from zonebloom.search.unindexed_lake import open_lake
    from zonebloom.search.zone_table import ZoneBuilder, ZoneTable

_HOMES = {
    "zonebloom.bloom.sbbf": ("Sbbf",),
    "zonebloom.index.doors": ("build_index", "delete_index", "import_index", "open_index"),
    "zonebloom.erasing.erase": ("erase",),
    "zonebloom.ground.errors": ("ZoneBloomError",),
    "zonebloom.formats.parquet.bloom_writer": ("add_parquet_blooms",),
    "zonebloom.search.parquet_blooms": ("parquet_bloom", "parquet_blooms"),
    "zonebloom.index.index": ("Index",),
    "zonebloom.indexing.whatif": ("whatif",),
    "zonebloom.predicates": ("Equals", "IsIn", "IsNull", "col"),
    "zonebloom.bloom.selection": ("Kind", "RowSelection"),
    "zonebloom.ground.reasons": ("Reason", "ReasonCode"),
    "zonebloom.search.result": ("SearchResult",),
    "zonebloom.search.unindexed_lake": ("open_lake",),
    "zonebloom.search.zone_table": ("ZoneBuilder", "ZoneTable"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Equals",
    "Index",
    "IsIn",
    "IsNull",
    "Kind",
    "Reason",
    "ReasonCode",
    "RowSelection",
    "Sbbf",
    "SearchResult",
    "ZoneBloomError",
    "ZoneBuilder",
    "ZoneTable",
    "add_parquet_blooms",
    "build_index",
    "col",
    "delete_index",
    "erase",
    "import_index",
    "open_index",
    "open_lake",
    "parquet_bloom",
    "parquet_blooms",
    "whatif",
]


def __getattr__(name: str) -> Any:
    if name == "errors":  # what `except zonebloom.errors.StaleIndexError` means in a program that imports no more
        return import_module("zonebloom.errors")
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'zonebloom' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
