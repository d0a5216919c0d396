"""What a build costs: the whole of it against a bare read of the column, and the index alone against Lance's."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

import zonebloom as zb
from bench.data import bare_read, integers, uuids, write_files
from bench.harness import Result, Rounds, interleaved, scratch, spread

ROWS_PER_ZONE, FPP = 8192, 0.00057
PLAIN = {"use_dictionary": False, "compression": "none"}
NS = 1e-9
UNTOUCHED = "int64, snappy, 40 M rows, memory that no process used before"
WRITTEN_BY_DEFAULT = {"int64, snappy (pyarrow's defaults)", "UUID strings, snappy (defaults)"}
"""Files as they are commonly written, of keys that are all different: the headlines."""


def main() -> None:
    """Run both parts."""
    result = Result(
        "build",
        "Builds over Parquet files in the page cache, 8192 rows a zone, fpp 0.00057, filters of 32 768 bytes.",
        packages=["pylance"],
    )
    with scratch() as folder:
        whole_build(result, folder)
    with scratch() as folder:
        against_lance(result, folder)
    result.save()


def whole_build(result: Result, folder: Path) -> None:
    """Wall and CPU of `build_index` against `bare_read`."""
    rng = np.random.default_rng(1)
    few = uuids(10_000, rng)

    def tables(make: Callable[[int], pa.Array], rows: int, files: int = 4) -> list[pa.Table]:
        return [pa.table({"key": make(rows)}) for _ in range(files)]

    numbers = tables(lambda rows: integers(rows, rng), 5_000_000)
    texts = tables(lambda rows: uuids(rows, rng), 1_500_000)
    repeated = tables(lambda rows: few.take(pa.array(rng.integers(0, len(few), rows))), 4_000_000)
    more_numbers = tables(lambda rows: integers(rows, rng), 10_000_000)
    lakes = {
        "int64, snappy (pyarrow's defaults)": (numbers, {}, None, 1.5),
        UNTOUCHED: (more_numbers, {}, None, None),
        "int64, PLAIN, uncompressed": (numbers, PLAIN, None, None),
        "UUID strings, PLAIN, uncompressed": (texts, PLAIN, None, 1.25),
        "UUID strings, snappy (defaults)": (texts, {}, None, None),
        "10 000 UUID strings, dictionary, snappy (defaults)": (repeated, {}, PLAIN, 0.5),
    }
    rows = []
    for name, (data, options, bare_options, limit) in lakes.items():
        paths = write_files(folder / "lake", data, **options)
        bare_paths = paths if bare_options is None else write_files(folder / "bare", data, **bare_options)
        num_rows = sum(len(table) for table in data)
        first, rounds = _measure(folder / "lake", bare_paths, is_touched=name != UNTOUCHED)
        result.note_load(rounds)
        per = num_rows * NS
        ratio = rounds.ratio("2 workers", "bare")
        against = "itself" if bare_options is None else "PLAIN, uncompressed"
        rows.append(
            [
                name,
                num_rows,
                against,
                rounds.wall("bare", per),
                rounds.cpu("1 worker", per),
                rounds.wall("1 worker", per),
                rounds.wall("2 workers", per),
                rounds.ratio("1 worker", "bare"),
                ratio,
                rounds.wall("write", per),
                first,
            ]
        )
        if limit is not None:
            result.target(f"whole build, {name}, 2 workers, to the bare read", ratio["median"], limit, "x")
        if name in WRITTEN_BY_DEFAULT:
            speed = num_rows / rounds.wall("2 workers")["median"]
            kind = name.split(",")[0]
            result.headline.append(
                [
                    f"build the index of {num_rows:,} {kind}, 2 workers",
                    f"{speed / 1e6:.0f} M rows/s",
                    f"{ratio['median']:.2f} x a one-thread read of that column, memory in use before",
                ]
            )
        shutil.rmtree(folder / "lake")
        shutil.rmtree(folder / "bare", ignore_errors=True)
    columns = [
        "column",
        "rows",
        "bare read of",
        "bare read, ns/row",
        "build CPU, 1 worker, ns/row",
        "1 worker, ns/row",
        "2 workers, ns/row",
        "1 worker / bare",
        "2 workers / bare",
        "writing as many bytes, ns/row",
        "first build, s",
    ]
    note = (
        "Four files. Wall time unless it says CPU. The bare read is "
        "`ParquetFile.iter_batches(65536, use_threads=False)`. The previous index is deleted before each build, and as "
        "much memory touched as the next one takes, but for the row that says otherwise: a virtual machine whose host "
        "took free memory back pays up to ten times the price of a write for it, whoever writes. The first build also "
        "loads its kernels from the cache, or compiles them."
    )
    result.table("Whole build", columns, rows, note)


def _measure(lake: Path, bare_paths: list[Path], *, is_touched: bool) -> tuple[float, Rounds]:
    index, written = lake.with_name(f"_{lake.name}.zonebloom"), lake / "_written"

    def build(workers: int) -> None:
        zb.build_index(lake, ["key"], rows_per_zone=ROWS_PER_ZONE, fpp=FPP, workers=workers)

    began = time.perf_counter()
    build(2)
    first = time.perf_counter() - began
    opened = zb.open_index(lake)
    assert opened.verify(sample=0.25).is_sound
    size = opened.indexed_columns()[0].index_bytes
    piece = np.random.default_rng(0).bytes(4 << 20)

    def write() -> None:
        with written.open("wb", buffering=0) as file:
            for _ in range(size // len(piece) + 1):
                file.write(piece)

    def delete() -> None:
        shutil.rmtree(index, ignore_errors=True)
        written.unlink(missing_ok=True)
        if is_touched:
            write()
            written.unlink()

    cases: dict[str, Callable[[], Any]] = {
        "bare": lambda: bare_read(bare_paths, "key"),
        "1 worker": lambda: build(1),
        "2 workers": lambda: build(2),
        "write": write,
    }
    prepare = {"1 worker": delete, "2 workers": delete, "write": delete}
    return first, interleaved(cases, prepare=prepare, warm_up=2)


def against_lance(result: Result, folder: Path) -> None:
    """CPU of the index alone: the build less the read of the column."""
    import lance

    rng = np.random.default_rng(2)
    rows = []
    for name, make, num_rows, limit in (("int64", integers, 10_000_000, 8.0), ("UUID strings", uuids, 3_000_000, 4.0)):
        per_file = num_rows // 2
        data = [pa.table({"key": make(per_file, rng)}) for _ in range(2)]
        paths = write_files(folder / "lake", data, **PLAIN)
        dataset = lance.write_dataset(pa.concat_tables(data), folder / "lance", max_rows_per_file=per_file)
        rounds = result.note_load(_rounds_with_lance(folder / "lake", paths, dataset))
        _assert_same_zones(folder / "lake", folder / "lance")
        per = num_rows * NS
        ours = spread(_difference(rounds, "zonebloom", "parquet read", per))
        theirs = spread(_difference(rounds, "lance", "lance read", per))
        ratio = theirs["median"] / ours["median"]
        rows.append(
            [
                name,
                num_rows,
                rounds.cpu("parquet read", per),
                rounds.cpu("zonebloom", per),
                ours,
                rounds.cpu("lance read", per),
                rounds.cpu("lance", per),
                theirs,
                ratio,
            ]
        )
        result.target(f"index-only build CPU, {name}, cheaper than Lance's", ratio, limit, "x", at_most=False)
        result.headline.append(
            [
                f"CPU of the index alone, {name} (reading not counted)",
                f"{ours['median']:.1f} ns a row",
                f"Lance {theirs['median']:.0f} ns a row, the same bytes: {ratio:.1f} x",
            ]
        )
        shutil.rmtree(folder / "lake")
        shutil.rmtree(folder / "lance")
    columns = [
        "column",
        "rows",
        "Parquet read",
        "zonebloom, 1 worker",
        "index alone",
        "Lance read",
        "Lance",
        "its index alone",
        "Lance's / ours",
    ]
    note = (
        "CPU of all threads, user and system, ns/row. zonebloom over Parquet (PLAIN), Lance over Lance files; "
        "from each its own bare read of the column is subtracted. Both have equal zones, byte for byte (asserted)."
    )
    result.table("Index alone, against Lance", columns, rows, note)


def _rounds_with_lance(lake: Path, paths: list[Path], dataset: Any) -> Rounds:
    from lance.indices import IndexConfig

    config = IndexConfig(index_type="bloomfilter", parameters={"number_of_items": ROWS_PER_ZONE, "probability": FPP})
    num_rows = dataset.count_rows()

    def read_lance() -> None:
        assert sum(batch.num_rows for batch in dataset.scanner(columns=["key"]).to_batches()) == num_rows

    cases: dict[str, Callable[[], Any]] = {
        "parquet read": lambda: bare_read(paths, "key"),
        "zonebloom": lambda: zb.build_index(lake, ["key"], rows_per_zone=ROWS_PER_ZONE, fpp=FPP, workers=1),
        "lance read": read_lance,
        "lance": lambda: dataset.create_scalar_index("key", config, replace=True),
    }
    prepare = {"zonebloom": lambda: shutil.rmtree(lake.with_name(f"_{lake.name}.zonebloom"), ignore_errors=True)}
    return interleaved(cases, rounds=7, prepare=prepare, warm_up=2)


def _difference(rounds: Rounds, whole: str, part: str, per: float) -> list[float]:
    pairs = zip(rounds.samples[whole], rounds.samples[part], strict=True)
    return [(a.cpu - b.cpu) / per for a, b in pairs]


def _assert_same_zones(lake: Path, lance_folder: Path) -> None:
    from lance.file import LanceFileReader

    files = sorted(lance_folder.glob("_indices/*/bloomfilter.lance"), key=lambda path: path.stat().st_mtime_ns)
    theirs = LanceFileReader(str(files[-1])).read_all().to_table()
    ours = zb.open_index(lake).zone_table("key").to_arrow()
    for column in ours.column_names:
        assert ours[column].to_pylist() == theirs[column].to_pylist(), f"column {column} differs from Lance's"


if __name__ == "__main__":
    main()
