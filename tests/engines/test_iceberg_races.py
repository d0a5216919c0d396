"""Rewrites of Iceberg tables while others commit: each lands on the very state that it read, or nothing is changed.

Others commit after the rewrite has written its files: the model is the rows that they left, without those of the keys.
"""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

import zonebloom as zb
from tests.depth import some
from tests.engines.test_iceberg_rewrites import SCHEMA, rows
from tests.iceberg_log import RacingCatalog, delete_rows
from zonebloom.engines import iceberg
from zonebloom.errors import ConcurrentCommitError, InvalidArgumentError, StorageError


class Race:
    """A table of three files with an index of `id`, and the others who change it."""

    def __init__(self, folder: Path) -> None:
        uri = f"sqlite:///{folder}/catalog.db?timeout=0"
        self.catalog = RacingCatalog("here", uri=uri, warehouse=(folder / "warehouse").as_uri())
        self.catalog.create_namespace("db")
        self.folder, self.numbers = folder, itertools.count()
        self.table = self.catalog.create_table("db.t", SCHEMA)
        for start in (0, 100, 200):
            self.table.append(rows(start, start + 100))
        self.index = folder / "index"
        zb.build_index(self.table, "id", index=self.index, rows_per_zone=10)
        self.left: list[dict[str, object]] = []

    def now(self) -> Table:
        return self.catalog.load_table("db.t")

    def rows(self) -> list[dict[str, object]]:
        return sorted(self.now().scan().to_arrow().to_pylist(), key=repr)

    def note(self) -> None:
        self.left = self.rows()

    def orphans(self) -> set[str]:
        """Data files and manifests that no snapshot names."""
        table = self.now()
        files = table.inspect.all_files()["file_path"].to_pylist()
        manifests = table.inspect.all_manifests()["path"].to_pylist()
        lists = [snapshot.manifest_list for snapshot in table.snapshots()]
        named = {place.removeprefix("file://") for place in (*files, *manifests, *lists)}
        paths = (self.folder / "warehouse").rglob("*")
        return {str(path) for path in paths if path.suffix in (".parquet", ".avro")} - named

    # --- what others do -----------------------------------------------------------------------------------------------

    def append(self) -> None:
        """Rows with keys that are there, and new ones."""
        self.now().append(rows(5, 8, f"again {next(self.numbers)}"))
        self.now().append(rows(1000, 1002))

    def delete(self) -> None:
        self.now().delete(f"id = {next(self.numbers) + 30}")

    def remove_a_file(self) -> None:
        """A commit that adds no data file."""
        number = 2000 + 10 * next(self.numbers)
        self.now().append(rows(number, number + 10))
        self.now().delete(f"id >= {number} and id < {number + 10}")

    def delete_rows(self, kind: str) -> None:
        table, number = self.now(), next(self.numbers)
        spec = table.spec().spec_id
        tasks = [task for task in table.scan(row_filter="id = 5").plan_files() if task.file.spec_id == spec]
        path = self.folder / f"{number}.{kind}"
        if tasks:
            delete_rows(table, path, {tasks[0].file.file_path: [0, 1]}, partition=tasks[0].file.partition)

    def positions(self) -> None:
        self.delete_rows("parquet")

    def vector(self) -> None:
        self.delete_rows("puffin")

    def properties(self) -> None:
        self.now().transaction().set_properties({"number": str(next(self.numbers))}).commit_transaction()

    def schema(self) -> None:
        self.now().update_schema().update_column("text", doc=f"changed {next(self.numbers)}").commit()

    def spec(self) -> None:
        spec = self.now().update_spec()
        (spec.remove_field("day") if self.now().spec().fields else spec.add_identity("day")).commit()

    def rollback(self) -> None:
        table = self.now()
        table.manage_snapshots().rollback_to_snapshot(table.current_snapshot().parent_snapshot_id).commit()

    def branch(self) -> None:
        """A commit that leaves the main branch as it is, but takes the next sequence number."""
        table, name = self.now(), f"branch {next(self.numbers)}"
        table.manage_snapshots().create_branch(table.metadata.current_snapshot_id, name).commit()
        table.append(rows(1000, 1002), branch=name)

    def expiry(self) -> None:
        table = self.now()
        expired, named = table.maintenance.expire_snapshots(), {ref.snapshot_id for ref in table.refs().values()}
        for snapshot in table.snapshots():
            if snapshot.snapshot_id not in named:
                expired = expired.by_id(snapshot.snapshot_id)
        expired.commit()


EXPIRY = [["expiry"]]
ALONE = ("append", "delete", "positions", "vector", "properties", "schema", "spec", "rollback", "branch")
ROUNDS = [
    *([[name]] for name in ALONE),
    *([["positions", "remove_a_file"]], [["vector", "remove_a_file"]], [["spec", "remove_a_file"]]),
    *([["vector", "append"], ["spec", "positions", "delete"]], EXPIRY),
]
"""Commits that others make while a rewrite writes its files, and while it does so again."""


@pytest.fixture
def race(tmp_path: Path) -> Iterator[Race]:
    started = Race(tmp_path)
    yield started
    started.catalog.close()


def rewrite(race: Race, kind: str, keys: list[int], table: Table | None = None) -> tuple[iceberg.Rewrite, pa.Table]:
    new = rows(0, 0) if kind == "delete" else rows(0, 400, "new").filter(pa.compute.field("id").isin(keys))
    table = race.now() if table is None else table
    if kind == "delete":
        return iceberg.delete(table, "id", keys, index=race.index), new
    return iceberg.upsert(table, new, "id", index=race.index), new


