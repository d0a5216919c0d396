"""Our index as Lance's own, and Lance's as ours; and what an audit says of either.

Oracles: pylance 14.0.2, its plans, and its scans without an index. `data/lance-1.0.4.tar.xz` is a table of three
fragments with 8200, 5000 and 8200 rows of an int32 `id`. Its index was written by pylance 1.0.4, with 512 items a zone,
and loses 512 rows.
"""

from __future__ import annotations

import json
import re
import shutil
import tarfile
import uuid
from datetime import timedelta
from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance.dataset import Index, serialize_row_addrs
from lance.file import LanceFileReader, LanceFileWriter
from lance.indices import IndexConfig

import zonebloom as zb
from tests.lance_log import overlay
from zonebloom import errors
from zonebloom.errors import InvalidArgumentError
from zonebloom.formats.lance_index import BLOOM_DETAILS
from zonebloom.indexing import lance_export
from zonebloom.lance import audit_lance

ROWS_PER_ZONE = 64
OLD = Path(__file__).parents[1] / "data" / "lance-1.0.4.tar.xz"
INDEXED, PLAIN = True, False


def rows(start: int, stop: int) -> pa.Table:
    ids = [None if i % 97 == 5 else i for i in range(start, stop)]
    return pa.table({"id": pa.array(ids, pa.int64()), "u": [f"u{i}" for i in range(start, stop)]})


def write(root: Path, table: pa.Table, **options) -> lance.LanceDataset:
    mode = "append" if root.exists() else "create"
    return lance.write_dataset(table, str(root), **{"mode": mode, "max_rows_per_file": 400, **options})


@pytest.fixture
def root(tmp_path, request) -> Path:
    """A table of three fragments with nulls and deleted rows."""
    root = tmp_path / "t.lance"
    write(root, rows(0, 1000), enable_stable_row_ids=getattr(request, "param", False)).delete("id < 9 OR id % 50 = 1")
    return root


with_and_without_stable_ids = pytest.mark.parametrize("root", [False, True], ids=["addresses", "ids"], indirect=True)


def build(root: Path, column: str = "id", **options) -> zb.Index:
    return zb.build_index(root, column, **{"rows_per_zone": ROWS_PER_ZONE, **options})


def lances_own(root: Path, column: str = "id", fpp: float = 0.00057) -> None:
    parameters = {"number_of_items": ROWS_PER_ZONE, "probability": fpp}
    lance.dataset(str(root)).create_scalar_index(column, IndexConfig("bloomfilter", parameters))


def replace(table: lance.LanceDataset, ids: dict[str, int], *, is_told: bool = True) -> None:
    """Give rows of fragment 1 other ids, by their `u`: a column of the fragment is written anew."""
    changed = pa.table({"u": list(ids), "id": pa.array(ids.values(), pa.int64())})
    updated, fields = table.get_fragment(1).update_columns(changed, left_on="u", right_on="u")
    told = {"fields_modified": fields} if is_told else {}
    operation = lance.LanceOperation.Update(updated_fragments=[updated], **told)
    lance.LanceDataset.commit(table.uri, operation, read_version=table.version)


def index_files(root: Path) -> list[Path]:
    return sorted(root.glob("_indices/*/bloomfilter.lance"))


def scan(root: Path, where: str, is_by_index: bool) -> pa.Table:
    scanner = lance.dataset(str(root)).scanner(filter=where, use_scalar_index=is_by_index, with_row_address=True)
    return scanner.to_table().sort_by("_rowaddr")


def rows_scanned(root: Path, where: str) -> int:
    """Rows that Lance reads by the index; all of them where its plan has none."""
    scanner = lance.dataset(str(root)).scanner(filter=where)
    if "ScalarIndexQuery" not in scanner.explain_plan(True):
        return lance.dataset(str(root)).count_rows()
    findall = re.findall(r"rows_scanned=([\d.]+)( K)?", scanner.analyze_plan())
    return sum(int(float(number) * (1000 if unit else 1)) for number, unit in findall)


