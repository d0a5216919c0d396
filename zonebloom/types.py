"""The types of results, for annotations; functions and methods make them."""

from zonebloom.erasing.erasure import ErasedFile, Erasure
from zonebloom.indexing.lance_audit import LanceAudit
from zonebloom.indexing.lance_export import LanceExport
from zonebloom.indexing.optimize import Optimization
from zonebloom.indexing.progress import Progress
from zonebloom.indexing.refresh import Refresh
from zonebloom.indexing.verify import Verification
from zonebloom.indexing.versions import Removal, Vacuum, Version
from zonebloom.indexing.whatif import Forecast
from zonebloom.search.arrow_dataset import IndexedDataset
from zonebloom.search.explain import Explanation
from zonebloom.search.result import SearchResult
from zonebloom.search.status import IndexedColumn, Status
from zonebloom.search.unindexed_lake import UnindexedLake

__all__ = [
    "ErasedFile",
    "Erasure",
    "Explanation",
    "Forecast",
    "IndexedColumn",
    "IndexedDataset",
    "LanceAudit",
    "LanceExport",
    "Optimization",
    "Progress",
    "Refresh",
    "Removal",
    "SearchResult",
    "Status",
    "UnindexedLake",
    "Vacuum",
    "Verification",
    "Version",
]
