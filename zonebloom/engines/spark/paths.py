"""Files as Spark names them: URLs with escaped patterns, and the files that Spark reads.

Spec: specs/spark.md#file-names
"""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["are_folders_keys", "escaped", "is_visible", "url_of"]

_GLOB = re.compile(r"([\[\]{}*?\\])")
_UNFINISHED = "._COPYING_"


def url_of(location: str) -> str:
    """Spark's URL of a folder or file, without escapes: `/a b` is `file:///a b`, `s3://` is `s3a://`.

    >>> url_of("/lake/a b"), url_of("s3://bucket/lake")
    ('file:///lake/a b', 's3a://bucket/lake')
    """
    if location.startswith("s3://"):
        return f"s3a://{location.removeprefix('s3://')}"
    return location if "://" in location else f"file://{location}"


def escaped(url: str) -> str:
    r"""`url` with escapes: Spark reads it as a path, not as a pattern.

    >>> print(escaped("file:///a[b]*"))
    file:///a\[b\]\*
    """
    return _GLOB.sub(r"\\\1", url)


def are_folders_keys(paths: Iterable[str]) -> bool:
    """Whether some of the files, named relative to the root, are in `key=value` folders."""
    return any("=" in folder for folder in {path.rpartition("/")[0] for path in paths})


def is_visible(path: str, *, is_keyed: bool, is_listed: bool) -> bool:
    """Whether Spark's plain read of the root reads the file.

    If some files lie in `key=value` folders, Spark skips files outside of them. Otherwise it skips files in any folder.
    It also skips files that Hadoop is still copying.

    Parameters
    ----------
    path
        Relative to the root.
    is_keyed
        Whether some file of the data set is in a `key=value` folder.
    is_listed
        Whether the data set is a list of files, which Spark gets by name.
    """
    if path.endswith(_UNFINISHED):
        return False
    folder = path.rpartition("/")[0]
    return "=" in folder if is_keyed else is_listed or not folder