def assert_answers_are_right(root: Path) -> None:
    """Lance gives the same with its indexes as without, and an audit says so."""
    assert audit_lance(lance.dataset(str(root))).is_sound
    keys = [f"id = {key}" for key in (3, 51, 102, 103, 950, 1003, -1)]
    others = ("id IN (12, 777, 5000)", "id IS NULL", "id = 103 OR u = 'u500'", "NOT (id = 103)")
    for where in (*keys, *others, "id IS NOT NULL AND id < 20"):
        assert scan(root, where, INDEXED).equals(scan(root, where, PLAIN)), where


# --- our index, used by Lance -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("root", "sizing", "per_fragment"),
    [(False, "power_of_two", False), (True, "exact", True), (True, "adaptive", False)],
    indirect=["root"],
)
def test_lance_prunes_by_an_exported_index(root, sizing, per_fragment):
    done = build(root, sizing=sizing).export_lance(root, "id", per_fragment=per_fragment)
    assert (done.name, done.num_segments) == ("id_idx", 3 if per_fragment else 1)
    assert rows_scanned(root, "id = 103") <= ROWS_PER_ZONE
    assert rows_scanned(root, "id IS NULL") <= 20
    assert_answers_are_right(root)


@pytest.mark.parametrize(("root", "per_fragment"), [(True, False), (False, True)], indirect=["root"])
def test_an_exported_index_lives_on_as_lances_own(root, per_fragment):
    build(root, sizing="exact").export_lance(root, "id", per_fragment=per_fragment)
    steps = (
        lambda _: write(root, rows(1000, 1400)),
        lambda table: table.optimize.optimize_indices(),
        lambda table: table.delete("id % 50 = 2"),
        lambda table: table.update({"id": "id + 10000"}, where="id > 600 AND id < 620"),
        lambda table: table.optimize.compact_files(target_rows_per_fragment=10_000),
        lambda table: table.optimize.optimize_indices(),
    )
    for step in steps:
        step(lance.dataset(str(root)))
        assert_answers_are_right(root)
    assert rows_scanned(root, "id = 103") <= 3 * ROWS_PER_ZONE


def test_an_exported_index_has_what_lance_writes_for_the_same_rows(tmp_path):
    ours, theirs = tmp_path / "ours.lance", tmp_path / "theirs.lance"
    for root in (ours, theirs):
        write(root, rows(0, 1000))
    build(ours, fpp=0.01).export_lance(lance.dataset(str(ours)), "id")
    lances_own(theirs, fpp=0.01)
    written, expected = (LanceFileReader(str(index_files(root)[0])) for root in (ours, theirs))
    assert written.read_all().to_table().equals(expected.read_all().to_table())
    metadata = expected.metadata().schema.metadata
    assert written.metadata().schema.metadata == metadata
    number = int(metadata[b"null_bitmap"])
    assert bytes(written.read_global_buffer(number)) == bytes(expected.read_global_buffer(number))


def test_a_refreshed_index_is_exported_by_lances_ids(root):
    index = build(root)
    lance.dataset(str(root)).optimize.compact_files(target_rows_per_fragment=10_000)
    write(root, rows(1000, 1100))
    index.refresh()
    lance.dataset(str(root)).add_columns({"twice": "id * 2"})
    index.refresh()
    index.export_lance(root, "id")
    assert_answers_are_right(root)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([f"{i}" for i in range(100)]).dictionary_encode(),
        pa.array([b"%04d" % i for i in range(100)], pa.binary(4)),
        pa.array(range(100), pa.duration("s")),
    ],
    ids=lambda values: str(values.type)[:9],
)
def test_types_at_which_lance_would_fail_are_refused(tmp_path, values):
    write(tmp_path / "t.lance", pa.table({"c": values}))
    with pytest.raises(errors.UnsupportedTypeError, match="Lance would fail at each query"):
        build(tmp_path / "t.lance", "c").export_lance(tmp_path / "t.lance", "c")


