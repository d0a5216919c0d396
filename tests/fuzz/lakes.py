"""Lakes and their lives: what every writer writes, asked through every entrance and in every way to read.

One case is one seed: rows of awkward names and types in files, a Delta, Iceberg or Lance table, an index of some of
the columns, and a life: rows come, change and go; refresh, optimize, vacuum, restore, another kind. After each event
random conditions are asked. The oracle is `conditions.truth_of` over all rows as their own reader has them. pyarrow 26,
asked over rows in memory, must agree with it, or the finding is of the oracle. Engines are compared with themselves.

`python -m tests.fuzz.lakes --seconds 600 --seed 1`; `--sources delta,iceberg` chooses among `SOURCES`, and
`--questions 40` asks more after each event: the cheapest way to many conditions, as making a lake takes the longest.
"""

from __future__ import annotations

import math
import random
import shutil
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path as Folder
from typing import Any, Self

import pyarrow as pa
import pyarrow.dataset as pads
import pytest

import zonebloom as zb
from tests.formats.page_costs import every_page_pays
from tests.fuzz import conditions
from tests.fuzz.children import CASE_SECONDS, FindingError, main, run_child
from tests.fuzz.columns import KINDS, random_columns
from tests.fuzz.conditions import Condition, Path, as_expression, as_sql, as_terms, is_nan, literals_of
from tests.fuzz.engines import ask_engine
from tests.fuzz.lance_tables import Lance
from tests.fuzz.sources import Delta, Files, Iceberg, Row, Source, assert_same
from zonebloom.errors import CorruptIndexError, DataFileError

EVENTS = 4
QUESTIONS = 5
SOURCES: dict[str, type[Source]] = {"files": Files, "delta": Delta, "iceberg": Iceberg, "lance": Lance}


# --- a lake and its index ---------------------------------------------------------------------------------------------


