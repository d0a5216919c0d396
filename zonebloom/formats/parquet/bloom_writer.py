"""Copies of Parquet files with bloom filters, by which other engines skip row groups without zonebloom.

A copy has the bytes of its source up to the footer, then the filters, then the footer with the filters' positions. The
footer is cut into fields without a schema, so that unknown fields stay.

Spec: specs/parquet-blooms.md#add_parquet_blooms
"""

from __future__ import annotations

import contextlib
import os
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from zonebloom.bloom.hashing import column_array, hash_plan, hash_values, names_of
from zonebloom.bloom.physical_values import plain_type, plain_values, value_type
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.bloom.sizing import Sizing, check_fpp, num_blocks_for
from zonebloom.formats.detect import open_dataset
from zonebloom.formats.folder import ParquetDataset
from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.fields import Chunk, FileMeta, Group, Meta
from zonebloom.formats.parquet.file import DataFile, has_column
from zonebloom.formats.parquet.row_groups import plain_chunk, plain_fields
from zonebloom.formats.parquet.thrift import ThriftError
from zonebloom.ground.arrow import compute as pc, distinct
from zonebloom.ground.errors import (
    ColumnNotFoundError,
    DataFileError,
    InvalidArgumentError,
    StorageError,
    UnsupportedTypeError,
    first_line,
)
from zonebloom.stores.local_file import LocalFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

_MAX_DIGITS = 38
"""Digits of the widest decimal that DuckDB 2.0 has; it reads a wider one as a double."""
_MAGIC = b"PAR1"
"""The last bytes of a file, after the footer and its length."""

Filters = Mapping[tuple[int, int], Sbbf]
"""By row group and leaf."""


def add_parquet_blooms(
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    target: str | os.PathLike[str],
    columns: str | Sequence[str],
    *,
    fpp: float = 0.01,
    sizing: Sizing = "power_of_two",
) -> list[str]:
    """Copy Parquet files into a folder, with a bloom filter for each row group of `columns`; the paths of the copies.

    Pages, page indexes, statistics, metadata and unknown fields stay as they are. DuckDB, DataFusion, Spark and others
    skip row groups by the filters. No file is changed or replaced; after an error no copy is left.

    Parameters
    ----------
    source
        A local folder, file or list of files; not a Delta or Iceberg table.
    target
        A folder outside of `source`, made if it is missing. Copies have the paths of their sources.
    columns
        Names of columns; leaves of structs are written `a.b`. A file without one of them is copied without its filter.
    fpp
        False positive probability of each filter, from 1e-12 to below 1.
    sizing
        The rule for the size of a filter by `fpp` and the row group's distinct values, as for `build_index`.

    Raises
    ------
    ColumnNotFoundError, UnsupportedTypeError, InvalidArgumentError
        Before the first copy: a column does not exist, its stored bytes are unknown, DuckDB reads it as another type, a
        column chunk has a filter already, or a copy would replace a file.
    DataFileError
        A file cannot be read, is encrypted, or changes during the copy.

    Notes
    -----
    Cost: the columns are read and hashed once, and the files copied; memory is the hashes of one row group.

    Spec: specs/parquet-blooms.md#add_parquet_blooms
    """
    names = names_of(columns)
    check_fpp(fpp)
    num_blocks_for(1, fpp, sizing)
    dataset = open_dataset(source)
    if not isinstance(dataset, ParquetDataset) or dataset.is_remote:
        raise InvalidArgumentError("files must be local, and of no table, to be copied with filters", got=f"{source!r}")
    root, folder = Path(dataset.location), Path(target).absolute()
    if dataset.inside(str(folder)) is not None:
        raise InvalidArgumentError(f"copies must go outside of the data set {root}", got=folder)
    paths = list(dataset.list())
    taken = [path for path in paths if os.path.lexists(folder / path)]
    if taken:
        raise InvalidArgumentError(f"no file may be there to copy {root} to {folder}", got=taken[0])
    _check_columns(dataset, paths, names)
    written: list[str] = []
    try:
        for path in paths:
            with dataset.open(path) as file:
                _copy(root / path, folder / path, file, _filters(file, names, fpp, sizing))
            written.append(str(folder / path))
    except BaseException:
        for copy in written:
            Path(copy).unlink(missing_ok=True)
        raise
    return written


def _check_columns(dataset: ParquetDataset, paths: Iterable[str], names: Sequence[str]) -> None:
    """Refuse impossible columns, before the first copy."""
    missing, names_of_files = set(names), set()
    for path in paths:
        with dataset.open(path) as file:
            names_of_files.update(file.schema.names)
            for name in names:
                if not has_column(file.schema, name):
                    continue
                missing.discard(name)
                leaf = file.leaf_of(name)
                if leaf is None:
                    raise InvalidArgumentError(
                        "a column must be one leaf with a path of its own", got=f"{name} in {path}"
                    )
                hash_plan(file.leaves[leaf][1])
                wide = _read_as_double(file, leaf)
                if wide is not None:
                    raise UnsupportedTypeError(
                        "a column with filters must be of a type that engines read as it is",
                        got=f"{name} of {wide} in {path}",
                        do="DuckDB would look up a double and lose rows",
                    )
                if _plain(file, leaf) is None:
                    physical = file.metadata.schema.column(leaf).physical_type
                    raise UnsupportedTypeError(
                        "a column with filters must have values whose stored bytes are known",
                        got=f"{name} in {path}, stored as {physical}",
                    )
                own = file.own_filters(leaf)
                if own:
                    got = own[0].problem or "some"
                    raise InvalidArgumentError(
                        f"column {name} of {path} must have no filters yet", got=got, do="leave it out"
                    )
    if missing:
        raise ColumnNotFoundError.among(min(missing), names_of_files, dataset.location)


