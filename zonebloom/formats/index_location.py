"""The location of a data set's index, and the relative name of the data set in it, so that both can move together.

Spec: specs/index-format.md#directory
"""

from __future__ import annotations

from collections.abc import Iterable

from zonebloom.ground.errors import DataFileError, Words
from zonebloom.stores.locations import Url, is_url, joined

INDEX_FOLDER = "_zonebloom"
"""Name of an index inside the folder of its data set."""
_ENDING = ".zonebloom"
_INSIDE, _BESIDE = "..", "beside"


def places_of(location: str) -> tuple[str, ...]:
    """Possible locations of the index of a folder or file: the default first, `_<name>.zonebloom` beside it.

    The default is beside, since Polars and DuckDB would read an index inside. A whole bucket or file system has no
    place beside it.
    """
    inside = joined(location, INDEX_FOLDER)
    folder, _, name = location.rpartition("/")
    if not name or (is_url(location) and not Url.parse(location).key):
        return (inside,)
    hidden = "." if "=" in name else "_"  # to Spark and to zonebloom `_a=b` is a partition, not a hidden name
    return f"{folder}/{hidden}{name}{_ENDING}", inside


def is_index_name(location: str) -> bool:
    """Whether `location` has a default name of an index."""
    return location.endswith((f"/{INDEX_FOLDER}", _ENDING))


def is_under(path: str, places: Iterable[str]) -> bool:
    """Whether a relative path is one of `places`, or in a folder of them; `.` is the whole data set."""
    return any(place in (path, ".") or path.startswith(f"{place}/") for place in places)


def written_root(location: str, index_location: str) -> str:
    """The name of the data set at `location` in the version file of the index; `root_of` reads it."""
    if index_location.rpartition("/")[0] == location:
        return _INSIDE
    return _BESIDE if index_location == places_of(location)[0] else location


def root_of(written: str, index_location: str) -> str:
    """The location that `written_root` wrote, for an index that is at `index_location` now.

    Raises
    ------
    DataFileError
        The index was beside its data, and has another name now.
    """
    folder, _, name = index_location.rpartition("/")
    if written == _INSIDE:
        return folder
    if written != _BESIDE:
        return written
    if name[:1] not in ("_", ".") or not name.endswith(_ENDING):
        raise DataFileError(
            f"an index beside its data must be named _<name>{_ENDING}",
            got=index_location,
            do=f"rename it, or name the data with {Words.DATASET}",
        )
    return f"{folder}/{name[1 : -len(_ENDING)]}"
