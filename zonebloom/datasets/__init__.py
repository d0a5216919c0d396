"""What is indexed: data files with fingerprints, reading a column, reading row ranges.

`parquet` reads Parquet files in a folder (hive-partitioned or not), one file, or a list of files; `partitions` turns
`key=value` folders into columns.
"""

from zonebloom.datasets.parquet import DataFile, ParquetDataset, absolute_path, open_dataset

__all__ = ["DataFile", "ParquetDataset", "absolute_path", "open_dataset"]