@dataclass
class Case:
    """One life."""

    source: Source
    chance: random.Random
    questions: int = QUESTIONS
    index: Any = None
    is_damaged: bool = False
    num_asked: int = 0

    @classmethod
    def of(cls, folder: Folder, seed: int, source: type[Source]) -> Self:
        chance = random.Random(seed)
        return cls(source(folder, chance, random_columns(chance)), chance)

    def build(self) -> None:
        """Index some of the columns."""
        chance, leaves = self.chance, self.source.indexable
        chosen = chance.sample(leaves, min(len(leaves), chance.randrange(1, 4)))
        options: dict[str, Any] = {
            "rows_per_zone": chance.choice((1, 2, 5, 8)),
            "sizing": chance.choice(("power_of_two", "exact", "adaptive", "parquet")),
            "kind": chance.choice(("bloom", "locator", "both")),
            "fpp": chance.choice((0.001, 0.2)),
        }
        self.source.log.append(f"index of {chosen}: {options}")
        names = [".".join(key) for key in chosen]
        self.index = zb.build_index(self.source.data, names, index=self.source.index, workers=1, **options)
        self.source.is_indexed = True

    def events(self) -> Iterator[None]:
        """What happens, one event after the other."""
        for _ in range(EVENTS):
            self.event()
            yield

    def event(self) -> None:
        """Something that happens to the rows or to the index."""
        chance, index = self.chance, self.index
        if chance.random() < 0.5:
            self.source.change(chance.choice(self.source.CHANGES))
            return
        upkeep = ("refresh", "refresh", "refresh", "rewrite", "optimize", "vacuum", "restore", "kind")
        what = chance.choice((*upkeep, "damage", "damage"))
        self.source.log.append(what)
        try:
            self.keep(what)
        except CorruptIndexError:
            if not self.is_damaged:
                raise
        if what == "damage" or chance.random() < 0.3:
            kept = [None, None, *(version.number for version in index.versions())]
            version = chance.choice(kept)  # an older one answers too, and what changes the index begins at the newest
            self.index = zb.open_index(self.source.index or self.source.data, dataset=self.source.data, version=version)

    def keep(self, what: str) -> None:
        """What upkeep does to the index, or what damages it."""
        chance, index = self.chance, self.index
        if what == "refresh":
            mode = chance.choice(("incremental", "incremental", "quick", "full"))
            index.refresh(mode, workers=1, commit_every=chance.choice((5, 10**9)), check=chance.random() < 0.3)
        elif what == "rewrite":
            self.source.rewrite(index.columns)
        elif what == "optimize":
            index.optimize()
        elif what == "vacuum":
            index.vacuum(older_than=timedelta(0))
        elif what == "restore":
            index.restore(chance.choice(index.versions()).number)
        elif what == "kind":
            index.refresh("full", kind=chance.choice(("bloom", "locator", "both")), workers=1)
        elif what == "damage":
            self.is_damaged = True
            versions = sorted((index.root / "versions").glob("*.json"))
            parts = [path for part in ("columns", "fragments") for path in (index.root / part).rglob("*.*")]
            parts.sort(key=lambda path: (path.suffixes, path.stat().st_mtime_ns))  # names are random
            spoil(chance.choice([*parts, *versions[1:][-1:]]), chance)

    # --- questions ----------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Conditions over what is there."""
        source = self.source
        placed = source.rows()
        rows = [row for _, _, row in placed]
        pools = self.pools(rows, self.index.view().schema.names)
        kinds = {leaf: "text" if kind == "dictionary" else kind for leaf, kind in self.kinds().items()}
        types = {leaf: KINDS[kind][0] for leaf, kind in kinds.items()}
        types |= {(name,): kind for name, (kind, _) in source.constants.items()}
        for _ in range(self.questions if pools else 0):
            condition = conditions.random_condition(self.chance, pools)
            wanted = [row for row in placed if conditions.truth_of(condition, row[2])]
            try:
                self._ask(condition, types, rows, wanted)
                self._ask_for_values(condition, rows)
                self.num_asked += 1
            except DataFileError as error:  # until the refresh that makes the type wider
                if "must convert to the data set's type" not in str(error):
                    raise
            except Exception as error:
                error.add_note(f"condition {condition}")
                raise

    def kinds(self) -> dict[Path, str]:
        """Of all that can be asked for in files."""
        return {leaf: kind for column in self.source.columns for leaf, kind in column.leaves.items()}

    def pools(self, rows: list[Row], names: list[str]) -> dict[Path, list[Any]]:
        """Values to ask for, of the columns that there are."""
        constants = self.source.constants.items()
        constant_values = {(name,): [value for value in values if value is not None] for name, (_, values) in constants}
        for leaf, kind in self.kinds().items():
            if leaf[0] in names:
                there = [value for value in (conditions.value_of(row, leaf) for row in rows[:20]) if value is not None]
                constant_values[leaf] = [*there, *(KINDS[kind][1](self.chance) for _ in range(3))]
        return constant_values

    def _ask(self, condition: Condition, types: dict[Path, Any], rows: list[Any], placed: list[Any]) -> None:
        chance, index = self.chance, self.index
        schema = index.view().schema
        wanted: list[Row] = [row for _, _, row in placed]
        names = [name for name in (rows[0] if rows else {}) if name in schema.names]
        values = [value for _, value in literals_of(condition)]
        has_null = "None" in str(values) and "'in'" in str(condition)
        is_textual = not any(isinstance(value, float) and not math.isfinite(value) for value in values)
        entrances: list[Any] = [as_terms(condition)]
        if is_textual:
            entrances.append(as_sql(condition))
        if not has_null:
            entrances.append(as_expression(condition, types))
        entrance = chance.choice(entrances)
        is_ordered = self.source.is_ordered
        answered = index.to_table(entrance, columns=names or None).to_pylist()
        assert_same(answered, wanted, f"to_table({entrance})", names=names, is_ordered=is_ordered)
        if is_ordered:
            result = index.search(entrance)
            kept = {(path, row) for path, start, stop in result for row in range(start, stop)}
            matching = {(path, offset) for path, offset, _ in placed}
            if matching - kept or (result.kind == "exact" and kept - matching):
                raise FindingError(f"search({entrance}) must keep {sorted(matching)[:5]}, got {result.kind} {result}")
        way = chance.choice(("", "arrow", "dataset", "engine", "engine"))
        memory = None
        with suppress(pa.ArrowInvalid):  # a new file may have wider values than the schema before the refresh
            fields = [field for field in index.view().plain_schema if rows and field.name in rows[0]]
            memory = pa.Table.from_pylist(rows, pa.schema(fields)) if fields else None
        is_foldable = len({name.casefold() for name in schema.names}) == len(schema.names)
        is_whole = memory is not None and memory.column_names == schema.names
        if way == "engine" and is_whole and is_textual and is_foldable:
            ask_engine(chance, index, memory, condition)
        if way == "arrow" and memory is not None and not has_null:
            count = pads.dataset(memory).to_table(filter=as_expression(condition, types)).num_rows
            if count != len(wanted):
                raise FindingError(f"the oracle must find what pyarrow does, got {len(wanted)}, not {count} rows")
        if way == "dataset" and not has_null:
            answered = index.dataset().to_table(filter=as_expression(condition, types), columns=names).to_pylist()
            assert_same(answered, wanted, f"dataset {condition}", names=names, is_ordered=is_ordered)

    def _ask_for_values(self, condition: Condition, rows: list[dict[str, Any]]) -> None:
        """`exists` and `locate` of the values of a condition, where the column is indexed."""
        for leaf, value in literals_of(condition)[:1]:
            name = ".".join(leaf)
            if value is None or is_nan(value) or name not in self.index.columns:
                continue
            count = sum(conditions.value_of(row, leaf) == value for row in rows)
            answers = self.index.exists(name, [value], exact=True).to_pylist()
            if answers != [bool(count)]:
                raise FindingError(f"exists({name}, {value!r}) must be {bool(count)}, got {answers}")
            lines = self.index.locate(name, [value], exact=True).to_pylist()
            if sum(line["path"] is not None for line in lines) != count:
                raise FindingError(f"locate({name}, {value!r}) must find {count} rows, got {lines}")


