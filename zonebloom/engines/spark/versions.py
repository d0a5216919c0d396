"""What PySpark 3.5 does not have, done by what it has.

Design: docs/design/spark.md#versions
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyspark
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from zonebloom.engines.spark.executors import changed_setting, setting
from zonebloom.engines.spark.scan.types import arrow_schema

IS_BEFORE_4 = pyspark.__version__.startswith("3.")
"""Whether PySpark has no Arrow tables and no DESCRIBE … AS JSON, and prints Columns as `(a = x)`."""
VALUE_BYTES = 8
"""Bytes that Spark's planner counts for a value of a range, and for the output of `mapInArrow` over it."""
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"
_OPTION = re.compile(r"(?:^|, )([^=]*)=")


def frame_of(spark: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """A frame of the rows of `table`, of one batch at least. Before Spark 4 a Python task brings them."""
    if not IS_BEFORE_4:
        if int(setting(spark, _BATCH_ROWS)) > 0:
            return spark.createDataFrame(table, schema)
        with changed_setting(spark, _BATCH_ROWS, str(table.num_rows)):  # PySpark refuses 0, Spark's word for no limit
            return spark.createDataFrame(table, schema)
    sent = pa.BufferOutputStream()
    with pa.ipc.new_stream(sent, table.schema) as stream:
        stream.write_table(table)
    data = sent.getvalue().to_pybytes()

    def rows(batches: Iterable[Any]) -> Iterator[Any]:  # pickled by value: executors need no zonebloom
        import pyarrow  # noqa: ICN001, PLC0415 - on the executor

        for _ in batches:
            yield from pyarrow.ipc.open_stream(data)

    size = max(table.nbytes // VALUE_BYTES, 1)  # the planner takes the bytes of the range for those of the rows
    return spark.range(0, size, 1, 1).where("id = 0").mapInArrow(rows, schema)


@contextmanager
def errors_of_pyspark() -> Iterator[None]:
    """Errors of Java as PySpark's; some come as they are, at least until Spark 4.0."""
    try:
        yield
    except Exception as error:
        if isinstance(error, PySparkException):
            raise
        raise PySparkException(message=str(error)) from error


def arrow_of(frame: DataFrame) -> pa.Table:
    """All rows of `frame`. Before Spark 4 a Python task packs them."""
    if not IS_BEFORE_4:
        return frame.toArrow()

    def pack(batches: Iterable[Any]) -> Iterator[Any]:  # pickled by value: executors need no zonebloom
        import pyarrow  # noqa: ICN001, PLC0415 - on the executor

        for batch in batches:
            sent = pyarrow.BufferOutputStream()
            with pyarrow.ipc.new_stream(sent, batch.schema) as stream:
                stream.write_batch(batch)
            yield pyarrow.record_batch({"batch": pyarrow.array([sent.getvalue().to_pybytes()])})

    numbered = frame.toDF(*map(str, range(len(frame.columns))))  # `mapInArrow` of Spark 3.5 takes no dots in names
    rows = numbered.mapInArrow(pack, "batch binary").collect()
    tables = [pa.ipc.open_stream(row[0]).read_all().rename_columns(frame.columns) for row in rows]
    schema = arrow_schema(frame.schema)  # Spark 3.5 names the session's zone in the types of timestamps
    return pa.concat_tables(tables).cast(schema) if tables else schema.empty_table()


def logger_of_errors() -> logging.Logger:
    """The logger to which PySpark 4 prints each condition and column that Spark refuses."""
    if IS_BEFORE_4:
        return logging.getLogger(__name__)
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - not there before

    logger: logging.Logger = PySparkLogger.getLogger("DataFrameQueryContextLogger")
    return logger


def described(spark: Any, table: str, partition: str = "") -> dict[str, Any]:
    """What Spark's catalog says about a table, a view or a partition; the names are SQL.

    Spark 3.5 says nothing about temporary views.
    """
    asked = f"DESCRIBE EXTENDED {table} {partition}"
    if not IS_BEFORE_4:
        return dict(json.loads(spark.sql(f"{asked} AS JSON").collect()[0][0]))
    rows = [(row[0], row[1]) for row in spark.sql(asked).collect()]
    names = [name for name, _ in rows]
    start = max((place for place, name in enumerate(names) if name.startswith("# Detailed ")), default=len(rows))
    pairs = dict(reversed(rows[start:]))  # of two values the first: the second is the table's, for a partition
    details: dict[str, Any] = {key.lower().replace(" ", "_"): value for key, value in pairs.items()}
    options = details.get("storage_properties", "[]")
    return details | {
        "storage_properties": _OPTION.findall(options[1:-1]),
        "partition_columns": "# Partition Information" in names[:start],
    }
