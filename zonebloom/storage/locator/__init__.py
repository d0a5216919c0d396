"""Locator segments: which zones hold a key, answered by about two pages, in one read.

`layout` says what the end of the file holds, `writer` writes sorted pairs, `build` makes segments from the batches of a
column, `reader` searches a segment, `merge` makes one of several.
"""
