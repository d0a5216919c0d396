"""Rows erased from Parquet files in folders, on a disk and in an object store.

Oracles: the rows before, filtered by pyarrow; the bytes on the disk, searched for the values.
"""

from __future__ import annotations

import json
import os
import stat
import struct
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from fcntl import LOCK_EX, LOCK_UN, flock
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.lives import hundreds, lake_of, rows_of, write
from zonebloom.erasing import files
from zonebloom.errors import (
    ConcurrentCommitError,
    DataFileError,
    IndexNotFoundError,
    InvalidArgumentError,
    PredicateError,
    StorageError,
)
from zonebloom.indexing import optimize
from zonebloom.stores import local
from zonebloom.stores.local import LocalStore


def interrupt() -> None:
    raise KeyboardInterrupt


def built(root, **options) -> zb.Index:
    return zb.build_index(root, "user_id", rows_per_zone=256, **options)


def indexed(folder, *files) -> Path:
    """A lake of files of these keys, and its index."""
    root = lake_of(folder, *files)
    zb.build_index(root, "k", rows_per_zone=10)
    return root


def chosen(lake) -> list[str]:
    """Ids of users in several files."""
    return lake.table["user_id"].to_pylist()[:: lake.table.num_rows // 5]


def without(lake, gone) -> pa.Table:
    return lake.table.filter(pc.invert(pc.is_in(lake.table["user_id"], pa.array(gone))))


def files_below(folder) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def holders_of(folder, values) -> list[Path]:
    """Files whose bytes have one of the values; the files that are searched have no dictionary and no compression."""
    return [path for path, data in files_below(folder).items() if any(value.encode() in data for value in values)]


@pytest.mark.parametrize("lake_name", ["flat_lake", "hive_lake", "single_file"])
def test_rows_are_erased_and_all_others_stay(request, lake_name, tmp_path):
    lake = request.getfixturevalue(lake_name)
    built(lake.root)
    gone = chosen(lake)
    record = tmp_path / "erased.json"
    done = zb.erase(lake.root, "user_id", [*gone, gone[0], "nobody"], record=record)
    assert (done.num_rows_erased, done.num_rows_left, done.num_values) == (len(gone), 0, len(gone) + 1)
    expected, partitioning = without(lake, gone), "hive" if "day" in lake.table.column_names else None
    after = pads.dataset(lake.root, partitioning=partitioning).to_table(columns=expected.column_names)
    assert after.drop(["amount"]).equals(expected.drop(["amount"]))
    assert [np.asarray(t["amount"]).tobytes() for t in (after,)] == [np.asarray(expected["amount"]).tobytes()]
    assert "tag" not in str(done), "tags are for the record"
    assert str(done).endswith("not seen: backups, and copies elsewhere")
    index = zb.open_index(lake.root)
    filters = index.zone_table("user_id").to_arrow()["bloom_filter_data"].to_pylist()
    assert sum(zb.Sbbf.from_bytes(data).check(pa.array([gone[0]]))[0].as_py() for data in filters) <= 1, "by chance"
    assert index.status().is_fresh
    assert index.verify(sample=1.0).is_sound
    assert not any(index.exists("user_id", gone, exact=True).to_pylist())
    assert [version.number for version in index.versions()] == [done.index_versions[1]]
    document = json.loads(record.read_text())
    assert document == done.to_dict()
    assert not any(value in record.read_text() for value in gone)
    assert all(file.bytes_after == (lake.root / file.path).stat().st_size for file in done.files)
    assert not [path for path in files_below(tmp_path) if ".part" in path or "staged" in path]


def test_the_command_erases_and_says_so_and_a_dry_run_changes_nothing(flat_lake, tmp_path, run):
    built(flat_lake.root)
    gone = chosen(flat_lake)
    (tmp_path / "gone.txt").write_text("\n".join(gone))
    options, before = ("--column", "user_id", "--values", tmp_path / "gone.txt"), files_below(tmp_path)
    dry = run("erase", flat_lake.root, *options, "--dry-run", "--record", tmp_path / "erased.json")
    assert (dry.code, dry.out.splitlines()[0]) == (0, "6 rows of 6 values would be erased from 3 files")
    assert files_below(tmp_path) == before
    done = run("erase", flat_lake.root, *options, "--record", tmp_path / "erased.json", "-f", "json")
    assert done.code == 0
    assert done.document["num_rows_erased"] == 6
    assert done.document["command"].startswith("zonebloom erase ")
    again = run("erase", flat_lake.root, *options, "--record", tmp_path / "erased.json")
    assert again.code == 2
    assert "erased.json exists already; name another file" in again.err


def test_what_describes_the_old_file_goes_with_it(hive_lake):
    """Spark checks a file by `.name.crc`; Dask reads it by offsets in `_metadata`. What others need, stays."""
    built(hive_lake.root)
    touched, other = hive_lake.root / "day=1", hive_lake.root / "day=2"
    for path in (touched / ".part-0.parquet.crc", other / ".part-2.parquet.crc", hive_lake.root / "_metadata"):
        path.write_bytes(b"old")
    (hive_lake.root / "_SUCCESS").touch()
    done = zb.erase(hive_lake.root, "user_id", hive_lake.table["user_id"].to_pylist()[:1])
    assert set(done.removed) == {"_metadata", "day=1/.part-0.parquet.crc"}
    left = {name for name in files_below(hive_lake.root) if not name.endswith(".parquet")}
    assert left == {"_SUCCESS", "day=2/.part-2.parquet.crc"}


def test_no_byte_of_an_erased_value_is_left_on_the_disk(tmp_path):
    root = tmp_path / "lake"
    root.mkdir()
    for number in range(3):
        table = pa.table({"user_id": [f"user-{number}-{row:04}" for row in range(2000)], "x": range(2000)})
        pq.write_table(table, root / f"{number}.parquet", row_group_size=500, use_dictionary=False, compression="none")
    built(root)
    gone = ["user-0-0000", "user-0-1999", "user-2-0777"]
    assert len(holders_of(tmp_path, gone)) == 2
    zb.erase(root, "user_id", gone, record=tmp_path / "r.json")
    assert holders_of(tmp_path, gone) == []
    assert len(holders_of(tmp_path, ["user-1-0000"])) == 1
    assert zb.open_index(root).status().num_gone_zones == 0, "their filters know the values"


def test_files_that_the_index_has_not_seen_are_erased_from_too(tmp_path):
    root = indexed(tmp_path, *hundreds(2))
    write(root / "f1.parquet", [7, 1000])
    write(root / "new.parquet", [7, 7, 2000])
    done = zb.erase(root, "k", [7])
    assert (done.num_rows_erased, len(done.files)) == (4, 3)
    assert rows_of(root) == [*range(7), *range(8, 100), 1000, 2000]


def test_a_file_that_loses_all_rows_stays_without_rows(tmp_path):
    root = indexed(tmp_path, [7, 7], [8])
    assert zb.erase(zb.open_index(root), "k", [7]).num_rows_erased == 2
    assert pq.read_table(root / "f0.parquet").schema.names == ["k", "s"]
    assert rows_of(root) == [8]
    assert pads.dataset(root).count_rows() == 1


def test_only_who_may_read_a_file_may_read_it_during_and_after_an_erasure(tmp_path, monkeypatch):
    """Another user may read the file, by a list of access rights as the kernel has it; the group may not."""
    path, seen = tmp_path / "lake" / "f.parquet", []
    path.parent.mkdir()
    pq.write_table(pa.table({"k": [1, 2]}), path)
    zb.build_index(path.parent, "k")
    entries = ((1, 6, -1), (2, 4, 12_345), (4, 0, -1), (16, 4, -1), (32, 0, -1))  # owner, user, group, mask, others
    rights = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    os.setxattr(path, "system.posix_acl_access", rights)
    write = files.write_without_rows

    def watched(source, rows, staged):
        seen.append(stat.S_IMODE(Path(staged.name).stat().st_mode))
        return write(source, rows, staged)

    monkeypatch.setattr(files, "write_without_rows", watched)
    assert zb.erase(path.parent, "k", [1]).num_rows_erased == 1
    assert (seen, os.getxattr(path, "system.posix_acl_access")) == ([0o600], rights)


def test_another_name_of_an_old_file_is_told(tmp_path):
    root = lake_of(tmp_path, [1, 7], [8])
    (tmp_path / "backup.parquet").hardlink_to(root / "f0.parquet")
    pq.write_table(pa.table({"k": [7]}), root / "_hidden.parquet")
    zb.build_index(root, "k", rows_per_zone=10)
    held = zb.erase(root, "k", [7]).still_held
    assert len(held) == 2
    assert "f0.parquet" in held[0]
    assert "1 Parquet files" in held[1]


def test_what_cannot_be_erased_is_refused_before_any_change(flat_lake, tmp_path):
    with pytest.raises(IndexNotFoundError):
        zb.erase(flat_lake.root, "user_id", ["x"])
    built(flat_lake.root)
    (tmp_path / "old.json").write_text("{}")
    files = [flat_lake.root / name for name in flat_lake.files]
    for source, values, record, message in (
        (flat_lake.root, ["x", None], None, "must not be null"),
        (flat_lake.root, ["x"], tmp_path / "r.txt", "^record .* does not end in .json"),
        (flat_lake.root, ["x"], flat_lake.root / "r.json", "^record .* is in the data set"),
        (flat_lake.root, ["x"], tmp_path / "old.json", "exists already; name another file"),
        (flat_lake.root, ["x"], tmp_path / "no" / "r.json", "^record must be in a folder that exists, got .*/no/"),
        (files, ["x"], None, "got a list; of a list of files give the folder of its index"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            zb.erase(source, "user_id", values, record=record)


def test_a_file_that_cannot_be_rewritten_stays_as_it_was(tmp_path, monkeypatch):
    root = indexed(tmp_path, [1, 7], [7, 8])
    data = (root / "f1.parquet").read_bytes()
    whole = zb.open_index(root).view().files["f1.parquet"].fingerprint
    broken = data[:4] + bytes(20) + data[24:]  # in a page
    (root / "f1.parquet").write_bytes(broken)
    os.utime(root / "f1.parquet", ns=(whole.mtime_ns, whole.mtime_ns))
    with pytest.raises(DataFileError):
        zb.erase(root, "k", [7])
    assert (root / "f1.parquet").read_bytes() == broken
    assert not [path for path in root.iterdir() if path.name.startswith(".")]


def rewriting(monkeypatch, root, keys) -> None:
    """Have another writer put other keys into a file before it is replaced, at each turn the next of `keys`."""
    replace = LocalStore.replace

    def beaten(store, path, staged, expected):
        if keys:
            write(root / path, keys.pop(0), extra=1 + len(keys))
        return replace(store, path, staged, expected)

    monkeypatch.setattr(LocalStore, "replace", beaten)


def test_a_file_that_changes_before_it_is_replaced_is_not_overwritten(tmp_path, monkeypatch):
    """Another writer comes between find and replace: its rows stay, and those of the value go in the next pass."""
    root = indexed(tmp_path, [1, 7], [8])
    rewriting(monkeypatch, root, [[3, 7], [2, 7, 7]])
    done = zb.erase(root, "k", [7])
    assert (done.num_rows_erased, done.num_rows_left) == (2, 0)
    assert rows_of(root) == [2, 8]


def test_a_file_is_compared_and_replaced_while_no_other_erasure_replaces_it(tmp_path):
    """Another holds the lock of the old file and replaces it: the comparison waits, and sees the new one."""
    root, name = indexed(tmp_path, [1, 7]), "f0.parquet"
    store, rows = LocalStore(str(root)), [pa.table({"k": keys}) for keys in ([1], [7])]
    listed = store.stats([name])[name]
    with ThreadPoolExecutor() as threads, store.staging(name) as staged, (root / name).open() as old:
        flock(old, LOCK_EX)
        pq.write_table(rows[0], staged)
        ours = threads.submit(store.replace, name, staged, listed)
        with pytest.raises(TimeoutError):
            ours.result(timeout=0.2)
        pq.write_table(rows[1], root / "other")
        (root / "other").replace(root / name)
        flock(old, LOCK_UN)
        assert not ours.result()
    assert rows_of(root) == [7]


@pytest.mark.parametrize("num_changes", [1, 3, 9])
def test_files_that_change_while_they_are_searched_are_searched_again(tmp_path, monkeypatch, num_changes):
    """Such as by another erasure at once. At each search of four the error says to call again."""
    root, changes = indexed(tmp_path, *[[1, 7]] * 9), list(range(num_changes))
    locate = files.locate

    def beaten(*given, **options):
        if changes:
            write(root / f"f{changes.pop()}.parquet", [3, 7, 7], extra=1)
        return locate(*given, **options)

    monkeypatch.setattr(files, "locate", beaten)
    if num_changes < files.PASSES:
        assert zb.erase(root, "k", [7]).num_rows_erased == 9 + num_changes
    else:
        with pytest.raises(DataFileError, match=r"must not change during an erasure, .*; call again"):
            zb.erase(root, "k", [7])


@pytest.mark.parametrize("step", ["vacuum", "optimize"])
def test_an_index_that_another_erasure_changes_meanwhile_is_told(tmp_path, meanwhile, step):
    """The files are done by then; the next call ends the work, and counts the rows once."""
    root, asked = lake_of(tmp_path, [1, 7], [8]), {"record": tmp_path / "r.json"}
    zb.build_index(root, "k", rows_per_zone=10, workers=1)  # two would perhaps make two segments: one would just go
    if step == "vacuum":
        meanwhile(local, "_place_new", lambda: zb.open_index(root).vacuum(older_than=timedelta(0)))
    else:
        meanwhile(optimize, "optimize_column", lambda: zb.open_index(root).optimize())
    with pytest.raises(ConcurrentCommitError, match=r"no other erasure .*, got .*; call again, with the same record"):
        zb.erase(root, "k", [7], **asked)
    assert zb.erase(root, "k", [7], **asked).num_rows_erased == 1


def test_a_file_that_goes_before_it_is_replaced_is_passed_by(tmp_path, meanwhile):
    root = indexed(tmp_path, [1, 7], [7, 8])
    meanwhile(LocalStore, "retains_old", (root / "f0.parquet").unlink)
    assert [file.path for file in zb.erase(root, "k", [7]).files] == ["f1.parquet"]
    assert rows_of(root) == [8]


def test_rows_that_come_back_for_ever_are_left_and_told(tmp_path, monkeypatch, run):
    root = indexed(tmp_path, [1, 7], [8])
    rewriting(monkeypatch, root, [[7]] * 100)
    done = run("erase", root, "-c", "k", "--values", "-", stdin=b"7\n")
    assert (done.code, done.out.splitlines()[0]) == (1, "0 rows of 1 value erased from 0 files; 1 row left")


def test_a_link_stays_a_link_its_checksum_goes_and_summaries_elsewhere_are_told(tmp_path):
    """`_metadata` above the data set, and where a link leads to, may be of other files too."""
    root, elsewhere = lake_of(tmp_path, [1, 7], [8]), tmp_path / "elsewhere"
    elsewhere.mkdir()
    (root / "f0.parquet").rename(elsewhere / "f0.parquet")
    (root / "f0.parquet").symlink_to(elsewhere / "f0.parquet")
    gone = [elsewhere / ".f0.parquet.crc", root / ".f0.parquet.crc", root / "_metadata", root / "._metadata.crc"]
    told = [tmp_path / "_metadata", elsewhere / "_metadata"]
    for path in (*gone, *told):
        path.write_bytes(b"of the old file")
    (elsewhere / "f0.parquet").chmod(0o640)
    zb.build_index(root, "k", rows_per_zone=10)
    done = zb.erase(root, "k", [7])
    assert (root / "f0.parquet").is_symlink()
    assert pq.read_table(elsewhere / "f0.parquet")["k"].to_pylist() == [1]
    assert (elsewhere / "f0.parquet").stat().st_mode & 0o777 == 0o640
    assert sorted(done.removed) == sorted([str(gone[0]), *(path.name for path in gone[1:])])
    assert [path for path in (*gone, *told) if path.exists()] == told
    assert sorted(holder.partition(": ")[0] for holder in done.still_held) == sorted(map(str, told))


def test_keys_that_hudi_put_into_metadata_are_told(tmp_path):
    root = lake_of(tmp_path, [8])
    metadata = {"hoodie_min_record_key": "1", "hoodie_max_record_key": "7", "org.apache.hudi.bloomfilter": "AA=="}
    table = pa.table({"k": [1, 7]}).replace_schema_metadata({**metadata, "mine": "x"})
    pq.write_table(table, root / "hudi.parquet")
    zb.build_index(root, "k", rows_per_zone=10)
    held = zb.erase(root, "k", [7]).still_held
    assert len(held) == len(metadata)
    assert all(any(f"hudi.parquet: {key} in" in holder for holder in held) for key in metadata)
    assert pq.read_schema(root / "hudi.parquet").metadata == table.schema.metadata


def test_rows_are_erased_from_a_file_with_the_longest_name(tmp_path):
    """Its checksum would have a name that no disk has."""
    root = lake_of(tmp_path, [8], [1, 7])
    name = "x" * (255 - len(".parquet")) + ".parquet"
    (root / "f1.parquet").rename(root / name)
    zb.build_index(root, "k", rows_per_zone=10)
    assert [file.path for file in zb.erase(root, "k", [7]).files] == [name]
    assert rows_of(root) == [8, 1]


def test_an_integer_of_any_length_is_in_no_row(tmp_path):
    """Python prints no integer of more than 4300 digits."""
    root = lake_of(tmp_path, [1, 7])
    zb.build_index(root, "k", rows_per_zone=10)
    assert zb.erase(root, "k", [10**5000, 1]).num_rows_erased == 1


def test_a_request_that_is_refused_leaves_its_record_free(tmp_path):
    """A lone surrogate is no text, so no row has it; the next request may have the same record."""
    root, record = lake_of(tmp_path, [1, 7]), tmp_path / "r.json"
    zb.build_index(root, "s", rows_per_zone=10)
    before = files_below(tmp_path)
    with pytest.raises(PredicateError, match="column s holds string"):
        zb.erase(root, "s", ["text 7", "\ud800"], record=record)
    assert files_below(tmp_path) == before
    assert zb.erase(root, "s", ["text 7"], record=record).num_rows_erased == 1


@pytest.mark.parametrize("part", ["5", "{}", '{"request": 5}', '{"request": {}}', "x"])
def test_a_file_that_is_no_journal_is_told(tmp_path, part):
    root = indexed(tmp_path, [1, 7])
    (tmp_path / "r.json.part").write_text(f"{part}\n")
    with pytest.raises(StorageError, match=r"cannot read .*r\.json\.part: .*; remove it to begin anew"):
        zb.erase(root, "k", [7], record=tmp_path / "r.json")


def test_a_second_call_with_the_record_of_one_that_runs_is_refused(tmp_path, meanwhile):
    """It would count rows of the same steps; a call that failed lets the next one go on."""
    root, asked = indexed(tmp_path, [1, 7]), {"record": tmp_path / "r.json"}

    def again():
        with pytest.raises(ConcurrentCommitError, match=r"r\.json\.part must be written by one call at a time"):
            zb.erase(root, "k", [7], **asked)
        raise KeyboardInterrupt

    meanwhile(files, "_note_replaced", again)
    with pytest.raises(KeyboardInterrupt):
        zb.erase(root, "k", [7], **asked)
    assert zb.erase(root, "k", [7], **asked).num_rows_erased == 1


def test_a_record_names_the_file_and_its_journal_goes_on_for_this_file_alone(tmp_path, meanwhile):
    root, record = lake_of(tmp_path, [1, 7], [7, 8]), tmp_path / "r.json"
    first, second = (root / f"f{number}.parquet" for number in range(2))
    both = zb.build_index([first, second], "k", index=tmp_path / "both")
    for file in (first, second):
        zb.build_index(file, "k")
    meanwhile(files, "_note_replaced", interrupt, is_after=True)
    with pytest.raises(KeyboardInterrupt):
        zb.erase(first, "k", [7], record=record)
    for other in (second, both):
        with pytest.raises(InvalidArgumentError, match="must be of the same erasure to go on, got another dataset"):
            zb.erase(other, "k", [7], record=record)
    assert zb.erase(first, "k", [7], record=record).dataset == str(first)
    assert zb.erase(both, "k", [7]).dataset == f"{first}, {second}"


def test_values_with_line_ends_are_not_taken_for_others(tmp_path, meanwhile):
    """The digest of a request is of its values, one a line."""
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"k": ["a\nb", "a", "b"]}), tmp_path / "lake" / "f.parquet")
    zb.build_index(tmp_path / "lake", "k")
    meanwhile(files, "_note_replaced", interrupt)
    with pytest.raises(KeyboardInterrupt):
        zb.erase(tmp_path / "lake", "k", ["a\nb"], record=tmp_path / "r.json")
    with pytest.raises(InvalidArgumentError, match="of the same erasure to go on, got another num_values"):
        zb.erase(tmp_path / "lake", "k", ["a", "b"], record=tmp_path / "r.json")


