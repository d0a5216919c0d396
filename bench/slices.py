"""What one key costs in an index of a billion rows: time and bytes for zone layout, slices and Lance.

The filters of the large index come from random keys directly, without data files: a file of four bytes stands for each,
so that listing and fingerprints are real and only reading rows is not. The comparison with Lance has real data on both
sides. Correctness is asserted on the way: present keys are found, and both layouts return the same row ranges.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from bench.harness import Result, compile_sources, interleaved, scratch, seconds_of, spread
from zonebloom.bloom.zones import ZoneBuilder
from zonebloom.formats import open_dataset
from zonebloom.search.query import Query
from zonebloom.search.view import View
from zonebloom.storage.fragments import Fragment, FragmentTable, write_fragments
from zonebloom.storage.manifest import ColumnEntry, Manifest, commit
from zonebloom.storage.zone_segment import ZoneSegmentWriter
from zonebloom.stores.local import LocalStore

ROWS_PER_ZONE, ZONES_PER_FILE, FPP = 8192, 1024, 0.00057
LARGE, SHARED = 131_072, 65_536
KEYS = 1000
MS, MB, GB = 1e3, 1e-6, 1e-9
BATCH = 1 << 20


def main() -> None:
    """Run both parts."""
    result = Result(
        "slices",
        "int64 keys, 8192 rows a zone, fpp 0.00057, filters of 32 768 bytes (1024 blocks). Warm: the index is in the "
        "page cache. Cold: it is not, the index is open. Each search has a key of its own.",
        packages=["pylance"],
    )
    with scratch() as folder:
        large_index(result, folder / "lake")
    with scratch() as folder:
        against_lance(result, folder)
    result.save()


# --- a billion rows ---------------------------------------------------------------------------------------------------


def large_index(result: Result, root: Path) -> None:
    """Search at 131 072 zones in both layouts, and what optimizing costs."""
    present = keys_without_data(root, LARGE)
    done = json.loads(_python(_OPTIMIZE, root))
    num_rows = LARGE * ROWS_PER_ZONE
    rows = []
    for name, version in (("zones", 1), ("slices", 2)):
        began = time.perf_counter()
        index = zb.open_index(root, version=version)
        index.search(zb.col("key") == 1)
        first = time.perf_counter() - began
        view = index.view()
        _check_present(view, present)
        _warm(index)
        warm, listed = _quiet_times(result, view, 3), _quiet_times(result, index, 4)
        new, again = _many(view, 2 if name == "zones" else 16)
        cold = _cold(index, view)
        num_bytes = _bytes_read(view)
        measured = [[first], warm, listed, cold, new, again]
        size = num_bytes * MB if name == "slices" else "the whole file is mapped"
        rows.append([name, *(spread([seconds * MS for seconds in times]) for times in measured), size])
        if name == "slices":
            _targets(result, measured, num_bytes)
            process = _process(result, root)
    _same_answers(root)
    columns = ["layout", "open + first, ms", "Equals warm, ms", "with listing, ms", "Equals cold, ms"]
    columns += [f"IsIn-{KEYS} warm, new keys, ms", f"IsIn-{KEYS} again, ms", "bytes for a key, MB"]
    note = "From literal to row ranges; `with listing` is `Index.search`, which lists 128 files each time."
    result.table(f"One key among {num_rows:,} rows, {LARGE:,} zones", columns, rows, note)
    result.table("`zonebloom search` for one key, the whole process", ["wall, ms", "CPU, ms"], [process])
    cpu = done["cpu"] / num_rows * 1e9
    memory = [[f"{cpu:.2f}", f"{done['wall']:.1f}", done["anonymous"] * MB, done["peak"] * MB, done["bytes"] * GB]]
    columns = ["CPU, ns a row", "wall, s", "anonymous memory, MB", "peak with mapped files, MB", "index, GB"]
    result.table(
        "Optimize: zone segments to slices", columns, memory, "Mapped files are page cache: given back on demand."
    )
    result.target("optimize, CPU a row", cpu, 3, "ns")
    result.target("optimize, anonymous memory", done["anonymous"] / 2**20, 512, "MiB")


def _targets(result: Result, times: Sequence[Sequence[float]], size: int) -> None:
    _, warm, _, cold, new, again = times
    result.target("Equals warm, literal to row ranges", spread(warm)["median"] * MS, 0.2, "ms")
    result.target("Equals cold", spread(cold)["median"] * MS, 5, "ms")
    result.target("bytes read for one key", size * MB, 0.2, "MB")
    result.target(f"IsIn-{KEYS} warm, keys never probed before", spread(new)["median"] * MS, 25, "ms")
    result.target(f"IsIn-{KEYS} warm, again", spread(again)["median"] * MS, 25, "ms")


def keys_without_data(root: Path, num_zones: int) -> list[int]:
    """An index of `num_zones` zones of random keys, one zone segment; some of the keys."""
    rows = ZONES_PER_FILE * ROWS_PER_ZONE
    num_files = num_zones // ZONES_PER_FILE
    root.mkdir(parents=True)
    for number in range(num_files):
        (root / f"part-{number:05}.parquet").write_bytes(b"PAR1")
    store, dataset = LocalStore(root.with_name(f"_{root.name}.zonebloom")), open_dataset(root).pin()
    groups = ((BATCH,) * (rows // BATCH), (8 * BATCH,) * (rows // BATCH))
    listing = enumerate(dataset.list().items())
    fragments = [Fragment(number, path, *fingerprint, rows, *groups) for number, (path, fingerprint) in listing]
    rng = np.random.default_rng(0)
    builder = ZoneBuilder(pa.int64(), column="key", fpp=FPP, sink=lambda batch: writer.write(batch))  # noqa: PLW0108 - bound later
    present = []
    with ZoneSegmentWriter(store, "key", builder.schema) as writer:
        for fragment in fragments:
            builder.start_fragment(fragment.fragment_id)
            for _ in range(rows // BATCH):
                keys = rng.integers(-(2**63), 2**63, BATCH, dtype=np.int64)
                present.append(int(keys[rng.integers(BATCH)]))
                builder.add(fragment.fragment_id, pa.array(keys))
        builder.close()
        segments = writer.finish()
    column = ColumnEntry("key", pa.int64(), ROWS_PER_ZONE, FPP, "power_of_two", tuple(segments), column_id="key")
    described = {**dataset.to_json(str(store.root)), "partition_columns": []}
    listed = (write_fragments(store, FragmentTable.of(fragments)),)
    commit(store, Manifest(1, "build", described, pa.schema([("key", pa.int64())]), num_files, (column,), listed))
    return present


_OPTIMIZE = """
import json, resource, sys, threading, time
import numpy as np
import zonebloom as zb
from zonebloom.bloom.kernels import slices
slices.slice_zones(np.zeros((8, 1, 8), np.uint32), np.zeros((256, 64), np.uint8), 0)
peak, done = 0, threading.Event()
def watch():
    global peak
    while not done.wait(0.01):
        lines = open("/proc/self/status").read().splitlines()
        peak = max(peak, sum(int(line.split()[1]) for line in lines if line.startswith(("RssAnon", "RssShmem"))))
