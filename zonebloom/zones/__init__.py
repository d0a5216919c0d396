"""Zones: runs of rows of one fragment, each with one filter.

`table` holds them (`ZoneTable`, the five columns), `builder` makes them from batches (`ZoneBuilder`).
"""

from zonebloom.zones.builder import ZoneBuilder
from zonebloom.zones.table import ZONE_FIELDS, ZoneTable, zone_schema

__all__ = ["ZONE_FIELDS", "ZoneBuilder", "ZoneTable", "zone_schema"]
