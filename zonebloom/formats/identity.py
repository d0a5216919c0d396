"""Which data set is meant: the rule by which two names, or a name and a version file, are of the same one.

A data set is its folder, whichever links lead there; without a folder of its own it is its files. A table is one data
set in all its versions. A data set that moved is another one until a refresh of the index from its new place.

Spec: specs/index-format.md#identity
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from zonebloom.formats.dataset import Dataset, DatasetSnapshot
from zonebloom.formats.detect import dataset_from_json
from zonebloom.formats.folder import ParquetDataset
from zonebloom.ground.errors import DataFileError
from zonebloom.ground.reasons import counted
from zonebloom.stores.locations import is_url
from zonebloom.stores.store import Store

NAMES = ("root", "layout", "files", "metadata", "catalog", "name")
"""The entries of a version file that say which data set the index is of. A restore leaves them as they are now."""


def names_in(described: Mapping[str, Any]) -> dict[str, Any]:
    """What a version file says of which data set the index is, and of its kind."""
    return {name: described[name] for name in ("kind", *NAMES) if name in described}


def places_of_data(data: Dataset | DatasetSnapshot) -> list[str]:
    """The folder of a data set, or its files."""
    if isinstance(data, ParquetDataset) and data.layout != "folder":
        return [data.absolute(file) for file in data.files]
    return [data.location]


def are_same(places: Sequence[str], others: Sequence[str]) -> bool:
    """Whether two data sets with such places are the same one."""
    return places == others or sorted(map(_resolved, places)) == sorted(map(_resolved, others))


def is_described(described: Mapping[str, Any], index: Store, data: Dataset | DatasetSnapshot) -> bool:
    """Whether a version file of the index in the store `index` is of `data`; of a renamed index beside its data, False.

    Raises
    ------
    UnsupportedFormatError
        A newer version of zonebloom wrote the description.
    """
    try:
        own = dataset_from_json(dict(described), index)
    except DataFileError:  # the index was beside its data set, and has another name now
        return False
    return are_same(places_of_data(own), places_of_data(data))


def name_of_data(data: Dataset | DatasetSnapshot) -> str:
    """A data set in a message."""
    places = places_of_data(data)
    return f"{places[0]} and {counted(len(places) - 1, 'other file')}" if len(places) > 1 else places[0]


def _resolved(place: str) -> str:
    return place.rstrip("/") if is_url(place) else os.path.realpath(place)