def test_rows_without_zones_and_second_indexes_are_refused_and_nothing_is_left(root):
    index = build(root)
    write(root, rows(1000, 1100))
    with pytest.raises(errors.StaleIndexError, match="refresh the index"):
        index.export_lance(root, "id")
    index.refresh()
    lance.dataset(str(root)).create_scalar_index("id", "BTREE")
    with pytest.raises(errors.IndexExistsError, match="drop that one in Lance first"):
        index.export_lance(root, "id", overwrite=True)
    lance.dataset(str(root)).drop_index("id_idx")
    lances_own(root)
    with pytest.raises(errors.IndexExistsError, match="overwrite=True replaces it"):
        index.export_lance(root, "id")
    assert index.export_lance(root, "id", overwrite=True).num_zones == 20
    (described,) = lance.dataset(str(root)).describe_indices()
    assert len(described.segments) == 1
    assert_answers_are_right(root)


def test_an_index_of_something_else_is_refused(root, flat_lake, tmp_path):
    write(tmp_path / "other.lance", rows(0, 100))
    with pytest.raises(errors.InvalidArgumentError, match="must be the indexed one"):
        build(root).export_lance(tmp_path / "other.lance", "id")
    with pytest.raises(errors.InvalidArgumentError, match="is no Lance table; zone_table"):
        zb.build_index(flat_lake.root, "user_id").export_lance(flat_lake.root, "user_id")
    nested = tmp_path / "nested.lance"
    write(nested, pa.table({"s": [{"x": i} for i in range(100)]}))
    with pytest.raises(errors.InvalidArgumentError, match="top-level column"):
        build(nested, "s.x").export_lance(nested, "s.x")


def test_an_index_of_a_branch_is_committed_to_that_branch_alone(root):
    """Both have a fragment of the same id; Lance would lose the rows of the one by the zones of the other."""
    table = lance.dataset(str(root))
    lance.write_dataset(rows(10_000, 10_100), table.create_branch("dev"), mode="append")
    main = lance.write_dataset(rows(20_000, 20_100), str(root), mode="append")
    branch = main.checkout_version(("dev", None))
    while main.version < branch.version:
        main = lance.write_dataset(rows(30_000, 30_100), str(root), mode="append")
    index = zb.build_index(branch, "id")
    assert index.exists("id", [10_000, 20_000]).to_pylist() == [True, False]
    index.export_lance(branch, "id")
    assert not lance.dataset(str(root)).describe_indices()
    assert lance.dataset(str(root)).count_rows(filter="id = 20000") == 1
    assert_answers_are_right(root / "tree" / "dev")
    assert rows_scanned(root / "tree" / "dev", "id = 10000") <= 100


def made_anew(root: Path) -> None:
    shutil.rmtree(root)
    write(root, rows(5000, 6000)).delete("id IS NULL")


def test_an_index_of_a_table_that_was_made_anew_is_not_committed(root):
    before = lance.dataset(str(root))
    index = zb.build_index(before, "id")
    made_anew(root)
    with pytest.raises(errors.InvalidArgumentError, match="must be of the table that is at"):
        index.export_lance(before, "id")
    assert not lance.dataset(str(root)).describe_indices()


def test_a_table_that_is_made_anew_during_an_export_has_no_index(root, meanwhile):
    index = zb.build_index(root, "u")
    meanwhile(lance_export, "_zones", lambda: made_anew(root))
    with pytest.raises(errors.ConcurrentCommitError, match="another table"):
        index.export_lance(root, "u")
    table = lance.dataset(str(root))
    assert table.describe_indices() == []
    assert table.to_table(filter="u = 'u5500'").num_rows == 1


def test_a_compaction_that_comes_between_ends_the_export_without_a_trace(root):
    index, before = build(root), lance.dataset(str(root))
    lance.dataset(str(root)).optimize.compact_files(target_rows_per_fragment=10_000)
    with pytest.raises(errors.ConcurrentCommitError, match="run again"):
        index.export_lance(before, "id")
    assert list((root / "_indices").iterdir()) == []
    assert_answers_are_right(root)


