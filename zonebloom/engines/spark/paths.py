"""Files as Spark names them: URLs to read, with globs escaped, and which of them it reads.

Spec: specs/spark.md#file-names
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["are_folders_keys", "escaped", "is_visible", "url_of"]

_GLOB = re.compile(r"([\[\]{}*?\\])")
_UNFINISHED = "._COPYING_"


def url_of(location: str) -> str:
    """A folder or file of the library as Spark reads it, but for globs: `/a b` is `file:///a b`, `s3://` is `s3a://`.

    >>> url_of("/lake/a b"), url_of("s3://bucket/lake")
    ('file:///lake/a b', 's3a://bucket/lake')
    """
    if location.startswith("s3://"):
        return f"s3a://{location.removeprefix('s3://')}"
    return location if "://" in location else f"file://{location}"


def escaped(url: str) -> str:
    r"""`url` as a path that Spark does not take for a pattern.

    >>> print(escaped("file:///a[b]*"))
    file:///a\[b\]\*
    """
    return _GLOB.sub(r"\\\1", url)


def are_folders_keys(paths: Iterable[str]) -> bool:
    """Whether some of the files, named relative to the root, are in `key=value` folders."""
    return any("=" in folder for folder in {path.rpartition("/")[0] for path in paths})


def is_visible(path: str, *, is_keyed: bool, is_listed: bool) -> bool:
    """Whether Spark's plain read of the root reads the file.

    Where there are `key=value` folders it skips what is in none of them, else what is in any folder; and files that
    Hadoop is still copying.

    Parameters
    ----------
    path
        Relative to the root.
    is_keyed
        Whether some file of the data set is in a `key=value` folder.
    is_listed
        Whether the data set is a list of files, all of which Spark is told.
    """
    if path.endswith(_UNFINISHED):
        return False
    folder = path.rpartition("/")[0]
    return "=" in folder if is_keyed else is_listed or not folder
