"""What Lance tables alone have: addresses of rows, stable ids, values that are replaced in place, blobs, odd types.

Oracle: pylance 14.0.2, `LanceDataset.scanner(use_scalar_index=False)`.
What tables of each format have is in `test_table`.
"""

from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from deltalake import write_deltalake
from lance.dataset import ColumnOrdering

import zonebloom as zb
from tests.tables import assert_same, build, rows, user
from tests.whole.test_keys import COLUMNS, TABLE
from zonebloom.errors import DataFileError, InvalidArgumentError
from zonebloom.formats import lance as lance_tables
from zonebloom.ground.reasons import ReasonCode


def write(root: Path, table: pa.Table, mode: str = "append", **options) -> lance.LanceDataset:
    options = {"max_rows_per_file": 40, **options}
    return lance.write_dataset(table, str(root), mode=mode if root.exists() else "create", **options)


@pytest.fixture
def root(tmp_path: Path, request) -> Path:
    """A table of three fragments, of 40 rows each."""
    stable_ids = getattr(request, "param", False)
    write(tmp_path / "t.lance", rows(0, 120), enable_stable_row_ids=stable_ids)
    return tmp_path / "t.lance"


with_and_without_stable_ids = pytest.mark.parametrize(
    "root", [False, True], ids=["addresses", "stable_ids"], indirect=True
)


def theirs(root: Path, where: str | None = None, **options) -> pa.Table:
    return lance.dataset(str(root)).scanner(filter=where, use_scalar_index=False, **options).to_table()


def assert_agrees(index: zb.Index, root: Path) -> None:
    """All rows, every 23rd by its own key, and each of these at the address that Lance gives it."""
    live = theirs(root, with_row_address=True).sort_by("_rowaddr")
    assert_same(index.to_table("id IS NOT NULL"), live.drop_columns("_rowaddr"))
    live = live.take(list(range(0, live.num_rows, 23)))
    for id_, key, address in zip(*(live[name].to_pylist() for name in ("id", "u", "_rowaddr")), strict=True):
        assert id_ in index.to_table(zb.col("u") == key)["id"].to_pylist()
        result = index.search(zb.col("u") == key)
        assert result.row_ranges.contains([address]).all()
        places = result.to_arrow().select(["_rowaddr_start", "_rowaddr_stop"]).to_pylist()
        assert any(place["_rowaddr_start"] <= address < place["_rowaddr_stop"] for place in places)


# --- fragments --------------------------------------------------------------------------------------------------------


@with_and_without_stable_ids
def test_one_zone_is_kept_and_has_the_ids_and_offsets_of_lance(root):
    index = build(root)
    result = index.search(user(87))
    assert (result.num_zones_kept, result.num_zones) == (1, 15)
    (place,) = result.to_arrow().to_pylist()
    del place["fingerprint"]
    assert list(place.values()) == ["fragments/0000000002", 2, 0, 8, 2 << 32, (2 << 32) + 8]
    assert_agrees(index, root)
    lance.dataset(str(root)).delete("id < 20 OR id = 50 OR id % 40 = 39")
    rebuilt = build(root, overwrite=True)
    assert rebuilt.num_rows == 120, "offsets are physical"
    assert rebuilt.verify(sample=1).is_sound
    assert_agrees(rebuilt, root)


def test_default_options_of_scans_are_no_part_of_the_table(root):
    lance.dataset(str(root)).delete("id IN (5, 50)")
    backwards = ColumnOrdering("id", ascending=False)
    for options in ({"order_by": [backwards]}, {"with_row_id": True}, {"columns": ["id"]}, {"limit": 3}):
        given = lance.dataset(str(root), default_scan_options=options)
        assert_agrees(build(given, overwrite=True), root)


def test_ids_are_those_of_lance_where_the_index_has_others(root):
    index = build(root)
    lance.dataset(str(root)).optimize.compact_files(target_rows_per_fragment=1000)
    write(root, rows(120, 150))
    index.refresh()
    lance.dataset(str(root)).add_columns({"twice": "id * 2"})
    index.refresh()
    (place,) = index.search(user(130)).to_arrow().to_pylist()
    (address,) = theirs(root, user(130), with_row_address=True)["_rowaddr"].to_pylist()
    assert place["fragment_id"] == address >> 32
    assert place["_rowaddr_start"] <= address < place["_rowaddr_stop"]
    located = index.locate("u", [user(130)[5:-1]]).to_pylist()
    assert [row["fragment_id"] for row in located] == [place["fragment_id"]]
    assert index.search(user(130)).kept.rows == index.search(user(130)).num_rows_kept == 8
    for explained in (index.explain(user(130)), zb.open_lake(root).explain(user(130))):
        assert explained.result.row_ranges.contains([address]).all()
        assert explained.result.paths[place["fragment_id"]] == place["path"]


