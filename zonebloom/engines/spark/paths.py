"""Files as Spark names them: URLs to read, globs escaped, and the text of `_metadata.file_path`.

Spec: specs/spark.md#file-names
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from urllib.parse import quote

__all__ = ["are_folders_keys", "escaped", "file_path", "is_visible", "url_of"]

_GLOB = re.compile(r"([\[\]{}*?\\])")
_KEPT = "/_-!.~'()*,;:$&+=@"
"""ASCII signs besides letters and digits that Java leaves as they are in the path of a URI."""
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


def file_path(url: str) -> str:
    """What `_metadata.file_path` says of the file at `url`: Java's encoding, and one slash after `file:`.

    >>> file_path("file:///lake/day=1/a [b]%20ü.parquet")
    'file:/lake/day=1/a%20%5Bb%5D%2520ü.parquet'
    """
    scheme, _, rest = url.partition("://")
    coded = "".join(_coded(sign) for sign in rest)
    return f"file:/{coded.lstrip('/')}" if scheme == "file" else f"{scheme}://{coded}"


def _coded(sign: str) -> str:
    """Letters of other scripts stay; spaces and controls of any script do not."""
    is_kept = not sign.isascii() and sign.isprintable() and not sign.isspace()
    return sign if is_kept else quote(sign, safe=_KEPT)


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
