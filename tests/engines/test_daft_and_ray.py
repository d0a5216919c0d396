"""Daft and Ray read a pyiceberg table with an index: the rows of a plain scan, from fewer files.

`make test-daft` runs this, in an environment of its own: Daft 0.7 needs a pyarrow before 26, and Ray brings 300 MB.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import daft
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import ray
import ray.data.expressions
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import In
from pyiceberg.table import Table

import zonebloom as zb
from zonebloom.engines import iceberg

# Ray warns of its own defaults, and leaves sockets to the garbage collector.
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning:ray"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]
NUM_FILES, NUM_ROWS = 4, 400
KEYS = pa.array([f"k {i * 37 % NUM_ROWS}" for i in range(NUM_ROWS)])


@pytest.fixture
def table(catalog: SqlCatalog, tmp_path: Path) -> Table:
    """Each of 400 keys once, in four files."""
    rows = pa.table({"key": KEYS, "n": pa.array(range(NUM_ROWS))})
    table = catalog.create_table("db.events", rows.schema)
    for start in range(0, NUM_ROWS, NUM_ROWS // NUM_FILES):
        table.append(rows.slice(start, NUM_ROWS // NUM_FILES))
    zb.build_index(table, "key", index=tmp_path / "index", rows_per_zone=10, kind="locator")
    return table


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def expected(*keys: str) -> list[dict[str, Any]]:
    places = [place for place, key in enumerate(KEYS.to_pylist()) if key in keys]
    return [{"key": KEYS[place].as_py(), "n": place} for place in places]


@pytest.mark.parametrize("keys", [["k 7"], ["k 7", "k 399", "k 7"], ["nowhere"]], ids=str)
def test_daft_plans_only_the_files_of_the_keys(table, tmp_path, keys):
    pruned = iceberg.table(table, index=tmp_path / "index")
    column = daft.col("key")
    frame = daft.read_iceberg(pruned).where(column == keys[0] if len(keys) == 1 else column.is_in(keys))
    assert frame.sort("n").to_pylist() == expected(*keys)
    assert pruned.last_scan.num_zones_kept == len(expected(*keys))


def test_daft_reads_all_files_where_it_hands_over_no_equality(table, tmp_path):
    pruned = iceberg.table(table, index=tmp_path / "index")
    frame = daft.read_iceberg(pruned).where(daft.col("key").startswith("k 39"))
    assert frame.sort("n").to_pylist() == expected("k 39", *(f"k {i}" for i in range(390, 400)))


def test_ray_has_the_rows_of_a_pruned_scan(table, tmp_path, cluster):
    pruned = iceberg.table(table, index=tmp_path / "index")
    rows = pruned.scan(In("key", ["k 7", "k 8"])).to_ray().take_all()
    assert sorted(rows, key=lambda row: row["n"]) == expected("k 7", "k 8")
    assert pruned.last_scan.num_zones_kept == 2


def test_ray_reads_the_files_that_may_have_a_key(table, tmp_path, cluster):
    index = zb.open_index(tmp_path / "index", dataset=table)
    fragments = list(index.dataset().get_fragments(pc.field("key") == "k 7"))
    assert len(fragments) == 1
    data = ray.data.read_parquet([fragment.path for fragment in fragments])
    assert data.filter(expr=ray.data.expressions.col("key") == "k 7").take_all() == expected("k 7")
