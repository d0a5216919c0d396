"""What an index is over: files in folders, a Delta table or an Iceberg table, each with random changes.

The rows of a table are those of its own reader, deltalake 1.6 or pyiceberg 0.12. A change that their library refuses is
no change. Deletion vectors and position deletes are committed by hand, after the protocols.
"""

from __future__ import annotations

import json
import os
import random
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce
from pathlib import Path as Folder
from typing import Any, ClassVar
from urllib.parse import quote, unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyiceberg import expressions as ice, transforms
from pyiceberg.exceptions import ValidationException
from pyiceberg.manifest import DataFileContent
from pyiceberg.types import DoubleType, LongType

from tests import delta_log
from tests.fuzz.children import FindingError
from tests.fuzz.columns import KINDS, NAMES, NARROWER, UTC, Column
from tests.fuzz.conditions import Condition, Path, as_sql, is_nan, random_condition, spelled
from tests.fuzz.writers import is_readable, writers_of
from tests.iceberg_log import RacingCatalog, commit_deletes, position_deletes, puffin
from tests.tables import plain
from zonebloom.engines import iceberg as by_keys
from zonebloom.errors import ConcurrentCommitError, DataFileError
from zonebloom.formats import open_dataset

Row = dict[str, Any]
Placed = tuple[str, int, Row]
"""Path, offset and values of a row; of a table without its place."""


class Source(ABC):
    """Rows that change, and what is true of them."""

    CHANGES: ClassVar[tuple[str, ...]]
    REFUSALS: ClassVar[tuple[type[Exception], ...]] = ()
    """Errors of the library that changes it."""
    is_ordered = False
    """Whether a scan has the rows in an order of their own."""

    def __init__(self, folder: Folder, chance: random.Random, columns: list[Column]) -> None:
        self.root = folder / "lake é %41"
        self.chance = chance
        self.columns = columns
        self.num_values = chance.choice((5, 40))
        self.log: list[str] = []
        self.is_indexed = False

    @property
    def data(self) -> Any:
        """What zonebloom is given."""
        return self.root

    @property
    def index(self) -> Folder | None:
        """Where the index is; None for the place that it has by default."""
        return None

    @property
    def indexable(self) -> list[Path]:
        """What an index may be of."""
        return [leaf for column in self.columns for leaf in column.leaves]

    @property
    def constants(self) -> dict[str, tuple[pa.DataType, tuple[Any, ...]]]:
        """Columns that no file has: type and values."""
        return {}

    def created(self) -> None:
        """Make it, with some rows."""
        for _ in range(self.chance.choice((1, 2, 3))):
            self.change(self.CHANGES[0])

    def change(self, what: str) -> bool:
        """One of `CHANGES`; False if its library refuses it."""
        try:
            getattr(self, f"_{what}")()
            self.log.append(what)
        except self.REFUSALS as error:
            self.log.append(f"{what} refused: {str(error)[:200]}")
            return False
        return True

    @abstractmethod
    def rows(self) -> list[Placed]:
        """All rows as their own reader has them."""

    def rewrite(self, columns: list[str]) -> None:
        """Change rows by keys of one of the indexed `columns`, if zonebloom can."""
        return

    def close(self) -> None:
        """Let go of what is held."""
        return

    # --- random rows --------------------------------------------------------------------------------------------------

    def some(self, columns: list[Column] | None = None, *, at_least: int = 0) -> pa.Table:
        """Random rows, some columns of which may be narrower."""
        chance = self.chance
        num_rows = max(chance.choice((0, 1, 5, 12, 40)), at_least)
        columns = [
            Column(column.name, NARROWER.get(column.kind, column.kind), column.fields)
            if chance.random() < 0.1
            else column
            for column in columns or self.columns
        ]
        return self.rows_of(columns, num_rows)

    def rows_of(self, columns: list[Column], num_rows: int) -> pa.Table:
        """So many random rows."""
        arrays = {
            column.name: [column.value(self.chance, self.num_values) for _ in range(num_rows)] for column in columns
        }
        return pa.table({column.name: pa.array(arrays[column.name], column.type) for column in columns})

    def fewer_columns(self) -> list[Column]:
        """Often all columns, and sometimes one less."""
        columns = list(self.columns)
        if self.chance.random() < 0.15 and len(columns) > 1 and self.is_indexed:
            columns.remove(self.chance.choice(columns))
        return columns

    def condition(self) -> Condition:
        """What is true of some rows."""
        leaves = {leaf: kind for column in self.columns for leaf, kind in column.leaves.items() if len(leaf) == 1}
        pools = {leaf: [KINDS[kind][1](self.chance) for _ in range(4)] for leaf, kind in leaves.items()}
        return random_condition(self.chance, pools, depth=1)

    def kind(self, name: str) -> str:
        """The kind of a column."""
        return next(column.kind for column in self.columns if column.name == name)

    def without_equals(self, table: pa.Table, key: str) -> pa.Table:
        """`table` with each value of `key` once."""
        firsts = {repr(value): row for row, value in reversed([*enumerate(table[key].to_pylist())])}
        return table.take(pa.array(sorted(firsts.values()), pa.int64()))