def test_an_erasure_goes_on_by_another_name_of_its_folder(tmp_path, meanwhile):
    """By a link, and after a move if a link has the old name."""
    (tmp_path / "old").mkdir()
    indexed(tmp_path / "old", [1, 7], [7, 8], [7, 9])
    (tmp_path / "link").symlink_to("old")
    record = tmp_path / "r.json"
    for name in ("old", "link"):
        meanwhile(files, "_note_replaced", interrupt, is_after=True)
        with pytest.raises(KeyboardInterrupt):
            zb.erase(tmp_path / name / "lake", "k", [7], record=record)
    (tmp_path / "old").rename(tmp_path / "new")
    told = (
        f"got another dataset; give the values and the path of the first call, {tmp_path}/old/lake; .* put a link there"
    )
    with pytest.raises(InvalidArgumentError, match=told):
        zb.erase(tmp_path / "new" / "lake", "k", [7], record=record)
    (tmp_path / "old").symlink_to("new")
    done = zb.erase(tmp_path / "new" / "lake", "k", [7], record=record)
    assert (done.num_rows_erased, done.num_rows_left, done.dataset) == (3, 0, f"{tmp_path}/old/lake")


def test_rows_are_not_erased_by_the_index_of_another_data_set(tmp_path):
    """Its refresh would make it an index of this one."""
    (tmp_path / "other").mkdir()
    root, other = indexed(tmp_path, [1, 7]), indexed(tmp_path / "other", [7])
    with pytest.raises(InvalidArgumentError, match=f"index must be that of {root}, got the one at .*, of {other}"):
        zb.erase(root, "k", [7], index=tmp_path / "other" / "_lake.zonebloom")
    some = zb.open_index(root, dataset=[next(root.glob("*.parquet"))])
    with pytest.raises(InvalidArgumentError, match=f"index must be that of {root}/.*, got the one at .*, of {root}"):
        zb.erase(some, "k", [7])
    assert rows_of(root) == [1, 7]


