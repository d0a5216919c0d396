"""Run where the package is installed without extras: it must import and work, and name each extra that is missing."""
# ruff: noqa: INP001 - a script

import importlib.metadata
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from zonebloom import spark
from zonebloom.engines import iceberg, polars

HERE = Path(__file__).resolve().parent


def check_package() -> None:
    """The package is the installed one, with its types, its licence and all of its names."""
    package = Path(zb.__file__).parent
    assert HERE not in package.parents or "site-packages" in package.parts, package
    assert (package / "py.typed").exists()
    files = {path.name for path in importlib.metadata.files("zonebloom") or ()}
    assert "LICENSE" in files
    assert not [name for name in zb.__all__ if not hasattr(zb, name)]
    assert importlib.metadata.version("zonebloom") == zb.__version__


def check_search(folder: Path) -> None:
    """An index is built and answers."""
    lake = folder / "lake"
    lake.mkdir()
    pq.write_table(pa.table({"id": range(100_000)}), lake / "0.parquet")
    index = zb.build_index(lake, "id")
    assert index.to_table("id = 77777").to_pylist() == [{"id": 77777}]
    assert index.search("id = -1").num_zones_kept == 0


def check_extras(folder: Path) -> None:
    """Each door that needs an extra names it."""
    lake = folder / "lake"
    delta, lance = folder / "delta", folder / "some.lance"
    (delta / "_delta_log").mkdir(parents=True)
    (delta / "_delta_log" / f"{0:020}.json").write_text(json.dumps({"protocol": {}}))
    (lance / "_versions").mkdir(parents=True)
    (lance / "_versions" / "1.manifest").touch()
    index = zb.open_index(lake)
    doors: dict[str, Callable[[], object]] = {
        "azure": lambda: zb.open_index("az://container/lake"),
        "delta": lambda: zb.build_index(delta, "id"),
        "gcs": lambda: zb.open_index("gs://bucket/lake"),
        "iceberg": lambda: iceberg.delete(None, "id", [1]),
        "lance": lambda: zb.build_index(lance, "id"),
        "polars": lambda: polars.scan(index),
        "s3": lambda: zb.open_index("s3://bucket/lake"),
        "spark": lambda: spark.ZoneBloom(None),
    }
    extras = set(importlib.metadata.metadata("zonebloom").get_all("Provides-Extra") or ())
    assert extras == {*doors, "datafusion", "duckdb"}, "a connection of these two is given by the caller"
    for extra, open_door in doors.items():
        try:
            open_door()
        except zb.errors.MissingDependencyError as error:
            message = str(error)
        else:
            message = "no error"
        assert f"zonebloom[{extra}]" in message, (extra, message)


if __name__ == "__main__":
    check_package()
    with tempfile.TemporaryDirectory() as name:
        check_search(Path(name))
        check_extras(Path(name))
    sys.stdout.write("the installed package works, and names each missing extra\n")