# --- files ------------------------------------------------------------------------------------------------------------


class Files(Source):
    """Files of every writer, flat or in folders of partitions."""

    CHANGES = ("write", "write", "rewrite", "remove", "move")
    is_ordered = True
    writers = staticmethod(writers_of)

    def __init__(self, folder: Folder, chance: random.Random, columns: list[Column]) -> None:
        super().__init__(folder, chance, columns)
        self.partition: tuple[str, tuple[Any, ...]] | None = None
        self.clock = 0
        if chance.random() < 0.25:
            texts = ("x", "a b", "50%", "ü", "x=y", "~!@#$&'()*+,;:", "__", None)
            self.partition = chance.choice((("day", (1, 2, -30)), ("p q", texts)))

    @property
    def constants(self) -> dict[str, tuple[pa.DataType, tuple[Any, ...]]]:
        """The partition column."""
        if self.partition is None:
            return {}
        name, values = self.partition
        return {name: (pa.int32() if name == "day" else pa.string(), values)}

    def paths(self) -> list[str]:
        """Of all files."""
        return sorted(path.relative_to(self.root).as_posix() for path in self.root.rglob("*.parquet"))

    def rows(self) -> list[Placed]:
        """As pyarrow reads the whole files, in order."""
        names, actual = [column.name for column in self.columns], []
        for path in self.paths():
            rows = pq.ParquetFile(self.root / path).read(use_threads=False).to_pylist()
            constant = {}
            if self.partition is not None:
                value, (key, values) = path.split("/")[0].split("=", 1)[1], self.partition
                constant[key] = next(constant_value for constant_value in values if _in_path(constant_value) == value)
            actual += [(path, at, {name: row.get(name) for name in names} | constant) for at, row in enumerate(rows)]
        return actual

    def _write(self, path: str | None = None) -> None:
        columns = self.fewer_columns()
        table = self.some(columns)
        target = self.root / (path or self._new_path())
        target.parent.mkdir(parents=True, exist_ok=True)
        writer = self.chance.choice(self.writers(columns, table.num_rows))
        target.unlink(missing_ok=True)
        writer(table, target, self.chance)
        if not is_readable(target, table.num_rows):  # pyarrow 26 writes lists in pages of a byte that it cannot read
            pq.write_table(table, target)
        self._date(target)
        self.log.append(f"{path}: {table.num_rows} rows by {writer.__name__}")

    def _date(self, target: Folder) -> None:
        """Long past, so that no build waits, and a time of its own."""
        self.clock += 1
        when = 1_700_000_000_000_000_000 + 1001 * self.clock
        os.utime(target, ns=(when, when))

    def _new_path(self) -> str:
        name = self.chance.choice(("a.parquet", "b b.parquet", "c%20.parquet", "ü.parquet", "e=f.parquet"))
        if self.partition is None:
            return name
        key, values = self.partition
        return f"{quote(key, safe=' ')}={_in_path(self.chance.choice(values))}/{name}"

    def _rewrite(self) -> None:
        self._write(self.chance.choice(self.paths()))

    def _remove(self) -> None:
        if len(self.paths()) > 1:
            (self.root / self.chance.choice(self.paths())).unlink()

    def _move(self) -> None:
        """To a name that another file may have."""
        target = self.root / self._new_path()
        target.parent.mkdir(parents=True, exist_ok=True)
        (self.root / self.chance.choice(self.paths())).rename(target)


def _in_path(value: Any) -> str:
    return "__HIVE_DEFAULT_PARTITION__" if value is None else quote(str(value), safe=" ")


