"""Writes the golden files of this folder: `python -m tests.vectors.make`. They are made anew when a format changes.

Hashes come from xxHash, filters and sizes from the plain Python of `tests.reference`; the index is zonebloom's own.
"""

from __future__ import annotations

import json
import math
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import zonebloom as zb
from tests import reference
from tests.bloom.test_hashing import INPUTS

HERE = Path(__file__).parent
WRITTEN = 1_700_000_000_000_000_000
"""Nanoseconds: when the data files were last written; a checkout does not keep it, so a copy must be given it."""
SIZES = [(1, 0.01), (100, 0.01), (8192, 0.00057), (8192, 0.05), (1_000_000, 0.00057)]
ANSWERS = {
    "id = 300": [300],
    "id = 1000": [],
    "id IN (0, 150, 599)": [0, 150, 599],
    "name = 'n 41'": [41],
    "name IS NULL": list(range(0, 600, 50)),
    "id = 301 AND name = 'x'": [],
}
"""The ids of the rows that match."""


def main() -> None:
    """Write all of them."""
    _write("hashes", [_hashes(kind, *given) for kind, given in INPUTS.items()])
    _write("filters", [_filter(blocks, count) for blocks, count in ((1, 3), (2, 20), (7, 100), (64, 500))])
    _write("sizes", [_size(rows, fpp) for rows, fpp in SIZES])
    index = _index(HERE / "lake")
    answers = {
        where: {"ids": ids, "ranges": index.search(where).to_dict()["row_ranges"]} for where, ids in ANSWERS.items()
    }
    _write("answers", answers)
    _malformed(HERE / "_lake.zonebloom", HERE / "malformed")


def _write(name: str, value: Any) -> None:
    lines = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
    (HERE / f"{name}.json").write_text(lines, encoding="utf-8")


def _hashes(kind: pa.DataType, values: list[Any], inputs: list[bytes]) -> dict[str, Any]:
    rows = [
        {"value": str(value), "input": data.hex(), "xxh64": f"{xxhash.xxh64_intdigest(data):016x}"}
        for value, data in zip(values, inputs, strict=True)
    ]
    return {"type": str(kind), "values": rows}


def _filter(num_blocks: int, count: int) -> dict[str, Any]:
    hashes = [xxhash.xxh64_intdigest(number.to_bytes(8, "little")) for number in range(count)]
    words = [word for block in reference.filter_of(hashes, num_blocks) for word in block]
    bitset = b"".join(word.to_bytes(4, "little") for word in words)
    return {"keys": f"int64 from 0 to {count - 1}", "num_keys": count, "num_blocks": num_blocks, "bitset": bitset.hex()}


def _size(rows: int, fpp: float) -> dict[str, Any]:
    """The least number of blocks with at most `fpp`, and the least power of two, by Putze's sum."""
    low, high = 1, 1 << math.ceil(math.log2(max(rows, 2)))
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if reference.poisson_fpp(rows, middle) <= fpp else (middle + 1, high)
    return {"ndv": rows, "fpp": fpp, "exact": low}


def _index(lake: Path) -> zb.Index:
    """600 rows in two files: `id` sliced, `name` not, both with locators; a second version added the second file."""
    for old in (lake, lake.with_name(f"_{lake.name}.zonebloom")):
        shutil.rmtree(old, ignore_errors=True)
    lake.mkdir()
    for number in range(2):
        if number:
            zb.build_index(lake, "id", rows_per_zone=1, kind="both", workers=1).optimize()
            zb.build_index(lake, "name", rows_per_zone=20, kind="both", optimize=False, workers=1)
        ids = (range(448), range(448, 600))[number]  # 448 zones are the fewest that are sliced
        names = [None if number % 50 == 0 else f"n {number}" for number in ids]
        path = lake / f"part-{number}.parquet"
        pq.write_table(pa.table({"id": pa.array(ids, pa.int64()), "name": names}), path)
        os.utime(path, ns=(WRITTEN, WRITTEN))
    index = zb.open_index(lake)
    index.refresh(workers=1)
    index.vacuum(older_than=timedelta(0))
    return index


def _malformed(index: Path, folder: Path) -> None:
    """One file of each kind, damaged; the name says of which kind, and what is wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    whole = {path.relative_to(index).as_posix(): path.read_bytes() for path in index.rglob("*.*") if path.is_file()}
    version = max(path for path in whole if path.startswith("versions/"))
    document = json.loads(whole[version])
    told = []

    def add(name: str, path: str, data: bytes) -> None:
        (folder / name).write_bytes(data)
        told.append({"file": name, "instead of": path})

    add("version-cut", version, whole[version][:-40])
    add("version-checksum", version, whole[version].replace(b'"rows_per_zone": 20', b'"rows_per_zone": 21'))
    add("version-of-the-future", version, json.dumps({**document, "format_version": 99}).encode())
    for column in document["body"]["columns"]:
        for segment in column["segments"]:
            path = segment["path"]
            name = f"{column['name']}-{segment['kind']}"
            if not any(text["file"].startswith(name) for text in told):
                add(f"{name}-cut", path, whole[path][:-8])
                middle = len(whole[path]) // 2
                flipped = bytes([whole[path][middle] ^ 1])
                add(f"{name}-flipped", path, whole[path][:middle] + flipped + whole[path][middle + 1 :])
    fragments = next(path for path in whole if path.startswith("fragments/"))
    add("fragments-cut", fragments, whole[fragments][:-8])
    (folder / "files.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
