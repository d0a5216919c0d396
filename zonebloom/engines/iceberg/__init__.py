"""`delete` and `upsert` by keys, for Iceberg tables.

================  ==============================================================
module            what lives there
================  ==============================================================
``rewrite``       the call: plan on one snapshot, write, commit on that snapshot
``rows``          rows of an upsert in the types of the table
``files``         data files that a rewrite writes, counts, and removes if it fails
================  ==============================================================

Design: docs/design/engines.md#iceberg
"""

from zonebloom.engines.iceberg.rewrite import Rewrite, delete, upsert

__all__ = ["Rewrite", "delete", "upsert"]
