"""A Lance table, or a branch of one, whose rows, columns, fragments and own indexes change.

The rows, and their addresses, are those of pylance 14's own scan. A change that pylance refuses is no change.
"""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import replace
from pathlib import Path as Folder
from typing import Any

import lance
import pyarrow as pa
from lance.indices import IndexConfig

import zonebloom as zb
from tests import lance_log
from tests.fuzz.children import FindingError
from tests.fuzz.columns import KINDS, NAMES, Column
from tests.fuzz.conditions import as_sql, literal, spark_quoted
from tests.fuzz.sources import Placed, Row, Source, assert_same
from zonebloom.errors import IndexExistsError, InvalidArgumentError, StaleIndexError, UnsupportedTypeError
from zonebloom.lance import audit_lance

_OFFSET = (1 << 32) - 1


class Lance(Source):
    """A Lance table with or without stable row ids, or a branch of it."""

    CHANGES = (
        *("append", "append", "append", "delete", "delete", "update", "replace", "merge", "compact", "overwrite"),
        *("overlay", "overlay"),
        *("restore", "rename", "drop", "add", "widen", "own_index", "own_upkeep", "cleanup"),
    )
    REFUSALS = (OSError, ValueError, RuntimeError, NotImplementedError, pa.ArrowException)
    is_ordered = True

    def __init__(self, folder: Folder, chance: random.Random, columns: list[Column]) -> None:
        columns = [column for column in columns if "." not in column.name and "`" not in column.name]
        super().__init__(folder, chance, [Column("id", "int32"), *columns])
        self.root = folder / "table é %41.lance"
        self.branch = "dev" if chance.random() < 0.3 else None
        self.options: dict[str, Any] = {
            "max_rows_per_file": chance.choice((5, 12, 1000)),
            "enable_stable_row_ids": chance.random() < 0.5,
            "data_storage_version": chance.choice(
                ("2.1", "2.2") if any(column.fields for column in columns) else ("2.0", "2.1", "2.2")
            ),
        }
        self.columns_of: dict[int, list[Column]] = {}

    def created(self) -> None:
        """Make it, with some rows; pylance 14 cannot write some booleans in structs."""
        try:
            table = lance.write_dataset(self.rows_of(self.columns, 12), str(self.root), **self.options)
        except OSError:
            self.columns = [column for column in self.columns if not column.fields]
            table = lance.write_dataset(self.rows_of(self.columns, 12), str(self.root), **self.options)
        self.table = table if self.branch is None else table.create_branch(self.branch)
        self.log.append(f"{self.options}, branch {self.branch}")
        super().created()

    @property
    def data(self) -> Any:
        """The path, or the branch as it is now."""
        return self.root if self.branch is None else self.table

    @property
    def index(self) -> Folder | None:
        """Beside the table, but of a branch elsewhere."""
        return None if self.branch is None else self.root.with_name("index")

    def change(self, what: str) -> bool:
        """As `Source.change`."""
        self.table.checkout_latest()
        is_done = super().change(what)
        self.table.checkout_latest()
        self.columns_of[self.table.version] = self.columns
        return is_done

    def rows(self) -> list[Placed]:
        """As pylance reads them, in order of their addresses."""
        rows = self.table.scanner(with_row_address=True, use_scalar_index=False).to_table().to_pylist()
        rows.sort(key=lambda row: row["_rowaddr"])
        addresses = [row.pop("_rowaddr") for row in rows]
        return [(f"fragments/{at >> 32:010d}", at & _OFFSET, row) for at, row in zip(addresses, rows, strict=True)]

    def rewrite(self, columns: list[str]) -> None:
        """Give Lance the zones of a column; then it must find each value, and an audit no lost row."""
        name, leaves = self.chance.choice(columns), {column.name: column.kind for column in self.columns}
        index = zb.open_index(self.index or self.root, dataset=self.data)
        try:
            index.export_lance(self.data, name, overwrite=True, per_fragment=self.chance.random() < 0.5)
            self.log.append(f"export of {name}")
        except (LookupError, InvalidArgumentError, UnsupportedTypeError, StaleIndexError, IndexExistsError) as error:
            self.log.append(f"export refused: {error}")
        self.table.checkout_latest()
        self.columns_of[self.table.version] = self.columns
        if not (audit := audit_lance(self.data)).is_sound:
            raise FindingError(f"Lance's indexes must be sound, got {audit}")
        if leaves.get(name) in ("int64", "int32", "text", "date"):
            values = {KINDS[leaves[name]][1](self.chance) for _ in range(4)}
            for value in values - {-(2**63)}:  # which pylance 14 reads as a double
                where = f"{spark_quoted(name)} = {literal(value)}"
                rows = self.table.to_table(filter=where).to_pylist()
                wanted: list[Row] = [row for _, _, row in self.rows() if row[name] == value]
                assert_same(rows, wanted, f"Lance, asked for {where},")

    # --- changes ------------------------------------------------------------------------------------------------------

    def _append(self, mode: str = "append") -> None:
        lance.write_dataset(self.some(self.fewer_columns(), at_least=1), self.table, mode=mode, **self.options)

    def _overwrite(self) -> None:
        lance.write_dataset(self.some(self.columns, at_least=5), self.table, mode="overwrite", **self.options)

    def _where(self) -> str:
        return as_sql(self.condition(), (spark_quoted, literal))

    def _delete(self) -> None:
        self.table.delete(self._where())

    def _update(self) -> None:
        self.table.update({"id": str(self.chance.randrange(-3, 9))}, where=self._where())

    def _replace(self) -> None:
        """Other values in one column of a fragment, in place."""
        fragment, column = self.chance.choice(self.table.get_fragments()), self.chance.choice(self.columns)
        ids = sorted({row["id"] for row in fragment.to_table(columns=["id"]).to_pylist()} - {None})
        if column.name != "id" and ids:
            ids = self.chance.sample(ids, self.chance.randrange(len(ids)) + 1)
            values = pa.array([column.value(self.chance, self.num_values) for _ in ids], column.type)
            changed = pa.table({"id": pa.array(ids, pa.int32()), column.name: values})
            updated, fields = fragment.update_columns(changed, left_on="id", right_on="id")
            operation = lance.LanceOperation.Update(updated_fragments=[updated], fields_modified=fields)
            lance.LanceDataset.commit(self.table, operation, read_version=self.table.version)

    def _overlay(self) -> None:
        """Other values over those in the files of a fragment."""
        fragment, column = self.chance.choice(self.table.get_fragments()), self.chance.choice(self.columns)
        rows = self.chance.sample(range(fragment.physical_rows), self.chance.randrange(fragment.physical_rows) + 1)
        values = {row: column.value(self.chance, self.num_values) for row in rows}
        lance_log.overlay(self.table, fragment.fragment_id, column.name, values)

    def _merge(self) -> None:
        rows = self.without_equals(self.some(self.columns, at_least=1), "id")
        self.table.merge_insert("id").when_matched_update_all().when_not_matched_insert_all().execute(rows)

    def _compact(self) -> None:
        self.table.optimize.compact_files(target_rows_per_fragment=self.chance.choice((10, 1000)))

    def _restore(self) -> None:
        version = self.chance.choice(sorted(self.columns_of) or [self.table.version])
        self.table.checkout_version(version).restore()
        self.columns = self.columns_of.get(version, self.columns)

    def _rename(self) -> None:
        column, names = self.chance.choice(self.columns[1:] or self.columns), {column.name for column in self.columns}
        new = replace(column, name=self.chance.choice((*NAMES, "renamed")))
        if column.name != "id" and new.name not in names and "." not in new.name:
            self.table.alter_columns({"path": column.name, "name": new.name})
            self.columns = [new if column == other else other for other in self.columns]

    def _drop(self) -> None:
        if len(self.columns) > 2:
            column = self.chance.choice(self.columns[1:])
            self.table.drop_columns([column.name])
            self.columns = [other for other in self.columns if other != column]

    def _add(self) -> None:
        new = Column(f"new{len(self.columns_of)}", "int64")
        self.table.add_columns({new.name: f"CAST({self.chance.randrange(9)} AS BIGINT)"})
        self.columns = [*self.columns, new]

    def _widen(self) -> None:
        wider = {"int32": ("int64", pa.int64()), "float": ("double", pa.float64())}
        if narrow := [column for column in self.columns[1:] if column.kind in wider]:
            column = self.chance.choice(narrow)
            kind, data_type = wider[column.kind]
            self.table.alter_columns({"path": column.name, "data_type": data_type})
            self.columns = [replace(column, kind=kind) if column == other else other for other in self.columns]

    def _own_index(self) -> None:
        config = IndexConfig("bloomfilter", {"number_of_items": 4, "probability": 0.01})
        self.table.create_scalar_index(self.chance.choice(self.columns).name, config, replace=False)

    def _own_upkeep(self) -> None:
        self.table.optimize.optimize_indices()

    def _cleanup(self) -> None:
        self.table.cleanup_old_versions(older_than=dt.timedelta(0))
