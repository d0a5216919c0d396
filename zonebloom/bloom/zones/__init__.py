"""Zones: runs of rows of one fragment, each with one filter.

`positions` says where they lie (`ZonePositions`); `table` holds them (`ZoneTable`, the five columns) in chunks of
`chunk`; `schema` has the columns and what their metadata says; `builder` makes zones from batches (`ZoneBuilder`).
"""

from zonebloom.bloom.zones.builder import ZoneBuilder
from zonebloom.bloom.zones.positions import ZonePositions
from zonebloom.bloom.zones.schema import ZONE_FIELDS, described_by, parameters_of, zone_schema
from zonebloom.bloom.zones.table import ZoneTable

__all__ = [
    "ZONE_FIELDS",
    "ZoneBuilder",
    "ZonePositions",
    "ZoneTable",
    "described_by",
    "parameters_of",
    "zone_schema",
]
