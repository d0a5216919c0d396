"""Data sets: data files with fingerprints, reading a column, reading row ranges.

`dataset` has the interfaces. `folder` is a folder of Parquet files (hive-partitioned or not), one file, or a list of
files; `hive` turns `key=value` folders into columns. `delta`, `iceberg` and `lance` are tables: their logs list the
data files. `table` has the common part; `table_folders` detects their folders; `lance_index` reads the indexes that a
Lance table has itself. `parquet` reads one Parquet file. `index_location`
says where the index lies. `detect` finds the data set that is named; `identity` says whether two are the same.
"""

from zonebloom.formats.dataset import Dataset, DatasetSnapshot, Declared, OpenedFile, column_id
from zonebloom.formats.detect import dataset_from_json, open_dataset
from zonebloom.formats.folder import ParquetDataset

__all__ = [
    "Dataset",
    "DatasetSnapshot",
    "Declared",
    "OpenedFile",
    "ParquetDataset",
    "column_id",
    "dataset_from_json",
    "open_dataset",
]