index = zb.open_index(sys.argv[1])
thread = threading.Thread(target=watch)
thread.start()
before, began = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
index.optimize()
wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
done.set()
thread.join()
status = dict(line.split(":", 1) for line in open("/proc/self/status").read().splitlines())
cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
size = index.indexed_columns()[0].index_bytes
hwm = int(status["VmHWM"].split()[0]) * 1024
print(json.dumps({"cpu": cpu, "wall": wall, "anonymous": peak * 1024, "peak": hwm, "bytes": size}))
"""


def _python(code: str, *arguments: Any) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _absent(count: int, seed: int) -> list[int]:
    return np.random.default_rng(seed).integers(-(2**63), 2**63, count, dtype=np.int64).tolist()


def _times(searched: View | zb.Index, keys: Sequence[int]) -> list[float]:
    return [seconds_of(lambda key=key: searched.search(zb.col("key") == key)) for key in keys]


def _quiet_times(result: Result, searched: View | zb.Index, seed: int) -> list[float]:
    """Seconds for one search, in rounds of 25 on cores that nobody else uses."""
    keys = iter(_absent(10_000, seed))
    rounds = interleaved({"": lambda: _times(searched, [next(keys) for _ in range(25)])}, rounds=9)
    return [sample.wall / 25 for sample in result.note_load(rounds).samples[""]]


def _process(result: Result, root: Path) -> list[Any]:
    """Wall and CPU milliseconds of the command."""
    keys = iter(_absent(100, 9))
    command = [str(Path(sys.executable).with_name("zonebloom")), "search", str(root), "--where"]
    compile_sources()

    def run() -> None:
        subprocess.run([*command, f"key = {next(keys)}"], check=True, capture_output=True)

    rounds = result.note_load(interleaved({"search": run}, rounds=15))
    result.target("zonebloom search, the whole process, warm", rounds.wall("search")["median"], 0.25, "s")
    return [rounds.wall("search", 1e-3), rounds.cpu("search", 1e-3)]


def _check_present(view: View, present: Sequence[int]) -> None:
    """Key number i was taken from rows [i * BATCH, (i + 1) * BATCH)."""
    for number in range(0, len(present), max(1, len(present) // 50)):
        fragment, batch = divmod(number, ZONES_PER_FILE * ROWS_PER_ZONE // BATCH)
        rows = Query(view, zb.col("key") == present[number]).result.row_ranges.fragment(fragment)
        starts, stops = rows.starts.tolist(), rows.stops.tolist()
        assert any(a < (batch + 1) * BATCH and b > batch * BATCH for a, b in zip(starts, stops, strict=True))


def _segments(index: zb.Index) -> list[Path]:
    manifest = index._snapshot.manifest  # noqa: SLF001 - which files a version has is no public question
    return [index.root / segment.path for column in manifest.columns for segment in column.segments]


def _warm(index: zb.Index) -> None:
    buffer = bytearray(1 << 24)
    for path in _segments(index):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _drop(index: zb.Index) -> None:
    os.sync()
    for path in _segments(index):
        number = os.open(path, os.O_RDONLY)
        os.posix_fadvise(number, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(number)


def _many(view: View, count: int) -> tuple[list[float], list[float]]:
    """Seconds for lists of keys that were not probed before, and for the same lists again."""
    new, again = [], []
    for seed in range(count):
        predicate = zb.col("key").isin(_absent(KEYS, 100 + seed))
        new.append(seconds_of(lambda asked=predicate: Query(view, asked).result))
        again.append(seconds_of(lambda asked=predicate: Query(view, asked).result))
    skipped = count // 4  # the first lists pay for Numba and for mapping the file
    return new[skipped:], again[skipped:]


def _cold(index: zb.Index, view: View) -> list[float]:
    times = []
    for key in _absent(15, 5):
        _drop(index)
        times += _times(view, [key])
    return times


def _bytes_read(view: View) -> int:
    def count() -> int:
        return int(Path("/proc/self/io").read_text(encoding="ascii").split()[1])

    idle = -(count() - count())
    before = count()
    _ = Query(view, zb.col("key") == 17).result
    return count() - before - idle


def _same_answers(root: Path) -> None:
    zones, slices = zb.open_index(root, version=1).view(), zb.open_index(root, version=2).view()
    predicates = [zb.col("key") == key for key in _absent(20, 6)]
    predicates.append(zb.col("key").isin(_absent(KEYS, 7)))
    for predicate in predicates:
        assert zones.search(predicate).row_ranges == slices.search(predicate).row_ranges


# --- against Lance ----------------------------------------------------------------------------------------------------

_LANCE = """
import json, sys, time
import lance
def count():
    return int(open("/proc/self/io").read().split()[1])