def test_a_rewrite_lands_on_what_others_left(race):
    for number, (kind, rounds) in enumerate(zip(itertools.cycle(["delete", "upsert"]), some(ROUNDS, each=4))):
        race.catalog.rounds = [[*(getattr(race, name) for name in names), race.note] for names in rounds]
        if rounds == EXPIRY:
            assert not race.orphans()
        keys = [5, 6, 50 + number, 150 + number, 350 + number]
        done, new = rewrite(race, kind, keys)
        assert not race.catalog.rounds
        kept, after = [row for row in race.left if row["id"] not in keys], race.rows()
        assert after == sorted([*kept, *new.to_pylist()], key=repr), rounds
        assert done.num_rows_removed == len(race.left) - len(kept)
        num_matching = race.now().scan(row_filter="day = 'd1'").to_arrow().num_rows  # by the values of the partitions
        assert num_matching == sum(row["day"] == "d1" for row in after)


def test_a_table_whose_format_others_raise_is_planned_again(race):
    table, place = race.catalog.create_table("db.old", SCHEMA, properties={"format-version": "1"}), race.folder / "old"
    table.append(rows(0, 10))
    zb.build_index(table, "id", index=place)
    upgrade = race.catalog.load_table("db.old").transaction().upgrade_table_version(2)
    race.catalog.rounds = [[upgrade.commit_transaction]]
    assert iceberg.delete(table, "id", [5], index=place).num_rows_removed == 1
    assert (table.format_version, table.scan().count()) == (2, 9)


@pytest.mark.parametrize(
    ("kind", "name"), [("delete", "append"), ("delete", "vector"), ("upsert", "schema"), ("upsert", "spec")]
)
def test_a_writer_who_never_waits_is_a_conflict_and_loses_nothing(race, kind, name):
    table, other = race.now(), getattr(race, name)
    race.catalog.rounds = [[other, race.note]] * 3
    before = table.metadata_location
    with pytest.raises(ConcurrentCommitError, match="got 3 commits of others; nothing was changed: call again"):
        rewrite(race, kind, [5, 150], table)
    assert race.rows() == race.left
    assert table.metadata_location == before
    assert not race.orphans()


@pytest.mark.parametrize("instead", [CommitFailedException("sent twice"), OSError("timed out")])
def test_a_commit_whose_answer_is_lost_keeps_its_files(race, instead):
    kept = [row for row in race.rows() if row["id"] not in (5, 150)]
    table, race.catalog.instead = race.now(), instead
    assert rewrite(race, "delete", [5, 150], table)[0].num_rows_removed == 2
    assert table.metadata_location == race.now().metadata_location
    assert race.rows() == kept
    assert not race.orphans()
    assert rewrite(race, "delete", [5, 150], table)[0].num_files == 0


@pytest.mark.parametrize("kind", ["delete", "upsert"])
@pytest.mark.parametrize("name", ["expiry", "rewritten manifests"])
def test_a_commit_that_was_sent_twice_keeps_its_files(race, kind, name, monkeypatch):
    """The first answer was lost, others committed on top of it, and the client's second request is refused."""
    keys, before, land, requests = [5, 150], race.rows(), race.catalog.commit_table, []

    def send(table: Table, *request: object) -> object:
        requests.append(request)
        answer = land(table, *request)
        if len(requests) > 1:
            return answer
        if name == "rewritten manifests":
            race.now().transaction().set_properties({"commit.manifest-merge.enabled": "true"}).commit_transaction()
            race.now().transaction().set_properties({"commit.manifest.min-count-to-merge": "1"}).commit_transaction()
        race.now().append(rows(1000, 1002))
        race.expiry()
        return land(table, *request)

    monkeypatch.setattr(race.catalog, "commit_table", send)
    done, new = rewrite(race, kind, keys)
    assert done.num_rows_removed == 2
    wanted = [*(row for row in before if row["id"] not in keys), *new.to_pylist(), *rows(1000, 1002).to_pylist()]
    assert race.rows() == sorted(wanted, key=repr)


def test_rows_that_no_longer_fit_are_refused_and_change_nothing(race):
    def rename() -> None:
        race.now().update_schema().rename_column("text", "words").commit()

    race.catalog.rounds = [[rename, race.note]]
    with pytest.raises(InvalidArgumentError, match="rows must have the columns id, day, words of the table"):
        rewrite(race, "upsert", [5])
    assert race.rows() == race.left
    assert not race.orphans()


def test_another_table_of_the_name_is_a_conflict(race):
    table = race.now()
    race.catalog.drop_table("db.t")
    race.catalog.create_table("db.t", SCHEMA).append(rows(0, 10))
    with pytest.raises(ConcurrentCommitError, match="the one that was loaded, got another of its name"):
        rewrite(race, "delete", [5], table)
    assert len(race.rows()) == 10


@pytest.mark.parametrize("moment", ["before", "within"])
def test_a_catalog_that_is_locked_is_told_as_a_fault_of_the_store(race, moment):
    table, before = race.now(), race.rows()
    connection = sqlite3.connect(race.folder / "catalog.db", isolation_level=None)

    def lock() -> None:
        connection.execute("BEGIN EXCLUSIVE" if moment == "before" else "BEGIN IMMEDIATE")

    if moment == "before":
        lock()
    else:
        race.catalog.rounds = [[lock]]
    message = "cannot read table" if moment == "before" else r"cannot commit to table .* call again unless .* \d+:"
    with pytest.raises(StorageError, match=f"{message}|database is locked"):
        rewrite(race, "delete", [5, 150], table)
    connection.execute("ROLLBACK")
    connection.close()
    assert race.rows() == before
    assert bool(race.orphans()) == (moment == "within")
    rewrite(race, "delete", [5, 150], table)
    assert len(race.rows()) == len(before) - 2
