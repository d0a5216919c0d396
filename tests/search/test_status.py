"""Status names what an index covers: reasons that are summed up, unreadable files, half-finished builds, leftovers.

Oracle: the changes that the test itself makes to the lake.
"""

from __future__ import annotations

import shutil
import uuid

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake

import zonebloom as zb
from tests.conftest import index_of
from zonebloom.errors import IndexNotFoundError
from zonebloom.ground.reasons import Reason, ReasonCode, summed_up


@pytest.fixture
def changed(flat_lake):
    """One file is new, one changed, one deleted, and one new one cannot be read."""
    zb.build_index(flat_lake.root, "user_id", rows_per_zone=100)
    new = flat_lake.table.slice(0, 10)
    pq.write_table(new, flat_lake.root / "new.parquet")
    pq.write_table(new, flat_lake.root / flat_lake.files[0])
    (flat_lake.root / flat_lake.files[1]).unlink()
    (flat_lake.root / "zz.parquet").write_bytes(b"PAR1")
    return flat_lake


def test_a_fresh_index_says_so(flat_lake, run):
    index = zb.build_index(flat_lake.root, "user_id")
    status = index.status()
    assert status.is_fresh
    assert (status.num_files, status.num_rows, status.num_rows_not_indexed) == (3, flat_lake.table.num_rows, 0)
    assert status.index_bytes == index.indexed_columns()[0].index_bytes
    assert run("status", flat_lake.root, "--check")[0] == 0


def test_every_kind_of_change_is_counted(changed, run):
    status = zb.open_index(changed.root).status()
    assert not status.is_fresh
    counts = (status.num_new, status.num_changed, status.num_deleted, status.num_unreadable)
    assert counts == (2, 1, 1, 1)
    assert status.num_rows_not_indexed == 20
    assert status.num_rows == 20 + pq.read_metadata(changed.root / changed.files[2]).num_rows
    code, out, err = run("status", changed.root)
    assert (code, err) == (0, "")
    assert "1 of 4 (25%)" in out
    assert "2 new, 1 changed, 1 deleted" in out
    assert "NOT FRESH" in out
    assert run("status", changed.root, "--check")[0] == 1
    (changed.root / "zz.parquet").unlink()
    run("refresh", changed.root)
    assert run("status", changed.root, "--check", "-f", "json")[0] == 0


def test_damage_and_lost_segments_are_in_the_status_and_the_search_warns_of_them(flat_lake):
    zb.build_index(flat_lake.root, "user_id")
    for path in (index_of(flat_lake.root) / "columns").rglob("*.arrow"):
        path.unlink()
    index = zb.open_index(flat_lake.root)
    status = index.status()
    assert not status.is_fresh
    assert {reason.code for reason in status.damage} == {"SEGMENT_CORRUPT"}
    assert "damaged" in str(status)
    with pytest.warns(RuntimeWarning, match="rows that it describes are read whole"):
        index.search("user_id = 'x'")


def test_a_build_that_died_is_unfinished(flat_lake, run, monkeypatch):
    from zonebloom.indexing import apply

    commit = apply.commit_change
    monkeypatch.setattr(apply, "commit_change", lambda store, base, change: stop(commit(store, base, change)))
    with pytest.raises(KeyboardInterrupt):
        zb.build_index(flat_lake.root, "user_id", commit_every=1)
    monkeypatch.undo()
    assert [column.is_unfinished for column in zb.open_index(flat_lake.root).status().columns] == [True]
    assert "the build of user_id is unfinished; a refresh continues it" in run("status", flat_lake.root)[1]
    zb.open_index(flat_lake.root).refresh()
    assert zb.open_index(flat_lake.root).status().is_fresh


def stop(_done):
    raise KeyboardInterrupt


# --- reasons ----------------------------------------------------------------------------------------------------------


