"""The short name of zonebloom on Spark, which lives in `zonebloom.engines.spark`."""

from zonebloom.engines.spark import BFIndexConfig, ZoneBloom, read, register

__all__ = ["BFIndexConfig", "ZoneBloom", "read", "register"]