@pytest.mark.parametrize(
    ("change", "overwrite"),
    [
        (lambda table: table.alter_columns({"path": "id", "data_type": pa.int32()}), False),
        (lambda table: table.drop_columns(["id"]), False),
        (lambda table: table.drop_columns(["id"]), True),  # Lance casts no column that has an index
    ],
    ids=["cast", "drop", "drop of an indexed column"],
)
def test_an_export_that_a_cast_or_a_drop_overtakes_leaves_no_index(root, change, overwrite):
    """Lance takes the commit, and then fails at each filtered query and delete of the table."""
    index = build(root)
    if overwrite:
        lances_own(root)
    before = lance.dataset(str(root))
    change(lance.dataset(str(root)))
    with pytest.raises(errors.ConcurrentCommitError, match="dropped or cast"):
        index.export_lance(before, "id", overwrite=overwrite)
    table = lance.dataset(str(root))
    assert table.describe_indices() == []
    assert table.to_table(filter="u = 'u500'").num_rows == 1
    table.delete("u = 'u500'")


def test_an_index_whose_fragments_only_lance_knows_is_not_audited(root):
    """A compaction that defers it leaves their former ids in the zones, and Lance its own index of both."""
    lances_own(root)
    lance.dataset(root).optimize.compact_files(target_rows_per_fragment=10**6, defer_index_remap=True)
    with pytest.raises(InvalidArgumentError, match="before a compaction with defer_index_remap; create the index"):
        audit_lance(root)
    lances_own(root)
    assert audit_lance(root).is_sound


def test_an_index_of_no_column_is_damage(root):
    build(root).export_lance(root, "id")
    lances_own(root, "u")
    commit_index(root, str(uuid.uuid4()), "gone_idx", 99, {0})
    audit = audit_lance(root)
    damage = {index.name: index.damage for index in audit.indexes}
    assert "dropped or cast" in damage["gone_idx"][0]
    assert "must find nulls" in damage["id_idx"][0]  # no filtered query succeeds
    assert damage["u_idx"] == []
    lance.dataset(str(root)).drop_index("gone_idx")
    assert audit_lance(root).is_sound


def test_values_that_are_replaced_meanwhile_are_found(root):
    index, before = build(root), lance.dataset(str(root))
    table = lance.dataset(str(root))
    replace(table, {"u502": 77_777})
    index.export_lance(before, "id")
    assert scan(root, "id = 77777", INDEXED)["u"].to_pylist() == ["u502"]
    assert audit_lance(root).is_sound


# --- Lance's index, used by us ----------------------------------------------------------------------------------------


@with_and_without_stable_ids
def test_lances_zones_are_adopted_and_the_rest_is_read(root):
    lance.dataset(str(root)).optimize.compact_files(target_rows_per_fragment=300, materialize_deletions_threshold=0.0)
    lances_own(root)
    theirs = LanceFileReader(str(index_files(root)[0])).read_all().to_table()
    write(root, rows(1000, 1100))
    index = build(root, adopt="lance")
    ours = index.zone_table("id").to_arrow()
    adopted = ours.slice(0, len(theirs))
    assert adopted["bloom_filter_data"].to_pylist() == theirs["bloom_filter_data"].to_pylist()
    assert adopted["has_null"].to_pylist() == theirs["has_null"].to_pylist()
    assert len(ours) == len(theirs) + 2
    assert index.search("id = 1050").num_zones_kept == 1
    assert index.search("id = 103").reasons == ()
    for where in ("id = 103", "id = 3", "id IS NULL", "id IN (12, 777, 1003)"):
        assert index.to_table(where).num_rows == scan(root, where, PLAIN).num_rows
    assert index.verify(sample=1).is_sound
    assert index.refresh().num_files_added == 0


