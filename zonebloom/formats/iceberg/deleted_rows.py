"""Rows that position deletes and deletion vectors took."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.bloom.addresses import MAX_ROWS
from zonebloom.formats.iceberg.errors import explained
from zonebloom.formats.iceberg.locations import relative_path
from zonebloom.ground.arrow import distinct, parquet as pq
from zonebloom.ground.errors import DataFileError, first_line

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile as LoggedFile
    from pyiceberg.table import FileScanTask

_WORD = 4
"""Bytes of the size before a deletion vector, and of the CRC-32 behind it."""


def deleted_rows(io: FileIO, location: str, tasks: Iterable[FileScanTask]) -> Mapping[str, NDArray[np.int64]]:
    """The deleted rows of the files that have some, by path; each delete file is read once."""
    read: dict[str, Mapping[str, NDArray[np.int64]]] = {}
    deleted: dict[str, NDArray[np.int64]] = {}
    for task in tasks:
        parts = []
        for deletes in task.delete_files:
            if deletes.file_path not in read:
                read[deletes.file_path] = _positions(io, deletes)
            parts.append(read[deletes.file_path].get(task.file.file_path, np.zeros(0, np.int64)))
        rows = distinct(np.concatenate(parts))
        rows = rows[(rows >= 0) & (rows < MAX_ROWS)]  # others delete nothing, for pyiceberg too
        if len(rows):
            deleted[relative_path(task.file.file_path, location)] = rows
    return deleted


def _positions(io: FileIO, deletes: LoggedFile) -> dict[str, NDArray[np.int64]]:
    """The positions in one delete file, by data file."""
    kind = str(deletes.file_format).rpartition(".")[2].upper()
    if kind not in ("PUFFIN", "PARQUET"):
        raise DataFileError("delete files must be Parquet or Puffin", got=f"{kind}: {deletes.file_path}")
    with explained("delete file", deletes.file_path), io.new_input(deletes.file_path).open() as file:
        payload = file.read()
    try:
        if kind == "PUFFIN":
            return _vectors(payload)
        return _grouped(pq.read_table(pa.BufferReader(payload), columns=["file_path", "pos"]))
    except (OSError, ValueError, KeyError, pa.ArrowException) as error:
        raise DataFileError(f"delete file {deletes.file_path} must be readable", got=first_line(error)) from error


def _vectors(payload: bytes) -> dict[str, NDArray[np.int64]]:
    from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file  # noqa: PLC0415 - an extra
    from pyiceberg.table.puffin import PuffinFile  # noqa: PLC0415 - an extra

    puffin = PuffinFile(payload)
    for blob in puffin.footer.blobs:  # pyiceberg 0.12 checks none
        data = puffin.get_blob_payload(blob)
        size = int.from_bytes(data[:_WORD], "big")
        body, checksum = data[_WORD : _WORD + size], data[_WORD + size :]
        if zlib.crc32(body).to_bytes(_WORD, "big") != checksum:
            raise ValueError(f"a vector of {blob.properties.get('referenced-data-file')} with another checksum")
    vectors = deletion_vectors_from_puffin_file(puffin)
    return {vector.referenced_data_file: vector.to_vector().to_numpy().astype(np.int64) for vector in vectors}


def _grouped(table: pa.Table) -> dict[str, NDArray[np.int64]]:
    paths = table["file_path"].combine_chunks().dictionary_encode()
    positions = table["pos"].to_numpy().astype(np.int64)
    codes = paths.indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    cuts = np.searchsorted(codes[order], np.arange(len(paths.dictionary) + 1))
    names = paths.dictionary.to_pylist()
    return {name: positions[order[cuts[i] : cuts[i + 1]]] for i, name in enumerate(names)}