# --- Delta ------------------------------------------------------------------------------------------------------------


class Delta(Source):
    """A Delta table, with or without partitions and deletion vectors."""

    CHANGES = (
        *("append", "append", "append", "delete", "delete", "update", "overwrite", "replace", "merge"),
        *("compact", "order", "vector", "vector", "vector_again", "checkpoint", "restore", "vacuum"),
    )
    REFUSALS = (DeltaError, ValueError)

    def __init__(self, folder: Folder, chance: random.Random, columns: list[Column]) -> None:
        columns = [_with_names(column, dict.fromkeys(map(ord, " ,;{}()\n\t="))) for column in _storable(columns)]
        unique = {column.name.casefold(): column for column in columns}
        super().__init__(folder, chance, [Column("id", "int32"), *unique.values()])
        barred_kinds = ("struct", "list", "bytes", "decimal")  # deltalake 1.6 writes -2.25 into a path as -2.-25
        plain_names = [value.name for value in unique.values() if value.kind not in barred_kinds]
        self.partitions = chance.sample(plain_names, min(len(plain_names), chance.choice((0, 0, 1, 1, 2))))
        self.root = folder / "table é 100%"  # deltalake decodes %41 once more

    def created(self) -> None:
        """Make it, without partitions if deltalake cannot write their values into a path."""
        super().created()
        if not any(self.root.glob("_delta_log/*.json")):
            self.partitions = []
            self._append()

    @property
    def indexable(self) -> list[Path]:
        """Columns of the files."""
        return [leaf for leaf in super().indexable if leaf[0] not in self.partitions]

    def rows(self) -> list[Placed]:
        """As deltalake's own engine reads it, but an empty text of a partition is null, as the protocol says."""
        rows = plain(DeltaTable(self.root).scan()).to_pylist()
        for row in rows:
            row |= {name: None for name in self.partitions if row[name] == ""}
        return [("", at, row) for at, row in enumerate(rows)]

    def _append(self, mode: str = "append", **options: Any) -> None:
        is_new = self.chance.random() < 0.15 and self.is_indexed and mode == "append"
        columns = [*self.columns, Column(f"new{len(self.columns)}", self.chance.choice(("int64", "text")))]
        columns = (
            columns if is_new else [column for column in self.fewer_columns() if column.name not in self.partitions]
        )
        columns += [column for column in self.columns if column.name in self.partitions and column not in columns]
        rows = self.some(columns, at_least=1) if (self.root / "_delta_log").exists() else self.rows_of(columns, 12)
        write_deltalake(
            self.root,
            rows,
            mode=mode,
            partition_by=self.partitions or None,
            schema_mode="merge" if mode == "append" and self.is_indexed else None,
            configuration={"delta.enableDeletionVectors": "true"},
            **options,
        )
        if is_new:
            self.columns = columns

    def _overwrite(self) -> None:
        self._append("overwrite")

    def _replace(self) -> None:
        """Overwrite some of the partitions, or rows."""
        name = self.chance.choice(self.partitions or ["id"])
        values = [self.chance.choice(self.rows())[2][name]] if self.rows() else [None]
        rows = [value for value in self.some(at_least=5).to_pylist() if value[name] == values[0]]
        schema = pa.schema([(column.name, column.type) for column in self.columns])
        condition = as_sql(("null", (name,)) if values == [None] else ("=", (name,), values[0]))
        write_deltalake(self.root, pa.Table.from_pylist(rows, schema), mode="overwrite", predicate=condition)

    def _delete(self) -> None:
        DeltaTable(self.root).delete(as_sql(self.condition()))

    def _update(self) -> None:
        value = str(self.chance.randrange(-3, 9))
        DeltaTable(self.root).update(predicate=as_sql(self.condition()), updates={"id": value})

    def _merge(self) -> None:
        rows = self.without_equals(self.some(), "id")
        merge = DeltaTable(self.root).merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
        how = self.chance.choice(("delete", "update", "neither"))
        if how == "delete":
            merge = merge.when_matched_delete()
        elif how == "update":
            merge = merge.when_matched_update_all()
        merge.when_not_matched_insert_all().execute()

    def _compact(self) -> None:
        DeltaTable(self.root).optimize.compact()

    def _order(self) -> None:
        DeltaTable(self.root).optimize.z_order(["id"])

    def _vector(self) -> None:
        """Delete rows of one file by a deletion vector, in place of the one that it has."""
        live = set(open_dataset(self.root).pin().list())
        adds = {add["path"]: add for add in delta_log.actions(self.root, "add")}
        adds = {path: add for path, add in adds.items() if unquote(path) in live}
        if adds:
            add = adds[self.chance.choice(sorted(adds))]
            num_rows = json.loads(add["stats"])["numRecords"]
            chosen = sorted(self.chance.sample(range(num_rows), self.chance.randrange(num_rows + 1)))
            if "deletionVector" not in add and chosen:
                delta_log.delete_rows(self.root, add, chosen, self.chance.choice("iup"))

    def _vector_again(self) -> None:
        """Another deletion vector in place of the last one, as after a backup of the log."""
        log = self.root / "_delta_log"
        last = max(log.glob("*.json"))
        if "BY HAND" in last.read_text() and not list(log.glob(f"{last.stem}.checkpoint*")):
            last.unlink()
            self._vector()

    def _checkpoint(self) -> None:
        DeltaTable(self.root).create_checkpoint()

    def _restore(self) -> None:
        table = DeltaTable(self.root)
        if table.version():
            table.restore(table.version() - 1)

    def _vacuum(self) -> None:
        DeltaTable(self.root).vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)