@with_and_without_stable_ids
def test_deleted_rows_that_lances_index_never_had_are_found_when_they_come_back(root):
    lances_own(root)
    index = build(root, adopt="lance")
    assert index.verify(sample=1).is_sound
    assert index.to_table("id IN (3, 351, 951)").num_rows == 0
    lance.dataset(str(root), version=1).restore()
    index.refresh()
    assert index.to_table("id IN (3, 351, 951)")["id"].to_pylist() == [3, 351, 951]


def test_values_that_an_overlay_replaced_after_lances_index_are_found_and_audited(tmp_path):
    write(root := tmp_path / "t.lance", rows(0, 1000))
    lances_own(root)
    overlay(lance.dataset(str(root)), 1, "id", {200: 77_777})
    index = build(root, adopt="lance")
    assert index.to_table("id = 77777")["u"].to_pylist() == ["u600"]
    assert index.verify(sample=1).is_sound
    assert audit_lance(root).is_sound
    assert scan(root, "id = 77777", INDEXED).num_rows == 1
    overlay(lance.dataset(str(root)), 1, "u", {202: "another column"})
    assert build(root, adopt="lance", index=f"{root}.index").to_table("u = 'another column'").num_rows == 1


@pytest.mark.parametrize("then", ["nothing", "the index is optimized", "old versions are removed", "a clone"])
def test_values_that_a_commit_replaced_without_saying_so_are_found(tmp_path, then):
    write(root := tmp_path / "t.lance", rows(0, 1000))
    lances_own(root)
    replace(lance.dataset(str(root)), {f"u{number}": 77_000 + number for number in range(500, 560)}, is_told=False)
    table = lance.dataset(str(root))
    if then == "the index is optimized":
        write(root, rows(1000, 1100)).optimize.optimize_indices()
    elif then == "old versions are removed":
        table.cleanup_old_versions(timedelta(0))
    elif then == "a clone":
        table.shallow_clone(str(root := tmp_path / "clone.lance"), table.version)
    index = build(root, adopt="lance")
    assert index.to_table(column="id", values=range(77_500, 77_560)).num_rows == 60
    assert index.verify(sample=1).is_sound


def test_an_index_that_lost_rows_is_not_adopted(old_table):
    with pytest.warns(RuntimeWarning, match="run zonebloom lance audit"):
        index = zb.build_index(old_table, "id", adopt="lance")
    assert index.verify(sample=1).is_sound
    assert index.to_table(column="id", values=range(21_400)).num_rows == 21_400


def test_adopting_is_told_apart_by_the_kind_of_data(root, flat_lake):
    with pytest.raises(errors.InvalidArgumentError, match="is a Lance table, which has no Parquet files"):
        build(root, adopt="parquet")
    with pytest.raises(errors.InvalidArgumentError, match="is no Lance table; adopt is 'parquet'"):
        zb.build_index(flat_lake.root, "user_id", adopt="lance")


# --- audit ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def old_table(tmp_path) -> Path:
    """The table that pylance 1.0.4 indexed."""
    with tarfile.open(OLD) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Debian 12 has Python 3.11.2 without it
        archive.extractall(tmp_path)
    return tmp_path / "lance-1.0.4.lance"


def rewrite_index(root: Path, change) -> None:
    """Commit a copy of Lance's index whose rows and nulls `change` has changed."""
    table = lance.dataset(str(root))
    (described,) = table.describe_indices()
    reader = LanceFileReader(str(index_files(root)[0]))
    zones = reader.read_all().to_table()
    changed, nulls = change(zones, bytes(reader.read_global_buffer(int(zones.schema.metadata[b"null_bitmap"]))))
    name = str(uuid.uuid4())
    path = root / "_indices" / name / "bloomfilter.lance"
    path.parent.mkdir()
    with LanceFileWriter(str(path), changed.schema.remove_metadata()) as writer:
        for batch in changed.to_batches():
            writer.write_batch(batch)
        for key, value in changed.schema.metadata.items():
            writer.add_schema_metadata(key.decode(), value.decode())
        writer.add_schema_metadata("null_bitmap", str(writer.add_global_buffer(nulls)))
    table.drop_index("id_idx")
    commit_index(root, name, "id_idx", 0, set(described.segments[0].fragment_ids))


