"""`zonebloom.spark`: the short name of `zonebloom.engines.spark`."""

from typing import TYPE_CHECKING

from zonebloom.engines.spark import __dir__, __getattr__

if TYPE_CHECKING:
    from zonebloom.engines.spark import ZoneBloom

__all__ = ["ZoneBloom", "__dir__", "__getattr__"]
