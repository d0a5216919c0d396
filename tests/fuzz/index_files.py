"""Mutations of the files of an index, and what must hold whatever a file says.

An **accident** changes bytes and nothing else: every row must still be found. An **author** changes bytes and makes all
checksums right again: the index may then lie about its filters, so rows may be lost, but nothing else may happen: no
crash, no hang, no memory beyond the file's size, no exception that is not ours, no row that does not match.

One case is one seed. `python -m tests.fuzz.index_files --seconds 600 --seed 1` runs cases until the time is over, in
child processes that it starts again after each finding; the last line counts them.
"""

from __future__ import annotations

import base64
import contextlib
import json
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import xxhash

import zonebloom as zb
from tests.fuzz.children import FindingError, check_memory, main, run_child
from zonebloom.errors import ZoneBloomError
from zonebloom.storage.manifest import FORMAT_VERSION

KINDS = (*("version", "fragments", "zones", "slices", "slices metadata", "locator"),)
KEYS = {"k": 600, "s": 600}
_NUMBERS = (0, 1, 2, 7, 255, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**40, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
_LEAVES = (None, True, "", "x", "..", "/", -1, 0.5, 1e308, [], {}, [[0, 2**63]], *_NUMBERS, 10**30)
_PATHS = ("../x.arrow", "/etc/passwd", "fragments/../../x", "columns/k/../../../x", "fragments/pipe.arrow")


# --- an index with a file of each kind --------------------------------------------------------------------------------


FIRST_ROWS = 448
"""Rows of the first file: with a row a zone, the fewest zones that are sliced on a disk."""


@dataclass(frozen=True)
class Subject:
    """A small lake with an index of every kind of file, as bytes that a case changes and puts back."""

    lake: Path
    files: dict[str, bytes] = field(default_factory=dict)
    """By path in the index."""

    @classmethod
    def built(cls, folder: Path) -> Subject:
        """Two files of 448 and 152 rows, one by a refresh; column `k` is sliced, `s` has filters and locators."""
        lake = folder / "lake"
        lake.mkdir()
        for number in range(2):
            if number:
                zb.build_index(lake, "k", rows_per_zone=1, workers=1).optimize()
                zb.build_index(lake, "s", rows_per_zone=20, kind="both", optimize=False, workers=1)
            keys = (range(FIRST_ROWS), range(FIRST_ROWS, 600))[number]
            table = pa.table({"k": pa.array(keys, pa.int64()), "s": [f"text {key}" for key in keys]})
            pq.write_table(table, lake / f"part-{number}.parquet", row_group_size=100)
        zb.open_index(lake).refresh()
        subject = cls(lake)
        root = subject.index
        for path in sorted(root.rglob("*")):
            if path.is_file():
                subject.files[path.relative_to(root).as_posix()] = path.read_bytes()
        return subject

    @property
    def index(self) -> Path:
        return self.lake.with_name(f"_{self.lake.name}.zonebloom")

    @property
    def version(self) -> str:
        return max(path for path in self.files if path.startswith("versions/"))

    def body(self) -> dict[str, Any]:
        """The body of the current version."""
        body: dict[str, Any] = json.loads(self.files[self.version])["body"]
        return body

    def put(self, files: dict[str, bytes]) -> None:
        """Have exactly `files` in the index."""
        for path in sorted(self.index.rglob("*"), reverse=True):
            if path.is_symlink() or not path.is_dir():
                path.unlink()
        for path, data in files.items():
            target = self.index / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)


