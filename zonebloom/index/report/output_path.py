"""The check of an output path: outside of data sets and indexes; an existing file is replaced only on request.

An output file among data files would be read as data. An output file that replaces a data file loses rows.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from zonebloom.formats import DatasetSnapshot, ParquetDataset
from zonebloom.ground.errors import InvalidArgumentError, Words


def check_output(
    path: str | os.PathLike[str],
    dataset: DatasetSnapshot,
    index: str,
    *,
    endings: Sequence[str],
    overwrite: bool,
    option: Words = Words.OUTPUT,
) -> Path:
    """`path`, if a file may be written there; `option` is what errors call it.

    Raises
    ------
    InvalidArgumentError
        It has another ending, no folder, or would be data of the data set or part of the index; or it exists and is
        not to be replaced.
    """
    wanted = Path(path)
    if wanted.suffix not in endings:
        raise InvalidArgumentError(f"{option} {wanted} does not end in {' or '.join(endings)}")
    real, places, is_inside = os.path.realpath(wanted), [index, dataset.location], False
    if isinstance(dataset, ParquetDataset):
        is_inside = dataset.inside(str(wanted)) is not None
        is_file = os.path.exists(real) and not dataset.is_remote  # noqa: PTH110 - no error in a closed folder
        places = [index, *(map(dataset.absolute, dataset.list()) if is_file else ())]  # some may be links to it
    if is_inside or any(f"{real}/".startswith(f"{os.path.realpath(place)}/") for place in places):
        raise InvalidArgumentError(
            f"{option} {wanted} is in the data set or in its index", do="name a file in another folder"
        )
    if not os.path.isdir(wanted.parent):  # noqa: PTH112 - as above
        raise InvalidArgumentError(f"{option} must be in a folder that exists", got=wanted, do="make the folder")
    if os.path.exists(wanted) and not overwrite:  # noqa: PTH110 - as above; the write has it
        raise InvalidArgumentError(
            f"{option} {wanted} exists already", do=f"name another file, or add {Words.OVERWRITE}"
        )
    return wanted