def test_reasons_are_one_line_however_many_files():
    reasons = [Reason(ReasonCode.FILE_CHANGED, "it changed", path=f"f{n}.parquet") for n in range(100_000)]
    reasons.append(Reason(ReasonCode.COLUMN_NOT_INDEXED, "no filters", column="c"))
    many = "FILE_CHANGED: 100,000 times, such as f0.parquet: it changed"
    assert summed_up(reasons) == [many, "COLUMN_NOT_INDEXED (c): no filters"]


def test_a_copied_lake_is_told_in_one_line_and_a_scan_warns_once(flat_lake, tmp_path, run):
    zb.build_index(flat_lake.root, "user_id")
    copy = tmp_path / "copy"
    shutil.copytree(flat_lake.root, copy, copy_function=shutil.copyfile)
    shutil.copytree(index_of(flat_lake.root), index_of(copy))
    code, out, err = run("search", copy, "-w", "user_id = 'nobody'")
    assert (code, len(out.splitlines())) == (0, 3)
    cause = "the file changed since it was indexed; it is read whole until the next refresh"
    changed = [line for line in err.splitlines() if "FILE_CHANGED" in line]
    assert changed == [f"FILE_CHANGED: 3 times, such as part-0.parquet: {cause}"]
    code, _, err = run("scan", copy, "-w", "user_id = 'nobody'")
    assert code == 0
    message = "read whole: 3 new or changed files, such as part-0.parquet; run `zonebloom refresh PATH`"
    assert err == f"zonebloom: warning: {message}\n"
    assert "not indexed, so not verified: 3 new or changed files" in run("verify", copy)[1]


def test_a_type_that_changed_is_mended_by_a_full_refresh_and_the_status_says_so(tmp_path, run):
    (root := tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"k": [1]}), root / "a.parquet")
    index = zb.build_index(root, "k")
    pq.write_table(pa.table({"k": ["x"]}), root / "a.parquet")
    index.refresh()
    assert 'a refresh with mode="full" mends it' in " ".join(str(index.status()).split())
    assert "zonebloom refresh PATH --mode full` mends it" in " ".join(run("status", root).out.split())
    index.refresh("full")
    assert index.status().is_fresh


def test_rows_of_an_unreadable_file_are_not_counted(changed, run):
    result = zb.open_index(changed.root).search("user_id = 'nobody'")
    assert result.kept.rows == 20
    assert result.kept.unreadable == result.total.unreadable == 1
    assert result.to_dict()["num_unreadable"] == 1
    for command in ("search", "explain"):
        code, out, err = run(command, changed.root, "-w", "user_id = 'nobody'")
        assert code == 0
        assert "4,294,967,295" not in out + err
        assert "the rows of 1 file that cannot be read: how many is unknown" in out + err


def test_a_partition_column_that_files_hold_too_has_a_reason_of_its_own(tmp_path):
    """Polars leaves the keys of partitions in the files."""
    for day in (1, 2):
        (tmp_path / "lake" / f"day={day}").mkdir(parents=True)
        pq.write_table(pa.table({"day": [day] * 5, "x": range(5)}), tmp_path / "lake" / f"day={day}" / "a.parquet")
    index = zb.build_index(tmp_path / "lake", "x")
    (reason,) = index.search("day = 1").reasons
    assert reason.code is ReasonCode.PARTITION_COLUMN_IN_FILE
    assert "make filters by build_index(path, 'day')" in reason.message


# --- explain ----------------------------------------------------------------------------------------------------------