data = lance.dataset(sys.argv[1])
keys, lists, present = json.load(open(sys.argv[2]))
def run(condition):
    began = time.perf_counter()
    rows = data.to_table(filter=condition, with_row_id=True).num_rows
    return time.perf_counter() - began, rows
before = count()
first, _ = run(f"key = {keys[0]}")
size = count() - before
later = [run(f"key = {key}")[0] for key in keys[1:]]
found = [run(f"key = {key}") for key in present]
assert all(rows == 1 for _, rows in found)
many = [run("key IN (" + ", ".join(map(str, one)) + ")")[0] for one in lists]
print(json.dumps([first, later, [seconds for seconds, _ in found], many[len(many) // 4 :], size]))
"""

_OURS = """
import json, sys, time
import zonebloom as zb
import zonebloom.index.index, zonebloom.predicates  # names load late, and Lance's import is not timed either
def count():
    return int(open("/proc/self/io").read().split()[1])
keys, lists, present = json.load(open(sys.argv[2]))
def run(case):
    began = time.perf_counter()
    found = case()
    return time.perf_counter() - began, found
before = count()
began = time.perf_counter()
index = zb.open_index(sys.argv[3], dataset=sys.argv[1])
index.search(zb.col("key") == keys[0])
first = time.perf_counter() - began
size = count() - before
index.to_table(zb.col("key") == keys[0])
first_rows = time.perf_counter() - began
later = [run(lambda: index.search(zb.col("key") == key))[0] for key in keys[1:]]
view = index.view()
unlisted = [run(lambda: Query(view, zb.col("key") == key).result)[0] for key in keys[1:]]
absent = [run(lambda: index.to_table(zb.col("key") == key))[0] for key in keys[1:]]
found = [run(lambda: index.to_table(zb.col("key") == key)) for key in present]
assert all(table.num_rows == 1 for _, table in found)
many = [run(lambda: index.search(zb.col("key").isin(one)))[0] for one in lists]
many = many[len(many) // 4 :]  # the first lists pay for Numba and for mapping the file
print(json.dumps([first, later, absent, [seconds for seconds, _ in found], many, size, unlisted, first_rows]))
"""


def against_lance(result: Result, folder: Path) -> None:
    """The same keys in Parquet with our index and in a Lance data set with its own, both in the page cache."""
    import lance
    from lance.indices import IndexConfig

    rng = np.random.default_rng(2)
    num_files, rows = SHARED // ZONES_PER_FILE, ZONES_PER_FILE * ROWS_PER_ZONE
    options = {"use_dictionary": False, "compression": "none", "row_group_size": BATCH, "write_page_index": True}
    present = []
    (folder / "lake").mkdir()
    for number in range(num_files):
        keys = rng.integers(-(2**62), 2**62, rows, dtype=np.int64)
        present.append(int(keys[77]))
        table = pa.table({"key": keys})
        pq.write_table(table, folder / "lake" / f"part-{number:05}.parquet", **options)
        lance.write_dataset(table, folder / "peer", mode="append" if number else "create", max_rows_per_file=rows)
    index = zb.build_index(folder / "lake", "key", rows_per_zone=ROWS_PER_ZONE, fpp=FPP)
    assert index.indexed_columns()[0].num_zones == SHARED
    data = lance.dataset(folder / "peer")
    parameters = {"number_of_items": ROWS_PER_ZONE, "probability": FPP}
    data.create_scalar_index("key", IndexConfig(index_type="bloomfilter", parameters=parameters))
    located = folder / "located"
    _warm(index)
    _warm(zb.build_index(folder / "lake", "key", index=located, rows_per_zone=ROWS_PER_ZONE, kind="locator"))
    question = folder / "question.json"
    lists = [_absent(KEYS, 20 + seed) for seed in range(40)]
    question.write_text(json.dumps([_absent(100, 8), lists, present[:8]]), "utf-8")
    peers = [json.loads(_python(_LANCE, folder / "peer", question)) for _ in range(3)]
    ours, keyed = (
        [json.loads(_python(_OURS, folder / "lake", question, root)) for _ in range(3)]
        for root in (folder / "lake", located)
    )

    def joined(runs: list[Any], part: int) -> dict[str, float]:
        values = [run[part] for run in runs]
        flat = [seconds * MS for value in values for seconds in (value if isinstance(value, list) else [value])]
        return spread(flat)

    table = [
        ["first query of a process", joined(ours, 0), joined(ours, 7), joined(peers, 0)],
        ["later, absent key, files not listed", joined(ours, 6), "-", joined(peers, 1)],
        ["later, absent key", joined(ours, 1), joined(ours, 2), joined(peers, 1)],
        ["later, present key, row fetched", "-", joined(ours, 3), joined(peers, 2)],
        [f"IsIn-{KEYS}, absent keys", joined(ours, 4), "-", joined(peers, 3)],
        ["bytes of the first query, MB", ours[0][5] * MB, "-", peers[0][4] * MB],
    ]
    columns = ["", "zonebloom, row ranges, ms", "zonebloom, rows, ms", "Lance, rows, ms"]
    note = "Lance has no answer before the rows; its first query loads the index. A process for each of three runs."
    result.table(f"Against Lance, {SHARED:,} zones, {SHARED * ROWS_PER_ZONE:,} rows", columns, table, note)

    def ratio(peer: int, our: int, runs: list[Any] = ours) -> float:
        return joined(peers, peer)["median"] / joined(runs, our)["median"]

    table = [
        ["first query of a process", joined(keyed, 0), joined(keyed, 7), joined(peers, 0), ratio(0, 7, keyed)],
        ["later, absent key", joined(keyed, 1), joined(keyed, 2), joined(peers, 1), ratio(1, 2, keyed)],
        ["later, present key, row fetched", "-", joined(keyed, 3), joined(peers, 2), ratio(2, 3, keyed)],
        [f"IsIn-{KEYS}, absent keys", joined(keyed, 4), "-", joined(peers, 3), ratio(3, 4, keyed)],
        ["bytes of the first query, MB", keyed[0][5] * MB, "-", peers[0][4] * MB, "-"],
    ]
    note = f"Of 40 lists of new keys the first 10 are left out: until Numba is loaded, {KEYS} keys take 25 ms."
    result.table("The same with a locator instead of filters", [*columns, "times Lance's speed"], table, note)
    claim = "with a locator, against Lance's"
    result.target(f"later absent keys, rows fetched, {claim}", ratio(1, 2, keyed), 6, "times", at_most=False)
    result.target(f"later present keys, rows fetched, {claim}", ratio(2, 3, keyed), 1.5, "times", at_most=False)
    result.target(f"IsIn-{KEYS} to row ranges, {claim}", ratio(3, 4, keyed), 1000, "times", at_most=False)

    result.target("first query against Lance's, to row ranges", ratio(0, 0), 100, "times", at_most=False)
    result.target("first query against Lance's, rows fetched", ratio(0, 7), 100, "times", at_most=False)
    result.target("later queries against Lance's, to row ranges", ratio(1, 6), 20, "times", at_most=False)
    result.target("later queries against Lance's, absent keys, rows fetched", ratio(1, 2), 20, "times", at_most=False)
    result.target("later queries against Lance's, present keys, rows fetched", ratio(2, 3), 20, "times", at_most=False)
    result.target(f"IsIn-{KEYS} against Lance's", ratio(3, 4), 20, "times", at_most=False)
    headline = [
        f"one key among {SHARED * ROWS_PER_ZONE:,} rows, later queries, to row ranges",
        f"{ratio(1, 6):.1f} x faster than Lance",
        f"with the rows fetched {ratio(1, 2):.1f} x for absent keys, {ratio(2, 3):.2f} x for present ones",
    ]
    result.headline.append(headline)


if __name__ == "__main__":
    main()
