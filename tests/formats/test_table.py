"""What holds for the data sets of each format: a search gives what the format's own library reads, whatever it did.

Oracles: pyarrow 26 for folders; deltalake 1.6 (`DeltaTable.scan`), pyiceberg 0.12 (`Table.scan().to_arrow()`) and
pylance 14.0.2 (`scanner(use_scalar_index=False)`). What one format alone has is in the test of its name.
"""

from __future__ import annotations

import datetime as dt
import pickle
import shutil
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.conftest import index_of
from tests.tables import ROWS_PER_ZONE, Delta, Events, Folder, Iceberg, Lance, assert_agrees, build, rows, user
from zonebloom.errors import DataFileError, InvalidArgumentError, StaleIndexError, StorageError
from zonebloom.formats import delta, open_dataset
from zonebloom.formats.iceberg import snapshot as iceberg_snapshots
from zonebloom.ground.reasons import ReasonCode

ALL = "id IS NOT NULL"


def of(*formats: type[Events], **attributes: object) -> pytest.MarkDecorator:
    """Run a test with tables of these formats."""
    return pytest.mark.parametrize("events", formats, ids=lambda case: case.__name__.lower(), indirect=True)


tables = of(Delta, Iceberg, Lance)


def of_three_files(table: Events) -> Iterator[Events]:
    for start in (0, 40, 80):
        table.append(rows(start, start + 40))
    yield table
    table.close()


@pytest.fixture(params=[Folder, Delta, Iceberg, Lance], ids=lambda case: case.__name__.lower())
def events(request, tmp_path) -> Iterator[Events]:
    """A table of three files, of 40 rows each."""
    yield from of_three_files(request.param(tmp_path))


@pytest.fixture
def index(events, tmp_path) -> zb.Index:
    return build(events.source, index=tmp_path / "index")


def ids(index: zb.Index, where: str = ALL) -> list[int]:
    return index.to_table(where)["id"].to_pylist()


# --- what is in the files ---------------------------------------------------------------------------------------------


def test_one_zone_is_read(events, index):
    result = index.search(user(50))
    assert (result.num_zones_kept, result.num_zones) == (1, 15)
    assert ids(index, user(50)) == [50]
    assert_agrees(index, events.rows())
    assert index.verify(sample=1.0).is_sound


def test_appended_files_are_read_whole_until_a_refresh_builds_only_them(events, index):
    events.append(rows(120, 140))
    assert ReasonCode.FILE_NOT_INDEXED in {reason.code for reason in index.search(user(130)).reasons}
    assert_agrees(index, events.rows())
    for ask in (index.search, index.scan):
        with pytest.raises(StaleIndexError, match=r"got 1 new or changed, such as .*; refresh"):
            ask(user(130), strict=True)
    done = index.refresh()
    assert (done.num_files_added, done.num_files_kept, done.num_files_dropped) == (1, 3, 0)
    assert index.search(user(130), strict=True).num_rows_kept <= ROWS_PER_ZONE
    assert index.refresh().version == done.version


def test_rows_that_were_deleted_or_overwritten_do_not_come_back(events, index):
    events.delete(20, 90)
    assert ids(index, user(50)) == []
    assert_agrees(index, events.rows())
    assert index.refresh().num_files_dropped == 3
    assert_agrees(index, events.rows())
    events.overwrite(rows(500, 520))
    assert_agrees(index, events.rows())
    if not isinstance(events, Folder):
        events.undo()
        assert_agrees(index, events.rows())
    index.refresh()
    assert index.view().num_unknown == 0
    assert_agrees(index, events.rows())


@of(Folder, Delta, Lance)
def test_a_table_that_is_made_anew_with_as_many_versions_is_noticed(events, index):
    assert ids(index, user(1)) == [1]
    events.forget()
    for start in (1000, 2000, 3000):
        events.append(rows(start, start + 40))
    assert_agrees(index, events.rows())