@with_and_without_stable_ids
def test_values_that_lance_replaces_in_place_are_found(root):
    """`update_columns` leaves the id of a fragment, its rows and their addresses as they are."""
    index = build(root)
    table = lance.dataset(str(root))
    fragment = table.get_fragment(1)
    changed = pa.table({"id": pa.array([45], pa.int64()), "u": ["another"]})
    updated, fields = fragment.update_columns(changed, left_on="id", right_on="id")
    operation = lance.LanceOperation.Update(updated_fragments=[updated], fields_modified=fields)
    lance.LanceDataset.commit(str(root), operation, read_version=table.version)
    assert index.to_table("u = 'another'")["id"].to_pylist() == [45]
    assert [reason.code for reason in index.search("u = 'another'").reasons] == [ReasonCode.FILE_CHANGED]
    assert_agrees(index, root)
    index.refresh()
    assert index.search("u = 'another'").num_zones_kept == 1
    assert_agrees(index, root)


# --- columns ----------------------------------------------------------------------------------------------------------


def test_columns_with_odd_names_and_fields_of_structs(tmp_path):
    names = ["user id", "select", "Größe", "a-b", "Mixed", "mixed", "*"]
    inner = pa.array([None if i == 3 else {"x": i, "odd name": {"y": str(i)}, "a.b": -i} for i in range(50)])
    table = pa.table({**{name: pa.array([f"{name}{i}" for i in range(50)]) for name in names}, "s": inner})
    root = tmp_path / "odd.lance"
    write(root, table)
    columns = [*names, "s.x", "s.odd name.y", "s.a.b"]
    index = zb.build_index(root, columns, rows_per_zone=8)
    for name in names:
        result = index.search(zb.col(name) == f"{name}42")
        assert result.num_zones_kept == 1
        assert index.to_table(zb.col(name) == f"{name}42")["s"].to_pylist() == [inner[42].as_py()]
    assert index.search("s.x = 41").num_zones_kept == index.search("s.a.b = -41").num_zones_kept == 1
    assert index.to_table(zb.col("s.odd name.y") == "41").num_rows == 1
    assert index.to_table("s.x IS NULL").num_rows == 1
    assert index.verify(sample=1).is_sound


MORE_TYPES = {
    "date64": pa.array(range(5), pa.int32()).cast(pa.date32()).cast(pa.date64()),
    "large bytes": pa.array([b"%d" % i for i in range(5)], pa.large_binary()),
}


def test_each_type_that_lance_stores_is_built_and_found(tmp_path):
    root, types, table = tmp_path / "types.lance", COLUMNS | MORE_TYPES, TABLE
    for name, values in MORE_TYPES.items():
        table = table.append_column(name, values)
    write(root, table, max_rows_per_file=3).delete("row = 1")
    index = zb.build_index(root, list(types), rows_per_zone=1)
    for name, values in types.items():
        is_it = zb.col(name) == values[3]
        assert index.search(is_it).num_zones_kept == 1, name
        assert index.to_table(is_it)["row"].to_pylist() == [3]
        assert index.exists(name, [values[3]]).to_pylist() == [True]


# --- versions ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["2.0", "2.1", "2.2"])
def test_blobs_are_bytes_however_they_are_read(tmp_path, version):
    """pylance gives their places in a scan, bytes by number, and of 2.2 an error."""
    blob = pa.field("blob", pa.large_binary(), metadata={"lance-encoding:blob": "true"})
    values = [None if number % 7 == 0 else b"%d" % number for number in range(300)]
    fields = pa.schema([("u", pa.string()), blob])
    table = pa.table([pa.array([f"k{number}" for number in range(300)]), pa.array(values, pa.large_binary())], fields)
    root = tmp_path / "t.lance"
    lance.write_dataset(table, str(root), data_storage_version=version).delete("u = 'k4'")
    index = zb.build_index(root, ["u", "blob"], rows_per_zone=16)
    assert index.schema.field("blob").type == pa.large_binary()
    rest = [value for number, value in enumerate(values) if number != 4]
    assert index.to_table("u IS NOT NULL")["blob"].to_pylist() == rest
    assert index.to_table("u = 'k5'").to_pylist() == [{"u": "k5", "blob": b"5"}]
    assert index.to_table(zb.Equals("blob", b"250"))["u"].to_pylist() == ["k250"]
    assert index.search(zb.Equals("blob", b"250")).num_zones_kept == 1
    assert index.to_table("blob IS NULL").num_rows == values.count(None)