def segments_of(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Entries of the segments of one kind of file."""
    return [segment for column in body["columns"] for segment in column["segments"] if segment["kind"] == kind]


# --- mutations --------------------------------------------------------------------------------------------------------


def mutated_bytes(data: bytes, chance: random.Random) -> bytes:
    """`data` with one to three changes: bits, numbers of 4 or 8 bytes, lengths, pieces."""
    damaged = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        place = chance.randrange(max(len(damaged), 1))
        match chance.randrange(8):
            case 0 | 1:
                damaged[place : place + 1] = bytes([damaged[place] ^ 1 << chance.randrange(8)]) if damaged else b"\0"
            case 2 | 3 | 4:
                size = chance.choice((1, 2, 4, 8))
                start = place // size * size
                before = int.from_bytes(damaged[start : start + size], "little")
                value = chance.choice((*_NUMBERS, before + 1, before - 1, before * 2, 2**64 - before))
                damaged[start : start + size] = (value % 256**size).to_bytes(size, "little")
            case 5:
                del damaged[place:]
            case 6:
                del damaged[place : place + chance.choice((1, 8, 64))]
            case 7:
                other = chance.randrange(max(len(damaged), 1))
                damaged[place:place] = damaged[other : other + chance.choice((1, 8, 64, 512))]
    return bytes(damaged)


def mutated_json(value: Any, chance: random.Random) -> Any:
    """`value` with one part of it changed, at any depth."""
    places: list[tuple[Any, Any]] = []
    pending = [value]
    while pending:
        taken = pending.pop()
        if isinstance(taken, (dict, list)):
            keys = list(taken) if isinstance(taken, dict) else list(range(len(taken)))
            places += [(taken, key) for key in keys]
            pending += [taken[key] for key in keys]
    holder, key = chance.choice(places)
    match chance.randrange(8):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.append(holder[key])
        case 2 if isinstance(holder[key], str):
            is_hex = len(holder[key]) > 100
            text = mutated_bytes(bytes.fromhex(holder[key]), chance).hex() if is_hex else chance.choice(_PATHS)
            holder[key] = text
        case 3 if type(holder[key]) in (int, float):
            holder[key] = chance.choice((holder[key] + 1, holder[key] - 1, holder[key] * 2, -holder[key]))
        case 4:
            other, place = chance.choice(places)
            with contextlib.suppress(KeyError, IndexError):
                holder[key] = json.loads(json.dumps(other[place]))
        case _:
            holder[key] = chance.choice(_LEAVES)
    return value


def with_metadata(data: bytes, change: Callable[[dict[bytes, bytes]], object]) -> bytes:
    """A slice segment whose schema has other metadata; the rows stay where they were, if the head has room."""
    schema = pa.ipc.read_schema(pa.py_buffer(data)[8:])
    metadata = dict(schema.metadata)
    change(metadata)
    head = schema.with_metadata(metadata).serialize().to_pybytes()
    return data[:8] + head + data[8 + schema.serialize().size :]


def mutated_slice_metadata(data: bytes, chance: random.Random) -> bytes:
    def change(metadata: dict[bytes, bytes]) -> None:
        key = chance.choice((b"zonebloom.slices", b"zonebloom.zones"))
        if key == b"zonebloom.slices" and chance.random() < 0.9:
            metadata[key] = json.dumps(mutated_json(json.loads(metadata[key]), chance)).encode()
        elif chance.random() < 0.9:
            metadata[key] = base64.b64encode(mutated_bytes(base64.b64decode(metadata[b"zonebloom.zones"]), chance))
        else:
            metadata[key] = mutated_bytes(metadata[key], chance)

    return with_metadata(data, change)


def repaired(files: dict[str, bytes], version: str) -> None:
    """Make the checksums of the current version those of the files as they are now."""
    document = json.loads(files[version])
    body = document["body"]
    for entry in body["fragments"]:
        if entry[0] in files:
            entry[2:] = [len(files[entry[0]]), xxhash.xxh3_64_hexdigest(files[entry[0]])]
    for column in body["columns"]:
        for entry in column["segments"]:
            data, start, last = files.get(entry["path"], b""), 0, len(entry["spans"]) - 1
            for number, span in enumerate(entry["spans"]):
                span[0] = max(len(data) - start, 0) if number == last else span[0]
                if span[1]:
                    span[1] = xxhash.xxh3_64_hexdigest(data[start : start + span[0]])
                start += span[0]
    files[version] = sealed(body)


def sealed(body: Any) -> bytes:
    """A version file with any body, and the checksum of that."""
    canonical = json.dumps(body, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    digest = xxhash.xxh3_64_hexdigest(canonical)
    return json.dumps(
        {"format": "zonebloom", "format_version": FORMAT_VERSION, "checksum": digest, "body": body}
    ).encode()


def mutated(subject: Subject, kind: str, chance: random.Random, *, is_author: bool) -> dict[str, bytes]:
    """The files of the index with one of them changed; by an author with checksums that are right."""
    files = dict(subject.files)
    body = subject.body()
    if kind == "version":
        if is_author:
            files[subject.version] = sealed(mutated_json(body, chance))
        else:
            files[subject.version] = mutated_bytes(files[subject.version], chance)
        return files
    entry = None
    if kind == "fragments":
        path = chance.choice(body["fragments"])[0]
    else:
        entry = chance.choice(segments_of(body, kind.split(maxsplit=1)[0]))
        path = entry["path"]
    if kind == "slices metadata":
        files[path] = mutated_slice_metadata(files[path], chance)
        assert entry is not None
        entry["spans"][0][0] += len(files[path]) - len(subject.files[path])
        files[subject.version] = sealed(body)
    else:
        files[path] = mutated_bytes(files[path], chance)
    if is_author:
        repaired(files, subject.version)
    return files


# --- what must hold ---------------------------------------------------------------------------------------------------


def check(subject: Subject, chance: random.Random, *, is_author: bool) -> str:
    """Use the index as users do; how it ended, in a word."""
    keys = sorted(chance.sample(range(KEYS["k"]), 3))
    outcome = "whole"
    try:
        index = zb.open_index(subject.lake)
        for predicate, wanted in (
            (zb.IsIn("k", [*keys, 10_000]), keys),
            (zb.IsIn("s", [f"text {key}" for key in keys]), keys),
            (zb.Equals("k", keys[0]), keys[:1]),
        ):
            outcome = "damaged" if index.search(predicate).reasons else outcome
            values = index.to_table(predicate, columns=["k"])["k"].to_pylist()
            if values != wanted and (not is_author or not set(values) <= set(wanted)):
                raise FindingError(f"{predicate} must find {wanted}, got {values}")
        if not all(index.exists("k", keys).to_pylist()) and not is_author:
            raise FindingError(f"{keys} must exist")
        index.exists("s", [f"text {key}" for key in range(0, 600, 2)])
        index.locate("k", keys)
    except ZoneBloomError as error:
        check_memory(error)
        return f"refused by {type(error).__name__}"
    for name in chance.sample([*_USES], chance.choice((0, 1, 2))):
        try:
            _USES[name](subject.lake, index)
        except ZoneBloomError as error:
            check_memory(error)
            outcome = f"{outcome}, {name} refused"
    return outcome


def refreshed(lake: Path, index: zb.Index) -> None:
    index.refresh()
    if zb.open_index(lake).search(zb.Equals("k", 7)).row_ranges.num_rows > KEYS["k"]:
        raise FindingError("a search must not keep more rows than there are")


_USES: dict[str, Callable[[Path, zb.Index], object]] = {
    "zone_table": lambda _, index: index.zone_table("k").measured_fpp(),
    "verify": lambda _, index: index.verify(sample=1.0),
    "refresh": refreshed,
    "optimize": lambda _, index: index.optimize(),
    "vacuum": lambda _, index: index.vacuum(older_than=timedelta(0)),
    "versions": lambda _, index: [index.restore(version.number) for version in index.versions()[:1]],
}


def run_case(subject: Subject, seed: int, kinds: tuple[str, ...] = KINDS) -> str:
    """One case; the kind of file and how it ended. Raises what breaks a promise."""
    chance = random.Random(seed)
    kind = kinds[seed % len(kinds)]
    is_author = chance.random() < 0.8
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message=".*(MemoryError|malloc)")
        files = mutated(subject, kind, chance, is_author=is_author)
        subject.put(files)
        ended = check(subject, chance, is_author=is_author)
    return f"{kind}, {'author' if is_author else 'accident'}: {ended}"


# --- processes --------------------------------------------------------------------------------------------------------


def run_as_child(folder: Path, first: int, count: int, options: list[str]) -> None:
    """Cases of the kinds that are asked for, in a process that has done all kinds of work once."""
    kinds = tuple(options[0].split(","))
    subject = Subject.built(folder)
    warm = zb.open_index(subject.lake)
    for use in _USES.values():
        use(subject.lake, warm)
    subject.put(subject.files)
    run_child(first, count, lambda seed: run_case(subject, seed, kinds))


if __name__ == "__main__":
    main("tests.fuzz.index_files", run_as_child, kinds=",".join(KINDS))
