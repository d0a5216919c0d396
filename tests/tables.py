"""Tables of each format, as their own libraries make, change and read them, and what a search of a table must give."""

from __future__ import annotations

import itertools
import shutil
from pathlib import Path
from typing import Any, ClassVar

import lance
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import StaticTable, Table

import zonebloom as zb
from tests import delta_log
from tests.iceberg_log import delete_rows
from tests.s3 import Bucket

ROWS_PER_ZONE = 8


def rows(start: int, stop: int, **columns) -> pa.Table:
    """Rows with an `id` of their own, and a text `u` that no other row has."""
    ids = range(start, stop)
    return pa.table({"id": pa.array(ids, pa.int64()), "u": [f"user {i * 7919 % 100_003}" for i in ids], **columns})


def user(row: int) -> str:
    return f"u = 'user {row * 7919 % 100_003}'"


def build(source: object, columns: object = "u", **options) -> zb.Index:
    return zb.build_index(source, columns, rows_per_zone=ROWS_PER_ZONE, **options)


def assert_same(ours: pa.Table, theirs: pa.Table) -> None:
    """The same rows, whatever their order and the kind of their texts."""
    assert ours.column_names == theirs.column_names
    assert ours.sort_by("id").to_pylist() == theirs.sort_by("id").to_pylist()


def assert_agrees(index: zb.Index, theirs: pa.Table) -> None:
    """All rows of a table by its own reader, all by their keys, and every seventh by its own key."""
    assert_same(index.to_table("id IS NOT NULL"), theirs)
    rows = list(zip(theirs["id"].to_pylist(), theirs["u"].to_pylist(), strict=True))
    assert {id_ for id_, _ in rows} <= {*index.to_table(zb.IsIn("u", [key for _, key in rows]))["id"].to_pylist()}
    for id_, key in rows[::7]:
        assert id_ in index.to_table(zb.col("u") == key)["id"].to_pylist()


def plain(reader: Any) -> pa.Table:
    """What `deltalake` reads, without views, which pyarrow cannot sort."""
    table = pa.table(reader)
    return table.cast(pa.schema([(field.name, _without_views(field.type)) for field in table.schema]))


