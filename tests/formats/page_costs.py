"""Small files whose pages are read one by one, as those of large row groups are."""

from __future__ import annotations

from collections.abc import Callable

from zonebloom.formats.parquet import page_index, pages


def every_page_pays(set_attribute: Callable[[object, str, int], None] = setattr) -> None:
    """Have no page and no page index be too small to look for; `monkeypatch.setattr` takes it back after a test."""
    set_attribute(pages, "_ROWS_PER_PAGE", 0)
    set_attribute(pages, "_BYTES_PER_PAGE", 0)
    set_attribute(page_index, "_ROWS_PER_HEADER", 1)
