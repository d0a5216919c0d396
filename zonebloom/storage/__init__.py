"""The index on disk: `store` touches bytes, `manifest` is versions and fragments, `zone_segment` the filters.

Spec: specs/index-format.md#directory
"""
