"""New data files of an Iceberg table: written by partition, and counted.

Design: docs/design/engines.md#iceberg
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from pyiceberg.io.fileformat import FileFormatFactory
from pyiceberg.io.pyarrow import bin_pack_arrow_table, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.partitioning import PartitionField, PartitionFieldValue, PartitionKey
from pyiceberg.schema import sanitize_column_names
from pyiceberg.table import Table, TableProperties
from pyiceberg.transforms import VoidTransform
from pyiceberg.typedef import Record
from pyiceberg.utils.concurrent import ExecutorFactory
from pyiceberg.utils.properties import property_as_int

from zonebloom.bloom.hashing import column_array
from zonebloom.ground.arrow import plain_array
from zonebloom.ground.errors import DataFileError


class DataFileWriter:
    """Writes rows as Parquet files of the table's target size, split by its partitions.

    pyiceberg's own writer makes null lists of structs empty.
    """

    def __init__(self, table: Table) -> None:
        self.files: list[DataFile] = []
        self._table = table
        self._uuid = uuid.uuid4()
        self._counter = itertools.count()
        self._declared = schema_to_pyarrow(table.schema(), include_field_ids=False)
        self._stored = sanitize_column_names(table.schema())
        self._labels = schema_to_pyarrow(self._stored)

    def write(self, rows: pa.Table) -> None:
        """Add `rows`. They must have the table's columns and types.

        Raises
        ------
        DataFileError
            The written files have more or fewer rows than were given.
        """
        if not rows.num_rows:
            return
        target = property_as_int(
            self._table.properties,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
            TableProperties.WRITE_TARGET_FILE_SIZE_BYTES_DEFAULT,
        )
        parts = [
            (key, batches)
            for key, part in _partitions(self._table, rows.cast(self._declared))
            for batches in bin_pack_arrow_table(part, target)
        ]
        files = list(ExecutorFactory.get_or_create().map(self._written, *zip(*parts, strict=True)))
        if (num_rows := sum(file.record_count for file in files)) != rows.num_rows:
            raise DataFileError(
                f"files of {self._table.location()} must have the {rows.num_rows} rows that were written", got=num_rows
            )
        self.files += files

    def _written(self, key: PartitionKey | None, batches: list[pa.RecordBatch]) -> DataFile:
        """A data file of these rows."""
        name = f"00000-{next(self._counter)}-{self._uuid}.parquet"
        path = self._table.location_provider().new_data_location(data_file_name=name, partition_key=key)
        output = self._table.io.new_output(path)
        parquet = FileFormatFactory.get(FileFormat.PARQUET)
        with parquet.create_writer(output, self._stored, self._table.properties) as file:
            file.write(pa.Table.from_batches([pa.record_batch(_Labelled(batch, self._labels)) for batch in batches]))
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=path,
            file_format=FileFormat.PARQUET,
            partition=Record() if key is None else key.partition,
            file_size_in_bytes=len(output),
            sort_order_id=None,
            spec_id=self._table.metadata.default_spec_id,
            equality_ids=None,
            key_metadata=None,
            **file.result().to_serialized_dict(),
        )


@dataclass(frozen=True, slots=True)
class _Labelled:
    """A batch whose fields have other names and metadata, at any depth. It shares the memory of the values."""

    batch: pa.RecordBatch
    labels: pa.Schema

    def __arrow_c_array__(self, requested_schema: object = None) -> tuple[object, object]:
        return self.labels.__arrow_c_schema__(), self.batch.__arrow_c_array__(requested_schema)[1]


def _partitions(table: Table, rows: pa.Table) -> Iterator[tuple[PartitionKey | None, pa.Table]]:
    """`rows` by the values of the table's partition fields.

    pyiceberg's own split gives the rows of both zeros twice, and loses the rows of NaN.
    """
    spec = table.spec()
    if spec.is_unpartitioned():
        yield None, rows
        return
    columns = [_partition_values(table, field, rows) for field in spec.fields]
    groups = np.zeros(rows.num_rows, np.int64)
    for values in columns:
        encoded = values.dictionary_encode(null_encoding="encode")
        groups = groups * len(encoded.dictionary) + encoded.indices.to_numpy()
        _, groups = np.unique(groups, return_inverse=True)
    for number in range(int(groups.max()) + 1):
        is_in = groups == number
        first = int(is_in.argmax())
        pairs = zip(spec.fields, columns, strict=True)
        values = [PartitionFieldValue(field, column[first].as_py()) for field, column in pairs]
        yield PartitionKey(values, spec, table.schema()), rows.filter(pa.array(is_in))


def _partition_values(table: Table, field: PartitionField, rows: pa.Table) -> pa.Array:
    """The value of a partition field for each row."""
    if isinstance(field.transform, VoidTransform):
        return pa.nulls(rows.num_rows, pa.int32())
    source, name = table.schema().find_field(field.source_id), table.schema().find_column_name(field.source_id)
    column = column_array(rows, name)
    if pa.types.is_large_binary(column.type):  # pyiceberg 0.12 truncates no large one
        column = column.cast(pa.binary())
    values = field.transform.pyarrow_transform(source.field_type)(column)
    return plain_array(values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values)
