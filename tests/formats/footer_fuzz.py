"""Reads Parquet files with damaged footers in every way that zonebloom does; run as a process, as that may abort.

`python footer_fuzz.py FOLDER STEP SEED ROUNDS EVERY` takes each file of FOLDER, flips each bit of the headers of its
bloom filters and of every STEP-th byte of its footer, and then makes ROUNDS random edits of some bytes of the footer.
The filters of every EVERY-th file are used as well, and of some an index is made. It prints the number of files read,
and of those refused. It ends with an error, and leaves the damaged file in FOLDER, at the first that is neither.
"""

from __future__ import annotations

import os
import resource
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq

import zonebloom as zb
from tests.formats.page_costs import every_page_pays
from zonebloom.errors import DataFileError, ZoneBloomError
from zonebloom.formats import DataFile
from zonebloom.formats.parquet.column_mapping import StoredName
from zonebloom.stores.local_file import LocalFile

MEMORY_BYTES = 4 << 30
OLD_NS = 10**18
"""A time of modification long ago: young files are waited for."""
HEADER_BYTES = 16


def read_in_every_way(path: Path) -> None:
    with DataFile(LocalFile(path)) as data:
        assert len(data.row_group_bytes) == len(data.row_group_rows)
        assert data.int96_columns is not None
        names = dict.fromkeys(data.schema.names)
        for name in names:
            try:
                assert list(data.column_batches([name], 0, min(data.num_rows, 10_000))) is not None
                data.column_ranges(name)
                for group, rows in enumerate(data.row_group_rows):
                    data.integer_range(group, name, pa.int64())
                    if rows:
                        data.read_rows(group, [0], [1], [name])
            except DataFileError:  # another column may be sound
                continue
    with DataFile(LocalFile(path), lambda footer: footer.renamed(other_name, str(path))) as data:
        assert [name.endswith("_2") for name in data.schema.names] == [True] * len(names)


def other_name(stored: StoredName) -> str:
    return f"{stored.path[-1]}_2"


def use_its_filters(path: Path, output: Path, *, is_adopted: bool) -> None:
    """Each in turn, whatever the one before says of the file."""
    with DataFile(LocalFile(path)) as data:
        names = [name for name, _type in data.leaves]
        for leaf in range(len(names)):
            with suppress(DataFileError):
                assert {own.row_group for own in data.own_filters(leaf)} <= set(range(len(data.row_group_rows)))
                assert data.num_nulls(0, leaf) != -1
    uses: list[Callable[[], object]] = [lambda: zb.parquet_blooms(path)]
    for name in names:
        uses += [
            lambda name=name: zb.parquet_bloom(path, 0, name),
            lambda name=name: zb.parquet_blooms(path, column=name, value=7),
            lambda name=name: zb.open_lake(path).search(zb.col(name).isin([7, 8])),
            lambda name=name: zb.add_parquet_blooms(path, output / "copy", name),
        ]
        if is_adopted:
            uses.append(lambda name=name: zb.build_index(path, name, adopt="parquet", index=output / "index"))
    for use in uses:
        with suppress(ZoneBloomError):
            use()
        shutil.rmtree(output, ignore_errors=True)


def damaged(whole: bytes, headers: list[int], step: int, seed: int, rounds: int) -> Iterator[bytes]:
    length = int.from_bytes(whole[-8:-4], "little")
    first, stop = len(whole) - 8 - length, len(whole) - 8
    places = [place for start in headers for place in range(start, start + HEADER_BYTES)]
    for place in (*places, *range(first, stop, step)):
        for bit in range(8):
            yield whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]
    random = Random(seed)
    for _ in range(rounds):
        footer = bytearray(whole[first:stop])
        for _ in range(random.randint(1, 4)):
            place, size = random.randrange(len(footer)), random.randint(0, 3)
            footer[place : place + size] = random.randbytes(random.choice([size, size, random.randint(0, 3)]))
        yield whole[:first] + bytes(footer) + len(footer).to_bytes(4, "little") + b"PAR1"


def main(folder: Path, step: int, seed: int, rounds: int, every: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    every_page_pays()
    num_read = num_refused = 0
    times = count(OLD_NS)
    for base in sorted(folder.glob("*.parquet")):
        place = folder / f"{base.stem}.damaged.parquet"
        metadata = pq.read_metadata(base)
        chunks = [metadata.row_group(0).column(leaf) for leaf in range(metadata.num_columns)]
        places = [getattr(chunk, "bloom_filter_offset", None) for chunk in chunks]  # pyarrow 24 does not tell them
        headers = [place for place in places if place is not None]
        for number, data in enumerate(damaged(base.read_bytes(), headers, step, seed, rounds)):
            place.write_bytes(data)
            os.utime(place, ns=(time := next(times), time))
            try:
                read_in_every_way(place)
                if number % every == 0:
                    use_its_filters(place, folder / "output", is_adopted=number % (16 * every) == 0)
                num_read += 1
            except DataFileError:
                num_refused += 1
        place.unlink()
    sys.stdout.write(f"{num_read} {num_refused}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