def test_explain_tells_false_zones_expected_and_seen(tmp_path):
    values = np.random.default_rng(0).permutation(20_000)
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "x", rows_per_zone=10, fpp=0.01, sizing="exact")
    explanation = index.explain(zb.Equals("x", 7))
    assert 0.03 < explanation.false_zones.expected < 0.1, "ten values in 256 bits: far fewer than asked for"
    assert explanation.false_zones.kept == explanation.result.num_zones_kept
    assert explanation.false_zones.seen == explanation.result.num_zones_kept - 1
    assert index.explain(zb.Equals("x", -1)).false_zones.seen == index.search(zb.Equals("x", -1)).num_zones_kept
    assert f"{explanation.false_zones.expected:,.2g} expected, {explanation.false_zones.seen} seen" in str(explanation)
    assert min(explanation.list_seconds, explanation.search_seconds) > 0
    assert index.explain("x = 7 AND x IS NOT NULL").false_zones is None
    assert not explanation.false_zones.is_located
    for how in ({"kind": "both"}, {"kind": "locator"}):
        located = zb.build_index(tmp_path, "x", rows_per_zone=10, fpp=0.01, overwrite=True, **how)
        explanation = located.explain(zb.IsIn("x", [7, -1]))
        assert explanation.false_zones.is_located
        assert explanation.false_zones.expected == 2 * 20_000 / 2**41
        assert (explanation.false_zones.kept, explanation.false_zones.seen) == (1, 0)
        assert "1.8e-08 expected of the locator, 0 seen" in str(explanation)


def test_explain_expects_what_the_bits_of_the_filters_say(tmp_path):
    """Filters are made for distinct rows; with 5 rows a value they pass far fewer absent keys than was asked for."""
    values = np.repeat(np.arange(2000), 5)
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, "x", rows_per_zone=500, fpp=0.01)
    expected = index.explain(zb.Equals("x", -1)).false_zones.expected
    measured = index.verify(sample=1.0).columns[0].measured_fpp * 20
    assert expected == pytest.approx(measured)
    assert expected < 0.01 * 20 / 100
    listed = index.explain(zb.IsIn("x", [-1, -2, -3])).false_zones.expected
    assert listed == pytest.approx(3 * expected, rel=0.01)


def test_explain_says_when_the_values_are_simply_there(tmp_path):
    table = pa.table({"x": np.tile(np.arange(100), 40), "y": np.arange(4000)})
    pq.write_table(table, tmp_path / "a.parquet")
    index = zb.build_index(tmp_path, ["x", "y"], rows_per_zone=50)
    (reason,) = index.explain(zb.IsIn("x", [1, 2, 3, 70, 71, 72])).result.reasons
    assert (reason.code, reason.column) == ("VALUES_IN_MANY_ZONES", "x")
    assert reason.message.startswith("6 values, each in about 40 of 80 zones, so nearly every zone holds one")
    everywhere = index.explain(zb.IsIn("y", range(0, 4000, 50)))
    assert "80 values, each in about 1 of 80 zones" in everywhere.result.reasons[0].message
    for wanted in (zb.Equals("x", 1), zb.IsIn("y", range(0, 2000, 50)), zb.Equals("y", -1)):
        assert index.explain(wanted).result.reasons == ()
    by_chance = zb.build_index(tmp_path, "y", index=tmp_path.parent / "chance", rows_per_zone=50, fpp=0.01)
    many = by_chance.explain(zb.IsIn("y", range(10_000, 18_000)))
    assert many.result.num_zones_kept >= 60
    assert many.result.reasons == (), "filters keep these zones, not the values"


@pytest.mark.parametrize(
    ("where", "meaning"),
    [
        ("user_id = 'x'", "certainly nowhere: none of 7,200 rows need be read"),
        ("user_id = 'x' OR note IS NULL", "all rows that match, and perhaps others"),
        ("user_id != 'x'", "nothing could be left out"),
        ("day = 1", "just the rows that match"),
    ],
)
def test_the_kind_of_an_answer_is_told_in_words(hive_lake, run, where, meaning):
    index = zb.build_index(hive_lake.root, ["user_id", "note"], rows_per_zone=100)
    assert meaning in run("search", hive_lake.root, "-w", where)[2]
    assert meaning in run("explain", hive_lake.root, "-w", where)[1]
    assert meaning.split(":")[0] in index.search(where)._repr_html_()


def test_explain_fits_80_columns(changed):
    text = str(zb.open_index(changed.root).explain("user_id = 'nobody' OR trace IS NULL OR note = 'x'"))
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in text.splitlines()), "a path is never cut"