def _with_names(column: Column, letters: dict[int, None]) -> Column:
    """The column without these letters in its names."""
    fields = tuple((name.translate(letters), kind) for name, kind in column.fields)
    return replace(column, name=column.name.translate(letters), fields=fields)


def _storable(columns: list[Column]) -> list[Column]:
    """Columns of types that Delta and Iceberg have."""
    kinds = {"uint64", "dictionary"}
    return [column for column in columns if not kinds & {column.kind, *(kind for _, kind in column.fields)}]


# --- Iceberg ----------------------------------------------------------------------------------------------------------

_TRANSFORMS: dict[str, Callable[[], Any]] = {
    "identity": transforms.IdentityTransform,
    "bucket": partial(transforms.BucketTransform, 3),
    "truncate": partial(transforms.TruncateTransform, 2),
    "month": transforms.MonthTransform,
    "day": transforms.DayTransform,
}
_TERMS: dict[str, Any] = {
    "=": ice.EqualTo,
    "!=": ice.NotEqualTo,
    "<": ice.LessThan,
    "<=": ice.LessThanOrEqual,
    ">": ice.GreaterThan,
    ">=": ice.GreaterThanOrEqual,
}


def as_iceberg(condition: Condition) -> ice.BooleanExpression:
    """As an expression of pyiceberg, which has no three values: without NOT and `!=` it finds the same rows."""

    def leaf(condition: Condition) -> ice.BooleanExpression:
        kind, column = condition[0], ".".join(condition[1])
        if kind == "null":
            return ice.IsNull(column)
        term = _TERMS["=" if kind == "in" else kind]
        values = [value for value in (condition[2] if kind == "in" else [condition[2]]) if value is not None]
        texts = [value.isoformat() if hasattr(value, "isoformat") else value for value in values]
        return reduce(ice.Or, [term(column, value) for value in texts], ice.AlwaysFalse())

    return spelled(condition, leaf)


