"""Zones: runs of rows of one fragment, each with one filter.

`table` holds them (`ZoneTable`, the five columns) in chunks of `chunk`; `schema` has the columns and what their
metadata says; `builder` makes zones from batches (`ZoneBuilder`).
"""

from zonebloom.bloom.zones.builder import ZoneBuilder
from zonebloom.bloom.zones.schema import ZONE_FIELDS, described_by, parameters_of, zone_schema
from zonebloom.bloom.zones.table import ZoneTable, check_positions

__all__ = [
    "ZONE_FIELDS",
    "ZoneBuilder",
    "ZoneTable",
    "check_positions",
    "described_by",
    "parameters_of",
    "zone_schema",
]
