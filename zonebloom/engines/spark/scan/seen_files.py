"""The files of a data set as Spark's plain read sees them: the one list from which a lake searches and reads.

Only this module has Spark's rules of names. `inputFiles` of a frame also has files whose rows Spark skips.

Design: docs/design/spark-reads.md#file-names
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zonebloom.formats.folder import ParquetDataset, is_hidden
from zonebloom.ground.errors import InvalidArgumentError
from zonebloom.stores.fingerprint import Fingerprint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SKIPPED, _HIDDEN = "spark.sql.files.ignoredPathSegmentRegex", "^[._]"
_UNFINISHED = "._COPYING_"
"""The end of names while Hadoop copies."""


@dataclass(frozen=True)
class SeenFiles(ParquetDataset):
    """Parquet files; `list` gives only the files whose rows Spark reads."""

    logged: frozenset[str] | None = None
    """Absolute paths of the files that the log of a stream names; None without such a log."""

    def list(self, known_names: Iterable[str] = ()) -> dict[str, Fingerprint]:
        """As `ParquetDataset.list`, without files that Spark's plain read skips; raises as `seen_paths`, too."""
        listing = super().list(known_names)
        named = [path for path in listing if self.logged is None or self.absolute(path) in self.logged]
        seen = seen_paths(named, is_folder=self.layout == "folder")
        return {path: listing[path] for path in seen if listing[path].size}


def seen_paths(paths: Iterable[str], *, is_folder: bool = True) -> list[str]:
    """Those of relative `paths` that Spark's plain read of a folder, or of these files, reads if they have bytes.

    If some files of a folder lie in `key=value` folders, Spark skips files outside of them. Otherwise it skips files in
    any folder. It reads files that it gets by name in folders of any name.

    Raises
    ------
    InvalidArgumentError
        Some of the files that Spark gets by name lie in `key=value` folders, and others do not.

    >>> seen_paths(["a", "b._COPYING_", "x/c"]), seen_paths(["a", "k=1/b"])
    (['a'], ['k=1/b'])
    """
    folders = {path: path.rpartition("/")[0] for path in paths}
    skipped = {folder for folder in set(folders.values()) if is_folder and any(map(_is_skipped, folder.split("/")))}
    seen = [path for path, folder in folders.items() if not _is_skipped(path[len(folder) :].lstrip("/"))]
    seen = [path for path in seen if folders[path] not in skipped]
    keyed = [path for path in seen if "=" in folders[path]]
    if is_folder:
        return keyed or [path for path in seen if not folders[path]]
    if keyed and len(keyed) < len(seen):
        raise InvalidArgumentError(
            "the files of a list must lie in key=value folders, all or none",
            got=next(path for path in seen if "=" not in folders[path]),
            do="pass two lists",
        )
    return seen


def _is_skipped(name: str) -> bool:
    return is_hidden(name) or name.endswith(_UNFINISHED)


def other_names(spark: SparkSession) -> str | None:
    """The reason why Spark may skip other names of files than zonebloom, by a setting of Spark 4.3; None if not."""
    skipped = spark.conf.get(_SKIPPED, _HIDDEN)
    return None if skipped == _HIDDEN else f"Spark skips files by the names {skipped}"
