"""Zones: runs of rows of one fragment, each with one filter.

`positions` has the rows of zones (`ZonePositions`); `filters` is the interface for probes (`ZoneFilters`); `table` has
zones as five columns (`ZoneTable`), in chunks of `chunk`; `schema` has the columns and their metadata; `builder` makes
zones from batches (`ZoneBuilder`).
"""

from zonebloom.bloom.zones.builder import ZoneBuilder
from zonebloom.bloom.zones.filters import CANNOT_MATCH, MAY_MATCH, BlockFilters, ZoneFilters, ZonesOfEach
from zonebloom.bloom.zones.positions import ZonePositions
from zonebloom.bloom.zones.schema import ZONE_FIELDS, described_by, parameters_of, zone_schema
from zonebloom.bloom.zones.table import ZoneTable

__all__ = [
    "CANNOT_MATCH",
    "MAY_MATCH",
    "ZONE_FIELDS",
    "BlockFilters",
    "ZoneBuilder",
    "ZoneFilters",
    "ZonePositions",
    "ZoneTable",
    "ZonesOfEach",
    "described_by",
    "parameters_of",
    "zone_schema",
]
