"""Exclusion: one more predicate on Spark's own scan, which names the files that cannot match.

Spark evaluates it on `_metadata` as it plans, so that it opens none of them. Files are excluded, never included, each
by path, size and time of modification: a file that came later, or that was overwritten, is none of them and is read,
and a path that is spelled in another way than expected only prunes nothing.

Spec: specs/spark.md#exclusion
"""

from __future__ import annotations

from collections.abc import Mapping

from zonebloom.engines.spark.paths import file_path
from zonebloom.storage.fragments import Fingerprint

__all__ = ["MAX_EXCLUDED", "exclusion"]

MAX_EXCLUDED = 10_000
"""Spark parses 5000 literals in 0.5 s and 50 000 in 9 s: above this, only the largest files are excluded."""
_NANOSECONDS = 1_000_000
_SIZE_AND_TIME = "(_metadata.file_size ^ unix_millis(_metadata.file_modification_time))"
_KEY = (
    "concat_ws('|', replace(_metadata.file_path, char(39), '%27'), _metadata.file_size, "
    "unix_millis(_metadata.file_modification_time))"
)


def exclusion(listing: Mapping[str, Fingerprint]) -> str:
    """The condition that a row's file is none of those of `listing`, as they were listed; TRUE where there are none.

    Spark evaluates it once a file as it plans, and again for each row of the files that it reads. There the whole key
    costs 0.5 µs, so a number of size and time, which few files share, is looked up first.

    Parameters
    ----------
    listing
        Fingerprints of files, by their URLs as `url_of` writes them.
    """
    if not listing:
        return "TRUE"
    chosen = sorted(listing.items(), key=lambda item: -item[1].size)[:MAX_EXCLUDED]
    numbers = ", ".join(f"{number}L" for number in dict.fromkeys(found.size ^ _millis(found) for _, found in chosen))
    keys = ", ".join(f"'{_key(url, found)}'" for url, found in chosen)
    return f"({_SIZE_AND_TIME} NOT IN ({numbers}) OR {_KEY} NOT IN ({keys}))"


def _key(url: str, fingerprint: Fingerprint) -> str:
    path = file_path(url).replace("'", "%27")
    return f"{path}|{fingerprint.size}|{_millis(fingerprint)}"


def _millis(fingerprint: Fingerprint) -> int:
    return fingerprint.mtime_ns // _NANOSECONDS
