"""Bytes of index and data: a folder on disk or a prefix of an object store, behind one protocol (`store.Store`).

`locations` says what a path or a URL means, and `open` finds the store of one. `local` is a folder of this machine.
`object` is a URL, over `object_client` (requests), `ranges` (which bytes one request fetches) and `options`.
"""