def test_a_folder_whose_name_is_not_utf_8_has_a_record_and_a_report(tmp_path):
    root = indexed(tmp_path, [1, 7]).rename(tmp_path / os.fsdecode(b"r\xff"))
    index = zb.build_index(root, "k")
    index.report(tmp_path / "r.html")
    assert "r\\udcff" in (tmp_path / "r.html").read_text("utf-8")
    assert zb.erase(root, "k", [7], record=tmp_path / "r.json").num_rows_erased == 1
    assert json.loads((tmp_path / "r.json").read_text("utf-8"))["dataset"] == str(root)


def test_a_record_whose_journal_can_be_written_can_be_written_too(tmp_path):
    root = indexed(tmp_path, [1, 7])
    longest = "r" * (255 - len(".json.part"))
    with pytest.raises(StorageError, match="File name too long"):
        zb.erase(root, "k", [7], record=tmp_path / f"{longest}r.json")
    assert rows_of(root) == [1, 7]
    assert zb.erase(root, "k", [7], record=tmp_path / f"{longest}.json").num_rows_left == 0
    assert (tmp_path / f"{longest}.json").exists()


def test_moments_that_python_does_not_have_are_erased(tmp_path):
    """Past the year 9999, and spans of more than a billion days."""
    for number, unit in enumerate((pa.timestamp("us"), pa.duration("ms"), pa.time64("ns"))):
        root, ticks = tmp_path / str(number), [1, 400_000_000_000_000_000]
        root.mkdir()
        values = pa.array(ticks).view(unit)
        pq.write_table(pa.table({"k": values}), root / "f.parquet")
        zb.build_index(root, "k", rows_per_zone=10)
        gone = values.slice(1, 1)
        assert zb.erase(root, "k", gone if number else list(gone)).num_rows_erased == 1
        assert pq.read_table(root / "f.parquet")["k"].combine_chunks().equals(values.slice(0, 1))