class Iceberg(Source):
    """An Iceberg table of an SQL catalog, whose columns, partitions and deletes change."""

    CHANGES = (
        *("append", "append", "append", "delete", "delete", "overwrite", "replace", "upsert"),
        *("positions", "positions", "vector", "vector", "rename", "drop", "add", "widen", "partition", "rollback"),
        "take_up",
    )
    RIVALS = (*CHANGES, "properties", "comment", "expire", "branch")
    """What others do while a rewrite writes its files."""
    REFUSALS = (
        *(ValueError, NotImplementedError, pa.ArrowException, TypeError, KeyError, ValidationException),
        ZeroDivisionError,  # rows of NaN in a partition of its own
    )

    def __init__(self, folder: Folder, chance: random.Random, columns: list[Column]) -> None:
        columns = [replace(column, kind="int32") if column.kind == "int8" else column for column in _storable(columns)]
        super().__init__(folder, chance, [Column("id", "int32"), *columns])
        self.folder, self.number = folder, 0
        self.catalog = RacingCatalog("fuzz", uri="sqlite:///:memory:", warehouse=(folder / "warehouse é").as_uri())
        self.catalog.create_namespace("db")

    @property
    def data(self) -> Any:
        """The table as it is now."""
        return self.table

    @property
    def index(self) -> Folder:
        """Beside the catalog."""
        return self.folder / "index"

    def created(self) -> None:
        """Make it, often with partitions, with some rows."""
        schema = pa.schema([(column.name, column.type) for column in self.columns])
        self.table = self.catalog.create_table("db.t", schema=schema)
        if self.chance.random() < 0.6:
            self.change("partition")
        self.table.append(self.rows_of(self.columns, 12))
        super().created()

    def rows(self) -> list[Placed]:
        """As pyiceberg reads it."""
        return [("", at, row) for at, row in enumerate(self.table.scan().to_arrow().to_pylist())]

    def close(self) -> None:
        """Close the catalog."""
        self.catalog.close()

    def _append(self) -> None:
        self.table.append(self.some(self.fewer_columns()))

    def _take_up(self) -> None:
        """A file that another writer left: without ids, and often without statistics."""
        self.number += 1
        path = self.folder / f"taken up {self.number}.parquet"
        has_statistics = self.chance.random() < 0.5
        pq.write_table(self.some(self.fewer_columns(), at_least=1), path, write_statistics=has_statistics)
        self.table.add_files([f"file://{path}"])

    def _overwrite(self) -> None:
        self.table.overwrite(self.some())

    def _delete(self) -> None:
        self.table.delete(as_iceberg(self.condition()))

    def _replace(self) -> None:
        """Overwrite the rows of a condition, or the partitions of the new rows."""
        if self.chance.random() < 0.5:
            self.table.dynamic_partition_overwrite(self.some(at_least=1))
        else:
            self.table.overwrite(self.some(), as_iceberg(self.condition()))

    def _upsert(self) -> None:
        self.table.upsert(self.without_equals(self.some(at_least=1), "id"), ["id"])

    def rewrite(self, columns: list[str]) -> None:
        """Delete or upsert by keys of an indexed column, often while others commit: other rows are what these left."""
        name = self.chance.choice(columns)
        if name not in [column.name for column in self.columns] or "." in name:
            return
        left, new = self.rows(), self.without_equals(self.some(self.columns), name)
        keys = [key for key in new[name].to_pylist() if key is not None and not is_nan(key)]
        given = self.table

        def race() -> None:
            self.table = self.catalog.load_table("db.t")
            for _ in range(self.chance.choice((1, 2))):
                self.change(self.chance.choice(self.RIVALS))
            left[:] = self.rows()

        self.catalog.rounds = [[race]] * self.chance.choice((0, 0, 1, 1, 2, 3))
        try:
            if self.chance.random() < 0.5:
                new = new.slice(0, 0)
                by_keys.delete(given, name, keys, index=self.index)
            else:
                by_keys.upsert(given, new, name, index=self.index)
            wanted = [row for _, _, row in left if row[name] is None or row[name] not in keys] + new.to_pylist()
        except (*self.REFUSALS, LookupError, ConcurrentCommitError, DataFileError) as error:
            self.log.append(f"rewrite refused: {error}")
            wanted = [row for _, _, row in left]
        self.catalog.rounds = []
        self.table = given.refresh()
        assert_same([row for _, _, row in self.rows()], wanted, f"a rewrite by {name}")

    def _positions(self) -> None:
        self._remove_rows("parquet")

    def _vector(self) -> None:
        self._remove_rows("puffin")

    def _remove_rows(self, kind: str) -> None:
        """Delete rows of one file by a delete file."""
        spec = self.table.spec().spec_id
        tasks = [file for file in self.table.scan().plan_files() if file.file.spec_id == spec]
        tasks = [task for task in tasks if kind == "parquet" or not task.delete_files]
        if tasks:
            self.number += 1
            file = self.chance.choice(tasks).file
            chosen = self.chance.sample(range(file.record_count), self.chance.randrange(file.record_count + 1))
            path = self.folder / f"deletes-{self.number}.{kind}"
            (puffin if kind == "puffin" else position_deletes)(path, {file.file_path: chosen})
            commit_deletes(self.table, path, DataFileContent.POSITION_DELETES, partition=file.partition)

    def _rename(self) -> None:
        column = self.chance.choice(self.columns)
        new = replace(column, name=self.chance.choice((*NAMES, "renamed")))
        with self.table.update_schema() as change:
            change.rename_column((column.name,), new.name)
        self.columns = [new if column == other else other for other in self.columns]

    def _drop(self) -> None:
        """A column by which the table is not partitioned now; pyiceberg refuses others."""
        schema = self.table.schema()
        sources = {schema.find_column_name(field.source_id) for field in self.table.spec().fields}
        if free := [column for column in self.columns if column.name not in sources]:
            column = self.chance.choice(free)
            with self.table.update_schema() as change:
                change.delete_column((column.name,))
            self.columns.remove(column)

    def _add(self) -> None:
        names = {column.name for column in self.columns}
        new = Column(self.chance.choice([name for name in NAMES if name not in names]), "int64")
        with self.table.update_schema() as change:
            change.add_column((new.name,), LongType())
        self.columns = [*self.columns, new]

    def _widen(self) -> None:
        wider = {"int32": ("int64", LongType()), "float": ("double", DoubleType())}
        column = self.chance.choice([column for column in self.columns if column.kind in wider] or self.columns[:1])
        if column.kind in wider:
            kind, new = wider[column.kind]
            with self.table.update_schema() as change:
                change.update_column((column.name,), field_type=new)
            self.columns = [replace(column, kind=kind) if column == other else other for other in self.columns]

    def _partition(self) -> None:
        """Partition by one more column, or by one less."""
        fields = self.table.spec().fields
        with self.table.update_spec() as spec:
            if fields and self.chance.random() < 0.5:
                spec.remove_field(self.chance.choice(fields).name)
            else:
                how = self.chance.choice(list(_TRANSFORMS))
                self.number += 1
                odd = (
                    self.is_indexed and self.chance.random() < 0.3
                )  # pyiceberg writes no NaN then, and both zeros twice
                column = self.chance.choice([column for column in self.columns if odd or column.kind != "odd double"])
                spec.add_field(column.name, _TRANSFORMS[how](), f"{how} {self.number} é")

    def _properties(self) -> None:
        self.number += 1
        self.table.transaction().set_properties({"number": str(self.number)}).commit_transaction()

    def _comment(self) -> None:
        """Another schema of the same columns."""
        self.number += 1
        with self.table.update_schema() as change:
            change.update_column((self.chance.choice(self.columns).name,), doc=f"number {self.number}")

    def _branch(self) -> None:
        """Rows of another branch."""
        self.number += 1
        current = self.table.current_snapshot()
        self.table.manage_snapshots().create_branch(current.snapshot_id, f"branch {self.number}").commit()
        self.table.append(self.some(), branch=f"branch {self.number}")

    def _expire(self) -> None:
        """All snapshots but those of branches."""
        named = {reference.snapshot_id for reference in self.table.refs().values()}
        expired = self.table.maintenance.expire_snapshots()
        for snapshot in self.table.snapshots():
            if snapshot.snapshot_id not in named:
                expired = expired.by_id(snapshot.snapshot_id)
        expired.commit()

    def _rollback(self) -> None:
        current = self.table.current_snapshot()
        if current is not None and current.parent_snapshot_id:
            self.table.manage_snapshots().rollback_to_snapshot(current.parent_snapshot_id).commit()


def assert_same(
    actual: list[Row], wanted: list[Row], how: str, *, names: list[str] | None = None, is_ordered: bool = False
) -> None:
    """The same values of the same rows; NaN is NaN, and 0.0 is not -0.0.

    Raises
    ------
    FindingError
        A row was lost or invented.
    """
    names = list(wanted[0]) if names is None and wanted else names or []
    mine, other = ([repr([_spelled(row.get(name)) for name in names]) for row in rows] for rows in (actual, wanted))
    if not is_ordered:
        mine, other = sorted(mine), sorted(other)
    if mine != other:
        lost, invented = [row for row in other if row not in mine], [row for row in mine if row not in other]
        message = f"{how} must find {len(other)} rows, got {len(mine)}"
        raise FindingError(f"{message}; lost {lost[:3]}, invented {invented[:3]}, of {names}")


def _spelled(value: Any) -> Any:
    """A zone has several names."""
    if isinstance(value, dict):
        return {name: _spelled(part) for name, part in value.items()}
    return value.astimezone(UTC) if getattr(value, "tzinfo", None) else value