def test_a_table_that_another_kind_replaced_names_the_way(tmp_path):
    write_deltalake(tmp_path / "delta", rows(0, 9))
    lance.write_dataset(rows(0, 9), tmp_path / "lance")
    for kind in ("delta", "lance"):
        build(tmp_path / kind)
        shutil.rmtree(tmp_path / kind)
    lance.write_dataset(rows(0, 9), tmp_path / "delta")
    write_deltalake(tmp_path / "lance", rows(0, 9))
    for kind in ("delta", "lance"):
        with pytest.raises(
            DataFileError, match=f"no {kind.capitalize()} table any more: build with overwrite=True"
        ) as of:
            zb.open_index(tmp_path / kind).to_table(user(5))
        assert ".rs:" not in str(of.value)
        assert zb.build_index(tmp_path / kind, "u", overwrite=True).to_table(user(5)).num_rows == 1


@pytest.mark.parametrize("how", ["renamed", "dropped"])
def test_a_column_that_is_gone_is_in_the_status_as_damage_until_a_refresh(root, how):
    index = build(root)
    table = lance.dataset(str(root))
    table.drop_columns(["u"]) if how == "dropped" else table.alter_columns({"path": "u", "name": "key"})
    status = index.status()
    assert not status.is_fresh
    assert [(reason.code, reason.column) for reason in status.damage] == [("COLUMN_NOT_INDEXED", "u")]
    index.refresh()
    status = index.status()
    assert (status.is_fresh, status.damage, status.gone_columns) == (True, (), ("u",))
    assert "the table has no column u" in str(status)


@pytest.mark.parametrize("sign", ["#", "?"])
def test_a_url_that_lance_cuts_is_refused(sign):
    with pytest.raises(InvalidArgumentError, match="must have no #"):
        zb.open_lake(f"s3://bucket/runs/2020{sign}1/t.lance")


@pytest.mark.parametrize("name", ["dev", "a/dev"])
@pytest.mark.parametrize("opened", ["created", "checked out", "path"])
def test_an_index_of_a_branch_stands_for_that_branch(root, name, opened):
    """pylance gives a branch that was checked out the location of the main branch."""
    main = build(root)
    branch = lance.write_dataset(rows(1000, 1040), lance.dataset(str(root)).create_branch(name), mode="append")
    path = root / "tree" / name
    given = {"created": branch, "checked out": lance.dataset(str(root)).checkout_version((name, None)), "path": path}
    index = build(given[opened])
    assert index.location != main.location
    write(root, rows(120, 160))
    branch.delete("id = 1007")
    for reopened in (zb.open_index(index.location), zb.open_index(path)):
        assert reopened.search(user(1008)).num_zones_kept == 1
        assert reopened.search(user(1008)).reasons == ()
        assert reopened.to_table(user(130)).num_rows == 0
        assert_agrees(reopened, path)
    assert_agrees(zb.open_index(root), root)


def test_an_index_that_is_opened_by_the_path_of_a_table_stands_for_its_main_branch(root):
    """Also if the last refresh was of a branch."""
    build(root)
    branch = lance.write_dataset(rows(1000, 1040), lance.dataset(str(root)).create_branch("dev"), mode="append")
    write(root, rows(120, 160))
    zb.open_index(root, dataset=branch).refresh()
    for _refreshed in range(2):
        index = zb.open_index(root)
        assert index.to_table(user(1007)).num_rows == 0
        assert_agrees(index, root)
        index.refresh()


def test_an_object_follows_a_table_that_is_made_anew_with_as_many_versions(root):
    given = lance.dataset(str(root))
    index = zb.open_index(build(given).location, dataset=given)
    assert index.to_table(user(7)).num_rows == 1
    shutil.rmtree(root)
    write(root, rows(1000, 1040))
    given.checkout_latest()
    assert given.version == 1
    assert (index.to_table(user(1007)).num_rows, index.to_table(user(7)).num_rows) == (1, 0)


def test_a_table_through_which_another_thread_commits_is_waited_for(root):
    given = lance.dataset(str(root))
    index = zb.open_index(build(given).location, dataset=given)

    def rename() -> None:
        for old, new in (("u", "v"), ("v", "u")) * 10:
            given.alter_columns({"path": old, "name": new})

    with ThreadPoolExecutor() as pool:
        commits = pool.submit(rename)
        counts = set()
        while not commits.done():
            counts.add(zb.open_index(index.location, dataset=given).to_table("id >= 0").num_rows)
            counts.add(index.to_table("id >= 0").num_rows)
    commits.result()
    assert counts == {given.count_rows()}


def test_a_version_that_could_not_be_read_is_read_by_the_next_search(root, meanwhile):
    given = lance.dataset(str(root))
    index = zb.open_index(build(given).location, dataset=given)
    given.insert(rows(1000, 1001))

    def unreadable() -> None:
        raise DataFileError("not now")

    meanwhile(lance_tables, "_snapshot", unreadable)
    with pytest.raises(DataFileError, match="not now"):
        index.to_table(user(1000))
    assert index.to_table(user(1000)).num_rows == 1


def test_what_only_parquet_files_have_is_refused_by_name(root):
    with pytest.raises(DataFileError, match="must be Parquet here"):
        zb.parquet_blooms(root)