def test_the_record_has_no_secret_of_a_storage_option(tmp_path, run):
    root = indexed(tmp_path, [1, 7])
    (tmp_path / "gone.txt").write_text("7")
    options = ("--storage-option", "key=s3", "--storage-option", "aws_secret_access_key=s3cr3t")
    options += ("--storage-option=token=s3cr3t=",)
    erase = ("erase", root, "-c", "k", "--values", tmp_path / "gone.txt", "-f", "json", *options)
    twice = run(*erase, "--storage-option", "token=s3cr3t")
    assert (twice.code, "token must be given once" in twice.err, "s3cr3t" in twice.err) == (2, True, False)
    done = run(*erase)
    assert done.document["num_rows_erased"] == 1
    assert "aws_secret_access_key=..." in done.document["command"]
    assert "s3cr3t" not in done.document["command"]


def test_the_command_erases_no_rows_for_a_missing_value_of_csv(tmp_path, run):
    """pandas writes a missing value as `""`, or as nothing between commas: rows without an id were not asked."""
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table({"k": ["", "u1", "u2"]}), tmp_path / "lake" / "f.parquet")
    zb.build_index(tmp_path / "lake", "k", rows_per_zone=10)
    for text in ('k\n""\nu1\n', "k,name\n,x\nu1,y\n"):
        (tmp_path / "gone.csv").write_text(text)
        refused = run("erase", tmp_path / "lake", "-c", "k", "--values", tmp_path / "gone.csv")
        assert (refused.code, "must not be empty to be erased" in refused.err) == (2, True)
        assert pq.read_table(tmp_path / "lake" / "f.parquet")["k"].to_pylist() == ["", "u1", "u2"]
    (tmp_path / "gone.csv").write_text("k\nu1\n\n")
    assert run("erase", tmp_path / "lake", "-c", "k", "--values", tmp_path / "gone.csv").code == 0
    assert zb.erase(tmp_path / "lake", "k", [""]).num_rows_erased == 1
    assert pq.read_table(tmp_path / "lake" / "f.parquet")["k"].to_pylist() == ["u2"]


def test_rows_are_erased_from_a_list_of_files_by_its_index(tmp_path):
    root = lake_of(tmp_path, [1, 7], [7, 8], [7])
    zb.build_index([root / "f0.parquet", root / "f1.parquet"], "k", rows_per_zone=10, index=tmp_path / "index")
    assert zb.erase(tmp_path / "index", "k", [7]).num_rows_erased == 2
    assert rows_of(root) == [1, 8, 7]
