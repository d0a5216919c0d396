"""Rows that other indexes lose, each a test: a pruned row that matched is the one error that nobody sees.

What one part of zonebloom prevents is tested there: 01, files that are new, and 02, files that changed in place, in
tests/search/test_pruning.py, tests/formats/test_table.py and, right after a build, in tests/indexing/test_fill.py;
04, both zeros and NaN, in tests/predicates/test_row_filter.py and tests/search/test_exists.py; 06, negations, in
tests/predicates/test_row_filter.py, with random SQL, and tests/search/test_pruning.py; 07, lists with nulls, without
values or very long, and 09, literals that do not convert, in tests/predicates/test_row_filter.py and
tests/search/test_locate.py; 08, a literal hashed at another width than its column, in
tests/predicates/test_coerce.py; 11, OR with a column that has no filters, in tests/search/test_pruning.py; 12,
columns and types that differ between files, in tests/search/test_scan.py; 14, damage, in tests/storage/. Oracle: the
rows as written.
"""

from __future__ import annotations

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.newer import need


@pytest.fixture
def lake(tmp_path):
    """`lake(table, ...)` writes each table as a file, `part-0.parquet` and on, and gives the folder."""

    def write(*tables: pa.Table):
        (root := tmp_path / "lake").mkdir()
        for number, table in enumerate(tables):
            pq.write_table(table, root / f"part-{number}.parquet", row_group_size=4)
        return root

    return write


def codes(result: zb.SearchResult) -> set[str]:
    return {str(reason.code) for reason in result.reasons}


def column(values, kind=None) -> pa.Table:
    return pa.table({"c": pa.array(values, kind, from_pandas=False)})


def test_03_rows_that_moved_are_found_where_they_are_now(lake):
    """A compaction that swaps and joins files: row ranges hold only under the fingerprint they were made for."""
    root = lake(column([1, 2, 3]), column([4, 5, 6]))
    index = zb.build_index(root, "c", rows_per_zone=1)
    (root / "part-0.parquet").rename(root / "swap")
    (root / "part-1.parquet").rename(root / "part-0.parquet")
    (root / "swap").rename(root / "part-1.parquet")
    for value in range(1, 7):
        assert index.to_table(zb.Equals("c", value)).num_rows == 1
    (root / "part-1.parquet").unlink()
    pq.write_table(column([6, 5, 4, 3, 2, 1]), root / "part-0.parquet")
    for value in range(1, 7):
        assert index.to_table(zb.Equals("c", value)).num_rows == 1


def test_05_padding_and_case_are_not_folded(lake):
    """No CHAR, no collation: 'a' is neither 'a ' nor 'A', in the filters and in the scan alike; functions keep."""
    index = zb.build_index(lake(column(["a", "a ", "A", "á", "a\u0301"])), "c", rows_per_zone=1)
    for text in ("a", "a ", "A", "á", "a\u0301"):
        assert index.to_table(zb.Equals("c", text))["c"].to_pylist() == [text]
        assert index.search(zb.Equals("c", text)).num_zones_kept == 1
    result = index.search("lower(c) = 'a'")
    assert (result.num_rows_kept, codes(result)) == (5, {"CAST_ON_COLUMN"})
    assert index.to_table("lower(c) = 'a'")["c"].to_pylist() == ["a", "A"]
    assert index.search("c ILIKE 'A'").num_rows_kept == 5
    assert index.to_table("c ILIKE 'A'").num_rows == 2


def test_10_a_filter_is_not_asked_with_the_bytes_of_another_type(tmp_path):
    """DuckDB 2.0 reads such columns as doubles, looks up hashes of doubles and loses all rows, by any filters."""
    need("parquet_blooms")
    columns = {"half": np.arange(100, dtype=np.float16), "wide": pa.array(range(100)).cast(pa.decimal256(50, 3))}
    options = {name: {"ndv": 100, "fpp": 1e-6} for name in columns}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet", bloom_filter_options=options)
    for name in columns:
        assert duckdb.sql(f"SELECT * FROM '{tmp_path}/a.parquet' WHERE {name} = 7").fetchall() == []
        assert zb.open_lake(tmp_path).to_table(f"{name} = 7").num_rows == 1


def test_13_a_commit_under_a_running_reader(lake):
    """A scan that was begun reads the version it opened, while columns are built anew and files are added."""
    root = lake(column([1, 2, 3, 1] * 100), column([1, 5, 6, 7] * 100))
    index = zb.build_index(root, "c", rows_per_zone=8)
    reader = index.scan("c = 1")
    first = reader.read_next_batch()
    zb.build_index(root, "c", rows_per_zone=2, overwrite=True)
    pq.write_table(column([1]), root / "part-9.parquet")
    rest = reader.read_all()
    assert first.num_rows + rest.num_rows == 300
    assert index.to_table("c = 1").num_rows == 301
