"""Reads Parquet files with damaged footers in every way that zonebloom does; run as a process, as that may abort.

`python footer_fuzz.py FOLDER STEP SEED ROUNDS` takes each file of FOLDER, flips each bit of every STEP-th byte of its
footer, and then makes ROUNDS random edits of several bytes. It prints the number of files read, and of those refused.
It ends with an error, and leaves the damaged file in FOLDER, at the first that is neither.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow as pa

from zonebloom.errors import DataFileError
from zonebloom.formats import DataFile
from zonebloom.formats.parquet.column_mapping import StoredName
from zonebloom.formats.source import LocalSource

MEMORY_BYTES = 4 << 30


def read_in_every_way(path: Path) -> None:
    with DataFile(LocalSource(path)) as data:
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
    with DataFile(LocalSource(path), lambda footer: footer.renamed(other_name, str(path))) as data:
        assert [name.endswith("_2") for name in data.schema.names] == [True] * len(names)


def other_name(stored: StoredName) -> str:
    return f"{stored.path[-1]}_2"


def damaged(whole: bytes, step: int, seed: int, rounds: int) -> Iterator[bytes]:
    length = int.from_bytes(whole[-8:-4], "little")
    first, stop = len(whole) - 8 - length, len(whole) - 8
    for place in range(first, stop, step):
        for bit in range(8):
            yield whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :]
    random = Random(seed)
    for _ in range(rounds):
        footer = bytearray(whole[first:stop])
        for _ in range(random.randint(1, 4)):
            place, size = random.randrange(len(footer)), random.randint(0, 3)
            footer[place : place + size] = random.randbytes(random.choice([size, size, random.randint(0, 3)]))
        yield whole[:first] + bytes(footer) + len(footer).to_bytes(4, "little") + b"PAR1"


def main(folder: Path, step: int, seed: int, rounds: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    num_read = num_refused = 0
    for base in sorted(folder.glob("*.parquet")):
        place = folder / f"{base.stem}.damaged"
        for data in damaged(base.read_bytes(), step, seed, rounds):
            place.write_bytes(data)
            try:
                read_in_every_way(place)
                num_read += 1
            except DataFileError:
                num_refused += 1
        place.unlink()
    sys.stdout.write(f"{num_read} {num_refused}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
