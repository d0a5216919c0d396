"""Rows erased from Parquet files: each file is replaced by one without the rows, in one step.

A file is replaced only if it is still the version in which the rows were found. A file that another writer changed is
searched again. Before each replacement the journal knows the file's new content, so a killed call counts it once.

Design: docs/design/erasing.md#replace
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from zonebloom.erasing.erasure import ErasedFile, tag_of
from zonebloom.erasing.journal import Journal
from zonebloom.formats.folder import ParquetDataset
from zonebloom.formats.parquet.footer import read_footer
from zonebloom.formats.parquet.without_rows import write_without_rows
from zonebloom.formats.table_folders import check_is_no_part
from zonebloom.ground.arrow import to_numpy
from zonebloom.ground.errors import DataFileError, first_line
from zonebloom.index.index import Index
from zonebloom.search.locate import locate
from zonebloom.search.view import View
from zonebloom.stores.fingerprint import Fingerprint
from zonebloom.stores.open import open_store
from zonebloom.stores.store import Store
from zonebloom.stores.stored_file import StoredFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

PASSES = 4
"""Searches for rows that other writers may have added meanwhile."""
_PART_BYTES = 8 << 20
_SUMMARY = "_metadata"
"""The footers of all files of a folder, which Dask and Spark read instead of the files' own."""
_KEYS_OF_HUDI = {b"hoodie_min_record_key", b"hoodie_max_record_key", b"org.apache.hudi.bloomfilter"}
"""Metadata that Hudi makes of the keys of all rows of a file, and does not do without."""


def current_rows(index: Index, column: str, values: Any) -> tuple[View, dict[str, NDArray[np.int64]]]:
    """The rows that equal any of `values` now, read and compared: for each file with some, their numbers in order.

    Files that others change meanwhile are listed and read again.

    Raises
    ------
    DataFileError
        A file cannot be read, or files changed during each attempt.
    """
    for num_left in reversed(range(PASSES)):
        view = index.view()
        try:
            located = locate(view, column, values, exact=True)
            break
        except DataFileError as error:
            if index.view().listing == view.listing:
                raise
            if not num_left:
                raise DataFileError(
                    "files must not change during an erasure", got=first_line(error), do="call again"
                ) from error
    encoded = located["path"].combine_chunks().dictionary_encode()
    is_row = encoded.is_valid()
    paths, rows = encoded.filter(is_row), located["row"].combine_chunks().filter(is_row)
    numbers, offsets = to_numpy(paths.indices, np.int32), to_numpy(rows, np.int64)
    names = sorted(enumerate(paths.dictionary.to_pylist()), key=itemgetter(1))
    return view, {name: np.unique(offsets[numbers == number]) for number, name in names}


def held_files(view: View, rows: dict[str, NDArray[np.int64]]) -> list[ErasedFile]:
    """The files with rows, as they are now."""
    listed = {path: view.files[path].fingerprint for path in rows}
    return [ErasedFile(path, len(rows[path]), now.size, tag_of(now)) for path, now in listed.items()]


def erase_from_files(index: Index, column: str, values: pa.Array | list[Any], journal: Journal) -> None:
    """Erase the rows from all files, and refresh the index; `journal` has each step.

    Raises
    ------
    DataFileError
        A file with rows of the values cannot be read or rewritten; it is as it was.
    """
    for _ in range(PASSES):
        dataset = index.view().dataset
        if not isinstance(dataset, ParquetDataset):
            raise TypeError("only folders and files come here")
        _settle(dataset.store, journal)
        view, rows = current_rows(index, column, values)
        if not rows:
            break
        held = held_files(view, rows)
        if not dataset.is_remote:
            check_is_no_part(dataset.absolute(file.path) for file in held)  # by links of single files
        for file in held:
            _erase_from(dataset.store, file, view.files[file.path].fingerprint, rows[file.path], journal)
        index.refresh()