def commit_index(root: Path, name: str, index_name: str, field: int, fragment_ids: set[int]) -> None:
    version = lance.dataset(str(root)).version
    options = {"index_version": 0, "index_details": (BLOOM_DETAILS, b"")}
    index = Index(name, index_name, [field], version, fragment_ids, **options)
    operation = lance.LanceOperation.CreateIndex(new_indices=[index], removed_indices=[])
    lance.LanceDataset.commit(str(root), operation, read_version=version)


def lost_by_lance(root: Path, where: str) -> list[int]:
    by_index = set(scan(root, where, INDEXED)["_rowaddr"].to_pylist())
    return sorted(set(scan(root, where, PLAIN)["_rowaddr"].to_pylist()) - by_index)


def test_an_audit_names_the_rows_that_an_old_lance_lost_and_who_wrote_it(old_table):
    audited = audit_lance(old_table)
    (index,) = audited.indexes
    assert not audited.is_sound
    assert index.writers == ["1.0.4"]
    assert (index.num_rows, index.num_lost, index.damage) == (21_400, 512, [])
    first, *_, last = index.lost_rows
    assert lost_by_lance(old_table, "id = 5") == []
    assert lost_by_lance(old_table, f"id = {8200 + (first & 0xFFFF_FFFF)}") == [first]
    assert lost_by_lance(old_table, f"id = {8200 + (last & 0xFFFF_FFFF)}") == [last]


def test_a_filter_that_lacks_values_a_missing_zone_and_lost_nulls_are_named(root):
    lances_own(root)
    assert audit_lance(root).is_sound

    def empty_filter(zones: pa.Table, nulls: bytes) -> tuple[pa.Table, bytes]:
        filters = zones["bloom_filter_data"].to_pylist()
        filters[3] = bytes(len(filters[3]))
        return zones.set_column(4, zones.schema.field(4), pa.array(filters)), nulls

    rewrite_index(root, empty_filter)
    (audited,) = audit_lance(root).indexes
    keys = scan(root, "id IS NOT NULL", PLAIN)["id"].to_pylist()[150:300]
    lost = lost_by_lance(root, f"id IN ({', '.join(map(str, keys))})")
    assert audited.num_lost == len(lost) > 50
    assert audited.lost_rows == lost[:10]

    rewrite_index(root, lambda zones, nulls: (pa.concat_tables([zones.slice(0, 3), zones.slice(4)]), nulls))
    (audited,) = audit_lance(root).indexes
    assert audited.num_lost == len(lost)

    rewrite_index(root, lambda zones, _: (zones, bytes(serialize_row_addrs([]))))
    (audited,) = audit_lance(root).indexes
    assert audited.num_lost_nulls == len(lost_by_lance(root, "id IS NULL")) > 0


@pytest.mark.parametrize("version", ["legacy", "2.0", "2.2"])
def test_nulls_of_each_type_are_audited(tmp_path, version):
    """Of an Expression pylance 14 takes neither unsigned integers nor large texts."""
    texts = [None if number % 3 == 0 else str(number) for number in range(60)]
    columns = {str(kind): pa.array(texts).cast(kind) for kind in (pa.string(), pa.large_string(), pa.large_binary())}
    if version != "legacy":  # which has no nulls of numbers
        columns |= {f"an {kind}": pa.array(texts).cast(kind) for kind in (pa.uint8(), pa.uint64(), pa.float32())}
    table = lance.write_dataset(pa.table(columns), str(tmp_path / "t"), data_storage_version=version)
    for name in columns:
        table.create_scalar_index(name, IndexConfig("bloomfilter", {"number_of_items": 8}))
    audit = audit_lance(tmp_path / "t")
    assert audit.is_sound
    assert len(audit.indexes) == len(columns)