@tables
@pytest.mark.parametrize("is_lost", [True, False])
def test_a_data_file_that_is_lost_or_differs_from_the_log_is_an_error_and_not_an_answer(events, index, is_lost):
    if is_lost:
        events.files()[0].unlink()
    else:
        pq.write_table(rows(0, 41), events.files()[0])
    with pytest.raises(DataFileError):
        index.to_table(ALL)


# --- partitions by the log --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "integer", "odd"), [(Delta, pa.int16(), "."), (Iceberg, pa.int32(), "")])
def test_partition_values_are_those_of_the_log_and_prune_files(kind, integer, odd, tmp_path):
    texts, numbers = ["a b", "x/y=é%", "c:d", "%20", odd, None, "'", "day=3"], range(8)
    hours = [1_767_225_600 + 3600 * number for number in numbers]
    columns = {
        "p": pa.array(texts),
        "d": [dt.date(2026, 1, 1 + number) for number in numbers],
        "n": pa.array([None, *numbers[1:]], integer),
        "dec": pa.array([Decimal(number) / 4 for number in numbers], pa.decimal128(9, 2)),
        "ts": pa.array(hours, pa.timestamp("s", "UTC")).cast(pa.timestamp("us", "UTC")),
        "local": pa.array(hours, pa.timestamp("s")).cast(pa.timestamp("us")),
    }
    table, data = kind(tmp_path), rows(0, 8, **columns)
    table.create(data.schema, list(columns))
    table.append(data)
    index = build(table.source, index=tmp_path / "index")
    assert_agrees(index, table.rows())
    for text in filter(None, texts):
        result = index.search(zb.col("p") == text)
        assert (result.kept.files, str(result.kind)) == (1, "exact")
        assert index.to_table(zb.col("p") == text)["p"].to_pylist() == [text]
    assert ids(index, "p IS NULL") == [5]
    assert index.search("d = DATE '2026-01-03'").kept.files == 1
    assert index.search("n > 5").kept.files == 2
    assert ids(index, "dec = 0.25 AND ts = TIMESTAMPTZ '2026-01-01 01:00:00Z'") == [1]
    assert ids(index, "local = TIMESTAMP '2026-01-01 03:00:00'") == [3]
    table.close()


# --- rows that are deleted without rewriting their file ---------------------------------------------------------------

GONE = [0, 5, *range(8, 16), 39]
WAYS = [*((Delta, way) for way in "iup"), (Iceberg, "parquet"), (Iceberg, "puffin"), (Lance, ""), (Lance, "ids")]


@pytest.fixture(params=WAYS, ids=lambda case: f"{case[0].__name__.lower()} {case[1]}")
def hiding(request, tmp_path) -> Iterator[Events]:
    """A table as `events`, by each way to say which rows are deleted."""
    kind, how = request.param
    table = kind(tmp_path)
    table.hides_by, table.has_stable_ids = how, how == "ids"
    yield from of_three_files(table)


def test_deleted_rows_are_left_out_and_their_file_stays_covered(hiding, tmp_path):
    index = build(hiding.source, index=tmp_path / "index")
    hiding.hide(GONE)
    assert (index.view().num_unknown, index.view().files.num_deleted) == (0, 0)
    result = index.search(user(5))
    assert (result.num_zones_kept, result.reasons, ids(index, user(5))) == (1, (), [])
    assert ids(index, user(6)) == [6]
    assert_agrees(index, hiding.rows())
    assert set(ids(index)) == set(range(120)) - set(GONE)
    assert not {*index.scan("id >= 0", limit=3).read_all()["id"].to_pylist()} & {*GONE}
    keys = [user(5)[5:-1], user(6)[5:-1]]
    assert index.exists("u", keys).to_pylist() == [True, True]
    assert index.exists("u", keys, exact=True).to_pylist() == [False, True]
    assert index.verify(sample=1.0).is_sound
    done = index.refresh()
    assert (done.num_files_kept, done.num_files_added) == (3, 0)
    hiding.append(rows(120, 130))
    assert_agrees(index, hiding.rows())
    assert_agrees(build(hiding.source, index=tmp_path / "later"), hiding.rows())


