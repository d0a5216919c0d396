"""Finding the store of a location."""

from __future__ import annotations

import os

from zonebloom.stores.local import LocalStore
from zonebloom.stores.locations import StorageOptions, absolute, check_options, is_url
from zonebloom.stores.store import Store


def open_store(location: str | os.PathLike[str], storage_options: StorageOptions | None = None) -> Store:
    """The store below `location`, a local folder or a URL, which keeps the options; no request is made yet.

    Parameters
    ----------
    storage_options
        For a URL: credentials, region, endpoint and the like, under the names of the object_store library.

    Raises
    ------
    InvalidArgumentError
        No store has such a location, or the options are not a dict of texts.

    Spec: specs/index-format.md#locations
    """
    check_options(storage_options)
    where = absolute(location)
    if is_url(where):
        from zonebloom.stores.object import ObjectStore  # noqa: PLC0415 - local searches do without

        return ObjectStore(where, storage_options)
    return LocalStore(where, storage_options)