def spoil(path: Folder, chance: random.Random) -> None:
    """Clear a part of a file of the index, or cut it off there, or remove the file; what has mapped it keeps it."""
    data, how = bytearray(path.read_bytes()), chance.choice(("clear", "cut", "remove"))
    path.unlink()
    start = chance.randrange(len(data))
    data[start : start + 256] = bytes(len(data[start : start + 256]))
    if how != "remove":
        path.write_bytes(data[:start] if how == "cut" else data)


def run_case(
    folder: Folder,
    seed: int,
    sources: dict[str, type[Source]] = SOURCES,
    questions: int = QUESTIONS,
    kind: type[Case] = Case,
) -> str:
    """One life; in a word how it ended."""
    name = list(sources)[seed % len(sources)]
    place = folder / f"life {seed}"
    place.mkdir()
    case = kind.of(place, seed, sources[name])
    case.questions = questions
    try:
        with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
            warnings.simplefilter("ignore")
            if seed % 2:
                every_page_pays(patch.setattr)
            case.source.created()
            case.build()
            case.ask()
            for _ in case.events():
                case.ask()
    except Exception as error:
        error.add_note(f"{name}: {case.source.columns}; life {case.source.log}")
        raise
    finally:
        case.source.close()
        shutil.rmtree(place)
    return f"{name}: {case.num_asked} conditions"


def run_as_child(folder: Folder, first: int, count: int, options: list[str]) -> None:
    pa.set_cpu_count(1)
    sources = {name: SOURCES[name] for name in options[0].split(",")}
    for seed in range(3):  # warm
        run_case(folder, seed, sources)
    questions = int(options[1])
    seconds = CASE_SECONDS * max(1, questions / QUESTIONS)
    run_child(first, count, lambda seed: run_case(folder, seed, sources, questions), case_seconds=seconds)


if __name__ == "__main__":
    main("tests.fuzz.lakes", run_as_child, sources=",".join(SOURCES), questions=str(QUESTIONS))