@tables
def test_a_scan_reads_one_version_whatever_is_committed_meanwhile(events, index):
    for change in (lambda: events.hide(GONE), lambda: events.delete(20, 120)):
        before, reader = events.rows().num_rows, index.scan(ALL)
        change()
        assert reader.read_all().num_rows == before > events.rows().num_rows
        assert_agrees(index, events.rows())


@of(Delta, Iceberg)
def test_lost_deletes_are_an_error_and_not_an_answer(events, index):
    events.hide(GONE)
    for path in events.hidden():
        path.unlink()
    with pytest.raises(DataFileError, match=r"deletion vectors|delete file"):
        index.to_table(ALL)


# --- versions, and where things are -----------------------------------------------------------------------------------


@tables
def test_the_version_is_recorded_and_shown(events, index):
    first = events.version()
    events.append(rows(120, 130))
    explanation = index.explain(user(1))
    assert explanation.to_dict()[events.version_key] == events.version()
    assert f"{events.version_key.replace('_', ' ')} {events.version()}" in " ".join(str(explanation).split())
    assert (index.status().table[events.version_key], index.dataset_kind) == (first, events.kind)
    index.refresh()
    assert index.status().table[events.version_key] == events.version()


@tables
def test_a_table_that_its_library_loaded_stands_for_the_version_that_is_loaded(events, tmp_path):
    loaded, first = events.loaded(), events.version()
    index = build(loaded, index=tmp_path / "index")
    pinned = open_dataset(loaded).pin()
    events.append(rows(120, 130))
    assert index.status().table[events.version_key] == first
    assert len(ids(index)) == 120
    assert_agrees(zb.open_index(tmp_path / "index", dataset=events.source), events.rows())
    assert len(zb.open_index(tmp_path / "index", dataset=events.loaded(first)).to_table(ALL)) == 120
    events.reload(loaded)
    assert (len(pinned.list()), len(ids(index))) == (3, 130)
    assert index.refresh().num_files_added == 1
    assert index.search(user(125)).num_rows_kept <= ROWS_PER_ZONE


READS = {"delta": (delta, "_files"), "iceberg": (iceberg_snapshots, "planned")}


@of(Delta, Iceberg)
def test_a_loaded_table_that_is_updated_while_it_is_read_is_read_again(events, index, meanwhile):
    loaded = events.loaded()
    events.append(rows(900, 901))
    meanwhile(*READS[events.kind], lambda: events.reload(loaded), is_after=True)
    opened = zb.open_index(index.location, dataset=loaded)
    assert [opened.to_table(user(900)).num_rows for _ in range(2)] == [int(events.kind == "delta"), 1]


@tables
def test_a_pinned_table_can_be_sent_to_another_process(events):
    events.hide([4])
    pinned = open_dataset(events.source).pin()
    other = pickle.loads(pickle.dumps(replace(pinned, deletes=None)))  # the sender leaves deleted rows out
    assert other == pinned
    for path in other.list():
        with other.open(path) as file:
            assert file.num_rows == 40


@of(Folder, Delta, Lance)
def test_a_table_can_move_with_the_index_beside_it(events, tmp_path):
    before = events.rows()
    assert build(events.source).root == index_of(events.root)
    moved = tmp_path / "elsewhere" / f"other {events.root.name}"
    moved.parent.mkdir()
    shutil.move(events.root, moved)
    shutil.move(index_of(events.root), index_of(moved))
    for place in (moved, index_of(moved)):
        index = zb.open_index(place)
        assert index.data.location == str(moved)
        assert index.search(user(7)).num_zones_kept == 1
        assert_agrees(index, before)


