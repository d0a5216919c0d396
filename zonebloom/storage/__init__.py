"""The index on disk: `store` touches bytes, `manifest` is versions and fragments, `zone_segment` the filters.

`local_store` is a folder; `object_store` a URL, over `object_client` (requests) and `object_options` (credentials).
`locations` says what a path or a URL means, and `opening` finds the store of one. `ahead` runs work in threads.

Spec: specs/index-format.md#directory
"""