# --- what is left -----------------------------------------------------------------------------------------------------


def test_export_and_import_after_refreshes_and_a_rebuild(make_lake, run, tmp_path):
    lake = make_lake((500, 300, 400))
    zb.build_index(lake.root, "user_id", rows_per_zone=100)
    lake = lake.append("part-9.parquet", lake.table.slice(0, 150))
    pq.write_table(lake.table.slice(0, 77), lake.root / lake.files[0])
    run("refresh", lake.root)
    for number, again in enumerate((("refresh", lake.root), ("refresh", lake.root, "--mode", "full"))):
        assert run(*again)[0] == 0
        zones, place = tmp_path / f"{number}.arrow", tmp_path / f"index{number}"
        assert run("lance", "export", lake.root, "-c", "user_id", "-o", zones)[0] == 0
        code, _, err = run("lance", "import", lake.root, "-i", zones, "-c", "user_id", "--index", place)
        assert (code, err) == (0, "")
        imported = zb.open_index(place)
        assert imported.verify(sample=1.0).is_sound
        expected = zb.open_index(lake.root).to_table(zb.Equals("user_id", lake.table["user_id"][600]))
        assert imported.to_table(zb.Equals("user_id", lake.table["user_id"][600])) == expected


def test_delete_index_removes_what_zonebloom_wrote(flat_lake):
    zb.build_index(flat_lake.root, "user_id")
    keepsake = index_of(flat_lake.root) / "notes.txt"
    keepsake.write_text("mine")
    planned = zb.delete_index(flat_lake.root, dry_run=True)
    assert zb.open_index(flat_lake.root).version == 1
    done = zb.delete_index(flat_lake.root)
    assert (done.num_files, done.location) == (planned.num_files, str(index_of(flat_lake.root)))
    assert [path.name for path in index_of(flat_lake.root).rglob("*")] == ["notes.txt"]
    with pytest.raises(IndexNotFoundError, match="nothing to remove"):
        zb.delete_index(flat_lake.root)


def test_no_deletion_takes_what_a_data_set_has(tmp_path):
    """Its folders and files may have the names of an index's folders."""
    held = tmp_path / "lake" / "columns" / "day=1" / f"{uuid.uuid4()}.parquet"
    (tmp_path / "lake" / "inbox").mkdir(parents=True)
    held.parent.mkdir(parents=True)
    pq.write_table(pa.table({"k": [1]}), held)
    with pytest.raises(IndexNotFoundError, match="nothing to remove"):
        zb.delete_index(tmp_path / "lake")
    assert held.exists()
    assert (tmp_path / "lake" / "inbox").exists()


def test_what_a_killed_first_build_left_can_be_deleted(flat_lake, run):
    zb.build_index(flat_lake.root, "user_id")
    shutil.rmtree(index_of(flat_lake.root) / "versions")
    code, out, _ = run("delete", flat_lake.root, "--yes")
    assert (code, out.startswith("removed ")) == (0, True)
    assert not index_of(flat_lake.root).exists()
    for command in ("delete", "vacuum"):
        code, _, err = run(command, flat_lake.root)
        assert (code, err.endswith("or in it: nothing to remove\n")) == (2, True)


def test_a_table_without_one_of_the_indexed_columns_has_a_status_and_a_report(tmp_path):
    rows = pa.table({"k": ["a", "b"], "gone": [1, 2]})
    write_deltalake(tmp_path / "table", rows)
    zb.build_index(tmp_path / "table", ["gone", "k"])
    write_deltalake(tmp_path / "table", rows.select(["k"]), mode="overwrite", schema_mode="overwrite")
    index = zb.open_index(tmp_path / "table")
    assert (index.status().is_fresh, index.status().num_rows) == (False, 2)
    index.refresh()
    assert index.status().is_fresh
    assert [column.name for column in index.status().columns] == ["gone", "k"]
    index.report(tmp_path / "report.html", where="k = 'a'")