def test_fields_of_structs_are_audited_and_adopted_by_their_names(tmp_path):
    inner = [{"x": None if number % 5 == 0 else number, "a.b": number % 7 or None} for number in range(60)]
    table = lance.write_dataset(pa.table({"s": inner}), str(tmp_path / "t"))
    for name in ("s.x", "s.`a.b`"):
        table.create_scalar_index(name, IndexConfig("bloomfilter", {"number_of_items": 8}))
    audit = audit_lance(tmp_path / "t")
    assert audit.is_sound
    assert {index.column for index in audit.indexes} == {"s.x", "s.a.b"}
    index = build(tmp_path / "t", "s.a.b", adopt="lance")
    theirs = LanceFileReader(str(index_files(tmp_path / "t")[-1])).read_all().to_table()
    assert len(index.zone_table("s.a.b")) == len(theirs)
    assert index.verify(sample=1).is_sound


def test_an_audit_of_a_part_reads_that_part_and_one_of_nothing_says_so(root, flat_lake):
    assert audit_lance(root).indexes == ()
    lances_own(root)
    (audited,) = audit_lance(root, column="id", sample=0.3).indexes
    assert audited.num_fragments == 1
    with pytest.raises(zb.ZoneBloomError, match="no column u in"):
        audit_lance(root, column="u")
    with pytest.raises(errors.InvalidArgumentError, match="is no Lance table"):
        audit_lance(flat_lake.root)
    path = index_files(root)[0]
    path.write_bytes(path.read_bytes().replace(b"uint64", b"uint6u"))  # Lance panics, which is no Exception of Python
    assert "must be readable by pylance" in audit_lance(root).indexes[0].damage[0]
    shutil.rmtree(path.parent)
    assert audit_lance(root).indexes[0].damage


def test_the_command_exports_audits_and_replaces(old_table, run):
    status, printed, _ = run("lance", "audit", old_table)
    assert status == 1
    assert "written by Lance 1.0.4" in printed
    assert "512 of 21,400 rows lost" in printed
    status, printed, _ = run("lance", "audit", old_table, "--replace", "-f", "json")
    assert status == 0
    assert json.loads(printed)["replaced"][0]["num_zones"] == 5
    status, printed, _ = run("lance", "audit", old_table)
    assert (status, printed.split(":")[0]) == (0, "sound")
    assert run("lance", "import", old_table, "-c", "id")[0] == 0
    status, _, told = run("lance", "import", old_table, "-c", "id")
    assert (status, told.endswith("or add --overwrite\n")) == (2, True)
    assert run("lance", "import", old_table, "-c", "id", "--overwrite")[0] == 0
    assert run("lance", "export", old_table, "-c", "id")[0] == 2
    assert run("lance", "export", old_table, "-c", "id", "--overwrite", "--per-fragment")[0] == 0
    assert run("lance", "export", old_table, "-c", "id", "--per-fragment", "-o", "x.arrow")[0] == 2


def test_an_exported_index_in_an_object_store(s3):
    url, options = s3.url("t.lance"), s3.options
    lance.write_dataset(rows(0, 300), url, max_rows_per_file=100, storage_options=options)
    index = zb.build_index(url, "id", rows_per_zone=ROWS_PER_ZONE, storage_options=options)
    index.export_lance(url, "id")
    table = lance.dataset(url, storage_options=options)
    assert "ScalarIndexQuery" in table.scanner(filter="id = 250").explain_plan(True)
    assert table.scanner(filter="id = 250").to_table().num_rows == 1
    assert audit_lance(url, storage_options=options).is_sound
    branch = lance.write_dataset(rows(300, 400), table.create_branch("a/dev"), mode="append")
    audit = audit_lance(branch)
    assert (audit.is_sound, audit.indexes[0].num_rows) == (True, 300)
    of_branch = zb.build_index(f"{url}/tree/a/dev/", "u", storage_options=options)
    assert of_branch.to_table("u = 'u350'").num_rows == 1
    assert index.to_table("u = 'u350'").num_rows == 0
