"""`erase`: find the rows of some values, erase them, prove that they are gone, and keep a record.

Design: docs/design/erasing.md
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

from zonebloom.erasing.erasure import ErasedFile, Erasure
from zonebloom.erasing.files import current_rows, erase_from_files, erased_files, held_files
from zonebloom.erasing.journal import Journal, now
from zonebloom.formats import Dataset, dataset_from_json, open_dataset
from zonebloom.formats.delta import DeltaDataset
from zonebloom.formats.folder import ParquetDataset
from zonebloom.formats.iceberg.dataset import IcebergDataset
from zonebloom.formats.identity import is_described, name_of_data, places_of_data
from zonebloom.ground.arrow import python_value
from zonebloom.ground.errors import ConcurrentCommitError, InvalidArgumentError, StorageError, Words, first_line
from zonebloom.ground.version import __version__
from zonebloom.index.doors import open_index
from zonebloom.index.index import Index
from zonebloom.index.report.output_path import check_output
from zonebloom.predicates.literals import collected, null_mask
from zonebloom.search.view import View


def erase(
    source: Any,
    column: str,
    values: Any,
    *,
    record: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    index: str | os.PathLike[str] | None = None,
    storage_options: Mapping[str, str] | None = None,
) -> Erasure:
    """Erase each row whose `column` equals one of `values`; every other row stays, bit by bit. This changes data files.

    Files of a folder are replaced one by one, each by a file that is written as the old one was. A Delta or Iceberg
    table is changed by its own delete; then its old files are removed, and its old versions with them. Then the index
    is refreshed, the rows are searched again, and old versions of the index are removed. A call that was killed goes on
    when it is made again with the same `record`.

    Parameters
    ----------
    source
        A folder, a file, a table or an index: a path or a URL, an `Index`, a `DeltaTable`, or a pyiceberg `Table`. A
        table loses the rows of its newest version, also if the object has loaded an older one.
    column
        An indexed column.
    values
        A list, a NumPy or Arrow array, a series; without nulls.
    record
        A new file `*.json` for the result.
    dry_run
        Only find the rows; nothing is changed or written.
    index
        Where the index is, if not beside the data.
    storage_options
        As for `open_index`.

    Raises
    ------
    IndexNotFoundError, ColumnNotFoundError
        There is no index of the column.
    InvalidArgumentError
        A value is null, the record exists or is of another erasure, or the table is none that can be erased from.
    DataFileError
        A file cannot be read or rewritten. Files that were replaced before stay so; call again.
    ConcurrentCommitError
        Others changed the table during each attempt to remove its old files, or another erasure runs; call again.
    StorageError
        A store refuses.

    Design: docs/design/erasing.md
    """
    opened = _opened(source, index, storage_options)
    is_path = isinstance(source, (str, os.PathLike))
    place = str(source) if is_path else opened.location if source is opened else opened.data.location
    command = f"zonebloom.erase({place!r}, {column!r}, ...)"
    done = erase_by(opened, column, values, record=record, dry_run=dry_run, command=command)
    if not dry_run:
        _move_on(source, opened.data)
    return done


def _move_on(given: Any, data: Dataset) -> None:
    """Have a given table load the newest version, as after its own delete: the files of its old version are gone."""
    if isinstance(data, DeltaDataset) and hasattr(given, "table_uri"):
        given._table = data.table()._table  # noqa: SLF001 - it has no public name
    elif isinstance(data, IcebergDataset) and hasattr(given, "metadata_location"):
        newest = data.table()
        given.metadata, given.metadata_location, given.io = newest.metadata, newest.metadata_location, newest.io


def _opened(source: Any, index: Any, storage_options: Mapping[str, str] | None) -> Index:
    opened = source if isinstance(source, Index) else _opened_by(source, index, storage_options)
    if isinstance(opened.data, (DeltaDataset, IcebergDataset)):
        opened.data.forget_object()  # the object may have loaded an older version
    opened.newest()  # refuses an index that is of another data set by now
    described = opened.view().snapshot.manifest.dataset
    is_named = index is None and opened is not source
    if not is_named and not is_described(described, opened.store, data := opened.data.pin()):
        raise InvalidArgumentError(
            f"index must be that of {name_of_data(data)}",
            got=f"the one at {opened.location}, of {name_of_data(dataset_from_json(described, opened.store))}",
            do="if the data set moved, open_index(index, dataset=source).refresh()",
        )
    return opened


def _opened_by(source: Any, index: Any, storage_options: Mapping[str, str] | None) -> Index:
    if isinstance(source, (str, os.PathLike)):
        location, dataset = source, None if index is None else source
    elif not (hasattr(source, "table_uri") or hasattr(source, "location")):
        raise InvalidArgumentError(
            "source must be a path, a URL, an Index, a DeltaTable or a Table of pyiceberg",
            got=f"a {type(source).__name__}",
            do="of a list of files give the folder of its index",
        )
    else:
        location, dataset = open_dataset(source).location, source
    return open_index(location if index is None else index, storage_options=storage_options, dataset=dataset)


def erase_by(
    index: Index, column: str, values: Any, *, record: str | os.PathLike[str] | None, dry_run: bool, command: str
) -> Erasure:
    """As `erase`, by an opened index."""
    keys = collected(values)
    if null_mask(keys).any():
        raise InvalidArgumentError("values must not be null to be erased", got="a null", do="leave it out")
    plain = (python_value(key) if isinstance(key, pa.Scalar) else key for key in keys)
    texts = sorted({str(Decimal(key) if type(key) is int else key) for key in plain})  # any int, of any length
    kind = index.dataset_kind
    if kind == "lance":
        raise InvalidArgumentError(
            "rows are erased from folders, Delta and Iceberg",
            got=f"the Lance table {index.data.location}",
            do="run its delete, optimize.compact_files() and cleanup_old_versions(timedelta(0)), and refresh the index",
        )
    pinned = index.data.pin()
    if isinstance(pinned, ParquetDataset):
        pinned.check_above()
    if record is not None:
        check_output(record, pinned, index.location, endings=(".json",), overwrite=True, option=Words.RECORD)
    listed = "".join(f"{text}\n" for text in texts).encode("utf-8", "surrogatepass")
    request = {
        "dataset": places_of_data(index.data),
        "column": column,
        "values_sha256": hashlib.sha256(listed).hexdigest(),
        "num_values": len(texts),
        "index_version": index.version,
        "table_version": _table_version(index.view()),
    }
    with closing(Journal(None if dry_run or record is None else Path(record), request)) as journal:
        if texts and not dry_run:  # without values nothing is vacuumed or expired either
            try:
                _erase_all(index, column, keys, journal)
            except StorageError as error:
                if not isinstance(error.__cause__, FileNotFoundError):
                    raise
                raise _disturbed(index, error) from error
        erasure = _erasure(index, kind, journal, rows_left(index, column, keys), command, is_dry_run=dry_run)
        journal.finish(erasure.to_dict())
    return erasure


def _erase_all(index: Index, column: str, keys: Any, journal: Journal) -> None:
    """Erase the rows from the data, and what describes them from the index."""
    data = index.data
    if isinstance(data, ParquetDataset):
        erase_from_files(index, column, keys, journal)
    elif isinstance(data, DeltaDataset):
        from zonebloom.erasing.delta import erase_from_delta  # noqa: PLC0415 - needs the extra of the table

        erase_from_delta(index, data, column, keys, journal)
    elif isinstance(data, IcebergDataset):
        from zonebloom.erasing.iceberg import erase_from_iceberg  # noqa: PLC0415 - as above

        erase_from_iceberg(index, data, column, keys, journal)
    try:
        index.refresh()
        has_gone_zones = any(indexed.num_gone_zones for indexed in index.indexed_columns())
        if has_gone_zones or index.view().snapshot.manifest.dropped:
            index.optimize()  # without the filters and the paths of the old files
        index.vacuum(older_than=timedelta(0))
    except ConcurrentCommitError as error:
        raise _disturbed(index, error) from error


def _disturbed(index: Index, error: Exception) -> ConcurrentCommitError:
    return ConcurrentCommitError(
        f"no other erasure and no other change of the index {index.location} must run meanwhile",
        got=first_line(error).partition("; ")[0],
        do="call again, with the same record, when the other has ended: erased rows stay so, and count once",
    )


def rows_left(index: Index, column: str, keys: Any) -> list[ErasedFile]:
    """The files that hold rows of the keys now."""
    return held_files(*current_rows(index, column, keys))


def _table_version(view: View) -> int | None:
    declared = view.dataset.declared
    return None if declared is None else next(iter(declared.state.values()), None)


def _erasure(
    index: Index, kind: str, journal: Journal, left: list[ErasedFile], command: str, *, is_dry_run: bool
) -> Erasure:
    request, before = journal.last("request"), journal.last("request")["table_version"]
    files = left if is_dry_run else list(_files(journal, left))
    after = _table_version(index.view())
    return Erasure(
        dataset=", ".join(request["dataset"]),
        kind=kind,
        column=request["column"],
        num_values=request["num_values"],
        values_sha256=request["values_sha256"],
        num_rows_erased=sum(file.num_rows for file in files),
        num_rows_left=sum(file.num_rows for file in left),
        files=tuple(files),
        removed=tuple(dict.fromkeys(path for paths in journal.all("removed") for path in paths)),
        index_versions=(request["index_version"], index.version),
        table_versions=None if before is None or after is None else (before, after),
        still_held=() if is_dry_run else tuple(_holders(index, journal)),
        started_at=request["started_at"],
        finished_at=now(),
        command=command,
        zonebloom_version=__version__,
        is_dry_run=is_dry_run,
    )


def _files(journal: Journal, left: list[ErasedFile]) -> Iterator[ErasedFile]:
    """The files that were replaced, and those of a table that do not hold rows any more."""
    yield from erased_files(journal)
    held = {fields["path"]: ErasedFile(**fields) for step in journal.all("held") for fields in step["files"]}
    now_held = {file.path for file in left}
    yield from (file for path, file in held.items() if path not in now_held)


def _holders(index: Index, journal: Journal) -> Iterator[str]:
    """What may still hold the rows."""
    for location in dict.fromkeys(journal.all("retained")):
        yield f"{location}: its old content stays as an old version of the object, or under another name of the file"
    skipped = index.data.pin().num_skipped()
    if skipped:
        yield f"{skipped:,} Parquet files whose names begin with _ or . in {index.data.location}: they were not read"
    column = journal.last("request")["column"]
    if column in {field.name for field in index.view().partition_fields}:
        yield f"folders and names of files in {index.data.location}, this record too: {column} is a partition column"
    yield from dict.fromkeys(holder for holders in journal.all("holders") for holder in holders)