@of(Delta, Lance)
def test_an_index_among_the_files_of_the_table_is_refused(events):
    for place in events.inside:
        with pytest.raises(InvalidArgumentError, match="in a folder of its own"):
            build(events.source, index=events.root / place)


@tables
def test_a_part_of_a_table_and_a_folder_of_tables_are_refused(events, tmp_path):
    file = events.files()[0]
    for part in (file, [file], file.parent) if file.parent != events.root else (file, [file]):
        with pytest.raises(InvalidArgumentError, match="must be a whole table"):
            build(part, index=tmp_path / "_index")
    with pytest.raises(DataFileError, match="as what it is, a table"):
        build(events.root.parent, index=tmp_path / "_index")


# --- doors ------------------------------------------------------------------------------------------------------------


@of(Delta, Lance)
def test_the_command_reads_tables(events, run):
    assert run("build", events.source, "--column", "u", "--rows-per-zone", 8).code == 0
    version = events.version()
    events.delete(7, 8)
    told = " ".join(run("status", events.source).out.split())  # a long path wraps
    assert f"{events.kind}, table version {version}" in told
    assert "user" not in run("scan", events.source, "--where", user(7)).out
    assert "user" in run("scan", events.source, "--where", user(50)).out


DELETES = (".bin", "deletes.parquet")


@pytest.mark.parametrize(
    ("kind", "part"),
    [
        (Folder, ".parquet"),
        *((Delta, part) for part in ("_delta_log/", ".parquet", ".bin")),
        *((Iceberg, part) for part in ("/data/", "deletes.parquet")),
        (Lance, ".lance"),
    ],
)
def test_an_outage_is_told_as_one_and_changes_nothing(kind, part, s3, tmp_path, monkeypatch):
    monkeypatch.setitem(delta._RETRIES, "max_retries", "1")  # deltalake waits longer before each
    remote, options = kind(tmp_path, s3), {"storage_options": s3.options}
    remote.append(rows(0, 40))
    index = build(remote.source, index=tmp_path / "index", **options)
    if part in DELETES:
        remote.hide([4])
    remote.append(rows(40, 50))
    calls = {
        "scan": lambda: index.to_table(ALL),
        "exists": lambda: index.exists("u", [user(45)[5:-1]], exact=True),
        "refresh": index.refresh,
        "full refresh": lambda: index.refresh("full"),
        "verify": lambda: index.verify(sample=1.0),
        "build": lambda: build(remote.source, index=tmp_path / "other", **options),
    }

    def fault(method: str, path: str, _query: str) -> str | None:
        return "deny" if method == "GET" and part in path else None

    for name in ("scan", "exists") if part in DELETES else calls:
        message = "access was refused|cannot read (data|delete) file"
        with s3.server.misbehaving(fault), pytest.raises(StorageError, match=message):
            calls[name]()
    assert index.version == 1
    assert not list(tmp_path.glob("other/versions/*"))
    assert (ids(index, user(5)), ids(index, user(45))) == ([5], [45])
    remote.close()


@pytest.mark.parametrize("kind", [Folder, Delta, Iceberg, Lance])
def test_a_table_in_an_object_store(kind, s3, tmp_path):
    remote, place = kind(tmp_path, s3), {"index": tmp_path / "index", "storage_options": s3.options}
    for start in (0, 40):
        remote.append(rows(start, start + 40))
    index = build(remote.source, **place)
    assert index.search(user(50)).num_zones_kept == 1
    assert ids(index, user(50)) == [50]
    remote.delete(0, 45)
    remote.append(rows(80, 90))
    assert_agrees(index, remote.rows())
    assert index.refresh().num_files_added == 2
    assert_agrees(index, remote.rows())
    build(remote.source, **place | {"index": s3.url("index")})
    assert_agrees(zb.open_index(s3.url("index"), dataset=remote.source, storage_options=s3.options), remote.rows())
    remote.close()
