"""The types of results, for annotations; functions and methods make them."""

from zonebloom.erasing.erasure import ErasedFile, Erasure
from zonebloom.indexing.lance_audit import LanceAudit, LanceIndexAudit
from zonebloom.indexing.lance_export import LanceExport
from zonebloom.indexing.optimize import Optimization, OptimizedColumn
from zonebloom.indexing.progress import Progress
from zonebloom.indexing.refresh import Refresh
from zonebloom.indexing.verify import ColumnVerification, Verification
from zonebloom.indexing.versions import Removal, Vacuum, Version
from zonebloom.indexing.whatif.forecast import Forecast, Option
from zonebloom.search.arrow_dataset import IndexedDataset
from zonebloom.search.explain import Explanation, FalseZones
from zonebloom.search.result import Counts, SearchResult
from zonebloom.search.status import IndexedColumn, Status
from zonebloom.search.unindexed_lake import UnindexedLake
from zonebloom.stores.store import Traffic

__all__ = [
    "ColumnVerification",
    "Counts",
    "ErasedFile",
    "Erasure",
    "Explanation",
    "FalseZones",
    "Forecast",
    "IndexedColumn",
    "IndexedDataset",
    "LanceAudit",
    "LanceExport",
    "LanceIndexAudit",
    "Optimization",
    "OptimizedColumn",
    "Option",
    "Progress",
    "Refresh",
    "Removal",
    "SearchResult",
    "Status",
    "Traffic",
    "UnindexedLake",
    "Vacuum",
    "Verification",
    "Version",
]
