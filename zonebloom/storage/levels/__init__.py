"""Filters above the zones: one for each fragment, and one for the data set.

`fill` makes them while a build reads the data; `probe` asks them before the zones; `merge` merges the filters that
builds and refreshes added.
"""

from zonebloom.storage.levels.fill import LevelBuilder, LevelSink, parts_of_dataset
from zonebloom.storage.levels.merge import merge_level, resized, united
from zonebloom.storage.levels.probe import DatasetFilter, LeveledZones, open_levels

__all__ = [
    "DatasetFilter",
    "LevelBuilder",
    "LevelSink",
    "LeveledZones",
    "merge_level",
    "open_levels",
    "parts_of_dataset",
    "resized",
    "united",
]