def _read_as_double(file: DataFile, leaf: int) -> pa.DataType | None:
    """The type of a leaf that DuckDB 2.0 reads as float or double, so that it looks up other bytes; else None."""
    leaf_type, described = value_type(file.leaves[leaf][1]), file.metadata.schema.column(leaf)
    is_wide = pa.types.is_decimal(leaf_type) and described.precision > _MAX_DIGITS
    return leaf_type if is_wide or pa.types.is_float16(leaf_type) else None


def _plain(file: DataFile, leaf: int) -> pa.DataType | None:
    return plain_type(file.leaves[leaf][1], file.metadata.schema.column(leaf))


# --- the filters ------------------------------------------------------------------------------------------------------


def _filters(file: DataFile, names: Sequence[str], fpp: float, sizing: Sizing) -> dict[tuple[int, int], Sbbf]:
    filters = {}
    for name in names:
        leaf, start = file.leaf_of(name), 0
        if leaf is None:
            continue
        for group, rows in enumerate(file.row_group_rows):
            hashes = _distinct_hashes(file, name, _plain(file, leaf), start, start + rows)
            filters[group, leaf] = Sbbf.with_blocks(num_blocks_for(len(hashes), fpp, sizing))
            filters[group, leaf].insert_hashes(hashes)
            start += rows
    return filters


def _distinct_hashes(file: DataFile, name: str, plain: pa.DataType, start: int, stop: int) -> NDArray[np.uint64]:
    """Hashes of the values in some rows, and of what engines may look up for them: both zeros, both quiet NaNs."""
    batches = file.column_batches([name], start, stop)
    parts = [stored_hashes(column_array(batch, name), plain) for batch in batches]
    return distinct(np.concatenate([np.empty(0, np.uint64), *parts]))


def stored_hashes(values: pa.Array, plain: pa.DataType) -> NDArray[np.uint64]:
    """The hashes of values as Parquet stores them, in type `plain`, and of what engines may look up for them."""
    return np.asarray(hash_values(_with_quiet_nans(plain_values(values, plain))), np.uint64)


def _with_quiet_nans(values: pa.Array) -> pa.Array:
    """`values`, and if a NaN is among them, the NaN of either sign: to Spark all are equal, and it looks up one."""
    if not pa.types.is_floating(values.type) or not pc.any(pc.is_nan(values)).as_py():
        return values
    nans = np.copysign(np.nan, [1, -1]).astype(values.type.to_pandas_dtype())
    return pa.concat_arrays([values, pa.array(nans, values.type)])


# --- the file ---------------------------------------------------------------------------------------------------------


def _copy(source: Path, target: Path, file: DataFile, filters: Filters) -> None:
    """Write the copy under a temporary name, read its filters back, and rename it if its name is free."""
    staged = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.touch(0o600)  # for its owner alone, until it has the mode of its source
        shutil.copyfile(source, staged)
        with staged.open("r+b") as copy:
            copy.seek(file.footer.start)
            footer = copy.read()[: -len(_MAGIC) - 4]
            copy.truncate(copy.seek(file.footer.start))
            places = {key: (copy.tell(), copy.write(filters[key].to_parquet_bytes())) for key in sorted(filters)}
            footer = _with_filters(footer, places)
            copy.write(footer + len(footer).to_bytes(4, "little") + _MAGIC)
        file.check_unchanged()
        _check_copy(staged, file, filters)
        shutil.copymode(source, staged)
        os.link(staged, target)
    except (ThriftError, KeyError) as error:
        raise DataFileError(f"data file {source} must have a footer that can be rewritten", got=error) from error
    except OSError as error:
        raise StorageError(f"cannot write {target}: {first_line(error)}") from error
    finally:
        with contextlib.suppress(OSError):  # of a folder in which nothing can be written
            staged.unlink(missing_ok=True)


def _check_copy(path: Path, source: DataFile, filters: Filters) -> None:
    with DataFile(LocalFile(path)) as copy:
        same = copy.schema.equals(source.schema) and copy.row_group_rows == source.row_group_rows
        own = [chunk for leaf in {leaf for _group, leaf in filters} for chunk in copy.own_filters(leaf)]
    if not same or {(chunk.row_group, chunk.leaf): chunk.filter for chunk in own} != filters:
        raise StorageError("a copy must be read back as it was written", got=f"another one at {path}")


def _with_filters(footer: bytes, places: Mapping[tuple[int, int], tuple[int, int]]) -> bytes:
    """The footer with the offset and length of each filter, and all other fields unchanged."""
    fields = plain_fields(footer)
    groups = thrift.structs_of(fields, FileMeta.ROW_GROUPS)
    for group, written in enumerate(groups):
        in_group = thrift.fields_of(written)
        chunks = thrift.structs_of(in_group, Group.COLUMNS)
        for leaf, chunk in enumerate(chunks):
            if (group, leaf) in places:
                chunks[leaf] = _chunk_with_filter(chunk, *places[group, leaf])
        groups[group] = thrift.write_struct(in_group | {Group.COLUMNS: thrift.structs(chunks)})
    return thrift.write_struct(fields | {FileMeta.ROW_GROUPS: thrift.structs(groups)})


def _chunk_with_filter(chunk: bytes, offset: int, length: int) -> bytes:
    fields = plain_chunk(chunk)
    place: dict[int, thrift.Field] = {Meta.BLOOM_OFFSET: (thrift.I64, offset), Meta.BLOOM_LENGTH: (thrift.I32, length)}
    described = thrift.write_struct(thrift.fields_of(fields[Chunk.META][1]) | place)
    return thrift.write_struct(fields | {Chunk.META: (thrift.STRUCT, described)})