def _erase_from(store: Store, file: ErasedFile, listed: Fingerprint, rows: NDArray[np.int64], journal: Journal) -> None:
    """Replace a file by one without `rows`, unless it changes meanwhile."""
    try:
        with closing(store.open(file.path, listed)) as source, store.staging(file.path) as staged:
            write_without_rows(source, rows, staged)
            if source.fingerprint != listed:
                return
            new_bytes = staged.tell()
            staged.seek(0)
            digest = hashlib.file_digest(staged, "sha256").hexdigest()  # type: ignore[arg-type]  # typeshed asks for more
            _remove_side_files(store, file.path, journal)
            journal.add("holders", list(_remaining(store, file.path, source)))
            if store.retains_old(file.path):
                journal.add("retained", store.absolute(file.path))
            journal.add("replacing", {**asdict(file), "bytes_after": new_bytes, "sha256": digest})
            if store.replace(file.path, staged, listed):
                _note_replaced(store, journal)
    except DataFileError:
        if store.stats([file.path]).get(file.path) == listed:  # else it changed while it was read
            raise


def _note_replaced(store: Store, journal: Journal) -> None:
    """Note that the last file was replaced, with its tag now."""
    fields = journal.last("replacing")
    now = store.stats([fields["path"]]).get(fields["path"])
    journal.add("replaced", {**fields, "tag_after": None if now is None else tag_of(now)})


def _settle(store: Store, journal: Journal) -> None:
    """Find out whether the file that a killed call was about to replace was replaced, by its content."""
    begun, done = journal.last("replacing"), journal.last("replaced")
    if begun is None or (done is not None and done["sha256"] == begun["sha256"] and done["path"] == begun["path"]):
        return
    now = store.stats([begun["path"]]).get(begun["path"])
    if now is None or now.size != begun["bytes_after"]:
        return
    if _content_digest(store, begun["path"], now) == begun["sha256"]:
        _note_replaced(store, journal)


def _content_digest(store: Store, path: str, listed: Fingerprint) -> str:
    digest = hashlib.sha256()
    with closing(store.open(path, listed)) as file:
        for offset in range(0, listed.size, _PART_BYTES):
            digest.update(file.read_ranges([(offset, min(_PART_BYTES, listed.size - offset))])[0])
    return digest.hexdigest()


def erased_files(journal: Journal) -> Iterator[ErasedFile]:
    """The files that were replaced."""
    for fields in journal.all("replaced"):
        yield ErasedFile(**{name: fields[name] for name in ErasedFile.__dataclass_fields__})


# --- side files -------------------------------------------------------------------------------------------------------


def _remove_side_files(store: Store, path: str, journal: Journal) -> None:
    """Remove what describes the old content: Hadoop's checksum, and summaries of the footers of a folder's files.

    They go first: without them every reader reads both the old and the new file.
    """
    for side in _present_sides(store, path):
        place, _, name = side.rpartition("/")
        journal.add("removed", [store.relative(side) or side])
        open_store(place, store.options).delete(name)  # a folder may be a link, which `store` does not follow


def _present_sides(store: Store, path: str) -> Iterator[str]:
    yield from map(store.absolute, store.stats(list(_side_files(path))))
    if not store.is_remote:  # the file that a link leads to is replaced
        checksum = next(_side_files(os.path.realpath(store.absolute(path))))
        if os.path.exists(checksum):  # noqa: PTH110 - text
            yield checksum


def _remaining(store: Store, path: str, source: StoredFile) -> Iterator[str]:
    """What describes the old content and stays: the writer's metadata, and summaries outside of the data set."""
    for key in (read_footer(source).metadata.metadata or {}).keys() & _KEYS_OF_HUDI:
        yield f"{store.absolute(path)}: {key.decode()} in its metadata, which Hudi made of the keys of all its rows"
    if not store.is_remote:
        absolute = store.absolute(path)
        for side in dict.fromkeys((*_side_files(absolute), *_side_files(os.path.realpath(absolute)))):
            if side.endswith(f"/{_SUMMARY}") and os.path.exists(side):  # noqa: PTH110 - text
                yield f"{side}: it describes the old file, with least and greatest values; write it anew, or remove it"


def _side_files(path: str) -> Iterator[str]:
    """Where the checksum of a file may be, and the summaries of the folders around it with theirs."""
    folder, slash, name = path.rpartition("/")
    yield f"{folder}{slash}.{name}.crc"
    while slash:
        yield f"{folder}/{_SUMMARY}"
        yield f"{folder}/.{_SUMMARY}.crc"
        folder, slash, _name = folder.rpartition("/")
    if not path.startswith("/"):
        yield _SUMMARY
        yield f".{_SUMMARY}.crc"