def _without_views(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([(field.name, _without_views(field.type)) for field in kind])
    return {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(kind, kind)


class Events:
    """A table of `rows`; in the bucket `s3`, or in a folder.

    `append` adds a file, `delete` rows of some ids by rewriting their files, `overwrite` puts one file in place of all.
    `rows` are those of its own reader, `files` its data files.
    """

    kind: ClassVar[str]
    version_key: ClassVar[str] = ""
    """What `info` calls its version, if it has any."""
    inside: ClassVar[tuple[str, ...]] = ()
    """Folders where the table would take an index for its own files."""

    def __init__(self, folder: Path, s3: Bucket | None = None) -> None:
        self.folder, self.s3 = folder, s3
        self.root = folder / "table"
        self.options = s3.options if s3 else None

    @property
    def source(self) -> Any:
        """What zonebloom is given."""
        return self.s3.url("table") if self.s3 else self.root

    def close(self) -> None:
        """Let go of what is held."""


class Folder(Events):
    """A folder of Parquet files."""

    kind = "parquet"

    def __init__(self, folder: Path, s3: Bucket | None = None) -> None:
        super().__init__(folder, s3)
        self._numbers, self._parts = itertools.count(), dict[str, pa.Table]()

    def _put(self, parts: dict[str, pa.Table]) -> None:
        self.root.mkdir(exist_ok=True)
        for name in self._parts.keys() - parts.keys():
            (self.root / name).unlink()
            if self.s3:
                self.s3.delete(f"table/{name}")
        for name, part in parts.items():
            if part != self._parts.get(name):
                pq.write_table(part, self.root / name)
                if self.s3:
                    self.s3.put(f"table/{name}", (self.root / name).read_bytes())
        self._parts = parts

    def append(self, new: pa.Table) -> None:
        self._put({**self._parts, f"{next(self._numbers)}.parquet": new})

    def delete(self, start: int, stop: int) -> None:
        is_left = (pc.field("id") < start) | (pc.field("id") >= stop)
        left = {name: part.filter(is_left) for name, part in self._parts.items()}
        self._put({name: part for name, part in left.items() if part.num_rows})

    def overwrite(self, new: pa.Table) -> None:
        self._put({f"{next(self._numbers)}.parquet": new})

    def rows(self) -> pa.Table:
        return pa.concat_tables([pq.read_table(path) for path in self.files()])

    def files(self) -> list[Path]:
        return sorted(self.root.glob("*.parquet"))

    def forget(self) -> None:
        """Begin anew: with files of the same names, or with a log of as many versions."""
        self._numbers, self._parts = itertools.count(), {}


class Delta(Events):
    kind, version_key = "delta", "table_version"
    inside = ("plain", "_delta_log", "_delta_log/x", "")
    hides_by = "u"
    """How a deletion vector is stored, as `delta_log.descriptor` has it."""

    def append(self, new: pa.Table, mode: str = "append", **options) -> None:
        options["configuration"] = {"delta.enableDeletionVectors": "true"}
        write_deltalake(self.source, new, mode=mode, storage_options=self.options, **options)

    def create(self, schema: pa.Schema, partitions: list[str]) -> None:
        """Begin with a table of other columns, and partitions by some of them."""
        self.append(schema.empty_table(), partition_by=partitions)

    def table(self, version: int | None = None) -> DeltaTable:
        return DeltaTable(self.source, version, self.options)

    def delete(self, start: int, stop: int) -> None:
        self.table().delete(f"id >= {start} and id < {stop}")

    def overwrite(self, new: pa.Table) -> None:
        self.append(new, "overwrite")

    def undo(self) -> None:
        """Take back the last commit."""
        self.table().restore(self.version() - 1)

    def rows(self) -> pa.Table:
        return plain(self.table().scan())

    def files(self) -> list[Path]:
        return [Path(uri) for uri in self.table().file_uris()]

    def version(self) -> int:
        return self.table().version()

    def hide(self, offsets: list[int]) -> None:
        """Delete rows of the first file without rewriting it."""
        for key in self.s3.keys("table/") if self.s3 else ():
            (self.folder / key).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / key).write_bytes(self.s3.get(key))
        adds = delta_log.actions(self.root, "add")
        now = [add for add in adds if add["path"] == adds[0]["path"]][-1]
        delta_log.delete_rows(self.root, now, offsets, self.hides_by)
        if self.s3:
            self.s3.upload(self.root, "table")

    def hidden(self) -> list[Path]:
        """The files that say which rows are deleted."""
        return list((self.root / "ab").iterdir())

    def forget(self) -> None:
        shutil.rmtree(self.root / "_delta_log")

    loaded = table

    def reload(self, loaded: DeltaTable) -> None:
        """Have an object that its library `loaded` see the newest version."""
        loaded.update_incremental()


class Iceberg(Events):
    kind, version_key = "iceberg", "snapshot_id"
    hides_by = "parquet"

    def __init__(self, folder: Path, s3: Bucket | None = None) -> None:
        super().__init__(folder, s3)
        options = {"warehouse": (folder / "warehouse").as_uri()} if s3 is None else s3_properties(s3)
        self.catalog = SqlCatalog("here", uri="sqlite:///:memory:", **options)
        self.catalog.create_namespace("db")
        self.table = self.catalog.create_table("db.events", schema=rows(0, 1).schema)
        self.root = Path(self.table.location().removeprefix("file://"))

    @property
    def source(self) -> Table:
        return self.table

    def create(self, schema: pa.Schema, partitions: list[str]) -> None:
        """Begin anew with a table of other columns, and partitions by some of them."""
        self.table = self.catalog.create_table("db.others", schema=schema)
        with self.table.update_spec() as spec:
            for name in partitions:
                spec.add_identity(name)

    def append(self, new: pa.Table) -> None:
        self.table.append(new)

    def overwrite(self, new: pa.Table) -> None:
        self.table.overwrite(new)

    def delete(self, start: int, stop: int) -> None:
        self.table.delete(f"id >= {start} and id < {stop}")

    def undo(self) -> None:
        parent = self.table.current_snapshot().parent_snapshot_id
        self.table.manage_snapshots().rollback_to_snapshot(parent).commit()

    def rows(self) -> pa.Table:
        return self.table.scan().to_arrow()

    def files(self) -> list[Path]:
        """The newest first."""
        return [Path(file.file.file_path.removeprefix("file://")) for file in self.table.scan().plan_files()]

    def version(self) -> int:
        return self.table.current_snapshot().snapshot_id

    def hide(self, offsets: list[int]) -> None:
        path = self.folder / f"deletes.{self.hides_by}"
        oldest = self.table.scan().plan_files()
        first = min(oldest, key=lambda task: task.file.lower_bounds[1]).file.file_path
        delete_rows(self.table, path, {first: offsets}, url=self.s3.url(path.name) if self.s3 else None)
        if self.s3:
            self.s3.put(path.name, path.read_bytes())

    def hidden(self) -> list[Path]:
        return [self.folder / f"deletes.{self.hides_by}"]

    def loaded(self, version: int | None = None) -> Table:
        if version is None:
            return self.catalog.load_table("db.events")
        logged = [entry.metadata_file for entry in self.table.metadata.metadata_log]
        versions = (StaticTable.from_metadata(path) for path in logged)
        return next(
            past for past in versions if past.current_snapshot() and past.current_snapshot().snapshot_id == version
        )

    def reload(self, loaded: Table) -> None:
        loaded.refresh()

    def close(self) -> None:
        self.catalog.close()


def s3_properties(s3: Bucket) -> dict[str, str]:
    """Of a catalog whose tables lie in a bucket."""
    keys = {"s3.access-key-id": "key", "s3.secret-access-key": "secret", "s3.region": "us-east-1"}
    return {"warehouse": s3.url("warehouse"), "s3.endpoint": s3.server.url, **keys}


def catalog_in(s3: Bucket, folder: Path, **options: str) -> SqlCatalog:
    """A catalog whose tables lie in a bucket, with the namespace `db`."""
    catalog = SqlCatalog("there", uri=f"sqlite:///{folder}/catalog.db", **s3_properties(s3), **options)
    catalog.create_namespace("db")
    return catalog


class Lance(Events):
    kind, version_key = "lance", "table_version"
    inside = ("_indices/mine", "_versions/mine", "_deletions/mine", "data/mine")
    has_stable_ids = False

    def __init__(self, folder: Path, s3: Bucket | None = None) -> None:
        super().__init__(folder, s3)
        self.root = folder / "table.lance"

    @property
    def source(self) -> Any:
        return self.s3.url("table.lance") if self.s3 else self.root

    def append(self, new: pa.Table, mode: str = "append") -> None:
        options = {"enable_stable_row_ids": self.has_stable_ids, "storage_options": self.options}
        lance.write_dataset(new, str(self.source), mode=mode, **options)

    def table(self, version: int | None = None) -> lance.LanceDataset:
        return lance.dataset(str(self.source), version, storage_options=self.options)

    def delete(self, start: int, stop: int) -> None:
        self.table().delete(f"id >= {start} and id < {stop}")
        self.table().optimize.compact_files(materialize_deletions_threshold=0.0)

    def overwrite(self, new: pa.Table) -> None:
        self.append(new, "overwrite")

    def undo(self) -> None:
        self.table(self.version() - 1).restore()

    def rows(self) -> pa.Table:
        return self.table().scanner(use_scalar_index=False).to_table()

    def files(self) -> list[Path]:
        return [self.root / "data" / fragment.data_files()[0].path for fragment in self.table().get_fragments()]

    def version(self) -> int:
        return self.table().version

    def hide(self, offsets: list[int]) -> None:
        self.table().delete(f"id IN ({', '.join(map(str, offsets))})")

    def hidden(self) -> list[Path]:
        return list((self.root / "_deletions").iterdir())

    def forget(self) -> None:
        shutil.rmtree(self.root)

    loaded = table

    def reload(self, loaded: lance.LanceDataset) -> None:
        loaded.checkout_latest()
