"""An index that somebody else made: its checksums are right, and what it says is impossible.

Each case is an error of ours or a reason why rows are read whole. Oracle: the rows as written. The fuzzer of
`tests/fuzz/index_files.py` looks for more.
"""

from __future__ import annotations

import base64
import json
import os
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.fuzz.index_files import Subject, repaired, sealed, segments_of, with_metadata
from zonebloom.errors import CorruptIndexError, UnsupportedFormatError
from zonebloom.storage.arrow_file import read_batches
from zonebloom.storage.manifest import read_version
from zonebloom.storage.segment import joined_runs, runs
from zonebloom.stores.local import LocalStore


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Subject:
    """A lake of the keys 0 to 599 in two files, with an index of every kind of file."""
    return Subject.built(tmp_path_factory.mktemp("hostile"))


@pytest.fixture
def subject(built) -> Subject:
    built.put(built.files)
    return built


def rewrite(subject: Subject, change: Callable[[dict[str, Any]], object]) -> None:
    """Have the current version say something else, with the right checksum."""
    body = subject.body()
    change(body)
    subject.put({**subject.files, subject.version: sealed(body)})


def assert_every_row_is_found(subject: Subject, *, is_damaged: bool = True) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        index = zb.open_index(subject.lake)
        for key in (0, 299, 300, 599):
            assert index.to_table(zb.Equals("k", key))["k"].to_pylist() == [key]
            assert index.to_table(zb.Equals("s", f"text {key}"))["k"].to_pylist() == [key]
        result = index.search(zb.Equals("k", 7))
    assert not is_damaged or {"SEGMENT_CORRUPT"} <= {reason.code for reason in result.reasons}


# --- version files ----------------------------------------------------------------------------------------------------


def put(*path: Any, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(body: dict[str, Any]) -> None:
        holder: Any = body
        for key in path[:-1]:
            holder = holder[key]
        holder[path[-1]] = value

    return change


DEEP: Any = json.loads("[" * 900 + "]" * 900)
SEGMENT = ("columns", 0, "segments", 0)
BAD_PARTS: dict[tuple[Any, ...], list[Any]] = {
    ("version",): [1.0, True],
    ("operation",): [5],
    ("committed_at",): ["yesterday", "2026-01-01T00:00:00"],
    ("schema",): ["zz", "ff" * 40, None],
    ("next_fragment_id",): [-1, 2**32],
    ("dropped",): [[[5, 3]], [[0, 2**63]], [[3, 5], [1, 2]], [[1]], "12"],
    ("columns",): [{}, DEEP],
    ("dataset",): [[]],
    ("dataset", "layout"): ["bolder", "file"],
    ("dataset", "root"): [5, "lake"],
    ("dataset", "files"): [["../part-0.parquet"], ["/etc/passwd"], ["a//b"]],
    ("dataset", "partition_columns"): [["nothing"], 7],
    ("dataset", "column_ids"): [[]],
    ("columns", 0, "name"): [None],
    ("columns", 1, "name"): ["k"],
    ("columns", 0, "arrow_type"): ["00"],
    ("columns", 0, "rows_per_zone"): [0],
    ("columns", 0, "fpp"): ["0.1", float("nan")],
    ("columns", 0, "sizing"): ["generous"],
    ("columns", 0, "unfit"): [[[0, 2**40]]],
    ("columns", 0, "unfinished"): [1],
    ("columns", 0, "kind"): ["galaxy"],
    (*SEGMENT, "fragments"): [[[0, 2**63]]],
    (*SEGMENT, "path"): ["../x.arrow", "/etc/passwd", "columns/../fragments/x", "versions/00000000000000000001.json"],
    (*SEGMENT, "num_zones"): [-1],
    (*SEGMENT, "spans"): [[]],
    (*SEGMENT, "spans", 0): [[2**64, "0" * 16], [-5, "0" * 16], [5, "0"]],
    ("fragments", 0, 0): ["../fragments.arrow", "fragments/../../part-0.parquet"],
    ("fragments", 0, 1): [None],
    ("fragments", 0): [["a"]],
}


@pytest.mark.parametrize(
    "part",
    [(*path, value) for path, values in BAD_PARTS.items() for value in values],
    ids=lambda part: "/".join(map(str, part))[:60],
)
def test_a_version_that_says_the_impossible_is_refused(subject, part):
    rewrite(subject, put(*part[:-1], value=part[-1]))
    number = int(subject.version[-25:-5])
    with pytest.raises(CorruptIndexError, match=rf"{subject.version} must be as it was written, got "):
        read_version(LocalStore(subject.index), number)
    assert_every_row_is_found(subject)


def test_an_error_says_where_the_version_is_wrong(subject):
    rewrite(subject, put("columns", 1, "segments", 0, "num_zones", value=-2))
    with pytest.raises(CorruptIndexError, match="columns: 1: segments: 0: num_zones: must be an integer from 0 to"):
        read_version(LocalStore(subject.index), int(subject.version[-25:-5]))


def test_a_data_set_of_an_unknown_kind_is_from_the_future(subject):
    rewrite(subject, put("dataset", value={"kind": "hudi"}))
    with pytest.raises(UnsupportedFormatError, match="upgrade"):
        zb.open_index(subject.lake)


def test_versions_past_what_a_number_holds_are_ignored(subject):
    (subject.index / "versions" / f"{10**20 - 1}.json").write_text("{}")
    assert_every_row_is_found(subject, is_damaged=False)


# --- paths ------------------------------------------------------------------------------------------------------------


def path_of(subject: Subject, kind: str) -> str:
    """The file of a kind that the current version uses."""
    named = {"version": subject.version, "fragments": subject.body()["fragments"][0][0]}
    return named.get(kind) or str(segments_of(subject.body(), kind)[0]["path"])


@pytest.mark.parametrize("kind", ["fragments", "zones", "slices", "locator", "version"])
def test_a_pipe_is_never_waited_for(subject, kind):
    """A read of a pipe without a writer never ends."""
    path = path_of(subject, kind)
    (subject.index / path).unlink()
    os.mkfifo(subject.index / path)
    assert_every_row_is_found(subject, is_damaged=kind not in ("locator", "version"))


@pytest.mark.parametrize("kind", ["fragments", "zones", "slices", "version"])
def test_a_link_out_of_the_index_is_not_followed(subject, kind, tmp_path):
    path = path_of(subject, kind)
    (subject.index / path).rename(tmp_path / "outside")
    (subject.index / path).symlink_to(tmp_path / "outside")
    assert_every_row_is_found(subject)


def test_a_linked_folder_of_the_index_is_not_followed(subject, tmp_path):
    (subject.index / "columns" / "k").rename(tmp_path / "k")
    (subject.index / "columns" / "k").symlink_to(tmp_path / "k")
    try:
        assert_every_row_is_found(subject)
        with pytest.raises(CorruptIndexError, match="must be a folder of the index"):
            LocalStore(subject.index).create("columns/k/x", b"")
    finally:
        (subject.index / "columns" / "k").unlink()


def test_a_store_reads_only_below_its_root(tmp_path):
    (tmp_path / "outside").write_text("secret")
    (tmp_path / "index").mkdir()
    store = LocalStore(tmp_path / "index")
    for path in ("../outside", "a/../../outside"):
        for read in (store.read, store.size, store.mapping, lambda path: store.read_ranges(path, [(0, 9)])):
            with pytest.raises(CorruptIndexError, match="must be a folder of the index"):
                read(path)
    with pytest.raises(CorruptIndexError, match="plain file"):
        store.read("")


def test_an_index_behind_a_link_opens(subject, tmp_path):
    """The index itself may lie anywhere; only what it names must be in it."""
    link = tmp_path / "link"
    link.symlink_to(subject.lake)
    assert zb.open_index(link).to_table("k = 7")["k"].to_pylist() == [7]


# --- fragment lists ---------------------------------------------------------------------------------------------------


def list_of(subject: Subject) -> tuple[str, pa.Table]:
    path = subject.body()["fragments"][0][0]
    return path, pa.ipc.open_file(subject.files[path]).read_all()


def written(table: pa.Table, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def replace_list(subject: Subject, table: pa.Table, **options: Any) -> None:
    path = list_of(subject)[0]
    files = {**subject.files, path: written(table, **options)}
    repaired(files, subject.version)
    subject.put(files)


def changed(table: pa.Table, name: str, values: pa.Array) -> pa.Table:
    number = table.schema.get_field_index(name)
    return table.set_column(number, table.schema.field(number), values)


@pytest.mark.parametrize("by", [1, 1000, 1 << 20, 1 << 30])
def test_offsets_of_texts_that_leave_their_column(subject, by):
    """They read other memory, or end the process."""
    path, table = list_of(subject)
    offsets = np.frombuffer(table["path"].chunk(0).buffers()[1], np.int32)[: len(table) + 1]
    moved = offsets + np.array([0] * len(table) + [by], np.int32)
    data = written(table)
    assert data.count(offsets.tobytes()) == 1
    files = {**subject.files, path: data.replace(offsets.tobytes(), moved.tobytes())}
    repaired(files, subject.version)
    subject.put(files)
    assert_every_row_is_found(subject)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("fragment_id", 2**40), ("fragment_id", None), ("path", None), ("num_rows", 2**40), ("num_rows", 299)),
        *(("row_group_rows", None), ("row_group_rows", [300]), ("row_group_bytes", [])),
    ],
)
def test_values_that_no_fragment_has(subject, name, value):
    _, table = list_of(subject)
    values = pa.array([table[name][0].as_py(), value], table[name].type)
    replace_list(subject, changed(table, name, values))
    assert_every_row_is_found(subject)


def test_a_list_with_other_columns(subject):
    _, table = list_of(subject)
    longer, renamed = table.append_column("x", [[1] * len(table)]), table.rename_columns(list("abcdefgh"))
    for other in (table.drop_columns(["etag"]), longer, renamed):
        replace_list(subject, other)
        assert_every_row_is_found(subject)


def test_a_bomb_of_compressed_bytes_is_not_expanded():
    """80 MB of zeros in 8 kB: refused before memory is taken for them."""
    schema = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    table = pa.table([pa.chunked_array([np.zeros(10**7, np.int64)])], schema=schema)
    data = pa.py_buffer(written(table, compression="zstd"))
    before = pa.total_allocated_bytes()
    with pytest.raises(ValueError, match="must not expand to 80000000"):
        read_batches(data, schema, is_compressed=True)
    small = pa.table([pa.chunked_array([np.arange(10**5)])], schema=schema)
    packed = pa.py_buffer(written(small, compression="zstd"))
    assert read_batches(packed, schema, is_compressed=True)[0].num_rows == 10**5
    with pytest.raises(ValueError, match="must not expand"):
        read_batches(packed, schema)
    assert pa.total_allocated_bytes() - before < 1 << 22


# --- segments ---------------------------------------------------------------------------------------------------------


def replace_slices(subject: Subject, change: Callable[[dict[bytes, bytes]], object]) -> None:
    """Have the metadata of the slice segment say something else."""
    body = subject.body()
    (entry,) = segments_of(body, "slices")
    data = with_metadata(subject.files[entry["path"]], change)
    entry["spans"][0][0] += len(data) - len(subject.files[entry["path"]])
    files = {**subject.files, entry["path"]: data, subject.version: sealed(body)}
    repaired(files, subject.version)
    subject.put(files)


LAYOUTS = {
    "num_blocks": [0, 2.5, 400],
    "num_zones": [-1, 449, 10**6],
    "stride": [0, 96, 1 << 40],
    "blocks_per_body": [0],
    "body_offsets": [[], [2**62], [64], [8192, 4096], [-4096]],
    "version": ["1"],
}


@pytest.mark.parametrize(
    "described",
    [
        {"num_blocks": 9 * 10**12, "blocks_per_body": 1},
        {"num_blocks": 2**62, "blocks_per_body": 2**62},
        *({name: value} for name, values in LAYOUTS.items() for value in values),
    ],
    ids=str,
)
def test_layouts_that_no_slice_segment_has(subject, described):
    """Some described petabytes of rows, and their bodies were listed one by one."""

    def change(metadata: dict[bytes, bytes]) -> None:
        layout = json.loads(metadata[b"zonebloom.slices"]) | described
        metadata[b"zonebloom.slices"] = json.dumps(layout).encode()

    replace_slices(subject, change)
    assert_every_row_is_found(subject)


@pytest.mark.parametrize("length", [0, 2**32, 2**63, 2**64 - 1])
def test_zone_runs_past_the_end_of_rows(subject, length):
    def change(metadata: dict[bytes, bytes]) -> None:
        stream = base64.b64decode(metadata[b"zonebloom.zones"])
        runs = pa.ipc.open_stream(stream).read_all()
        changed_runs = changed(runs, "zone_length", pa.array([length] * len(runs), pa.uint64()))
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, runs.schema) as writer:
            writer.write_table(changed_runs)
        metadata[b"zonebloom.zones"] = base64.b64encode(sink.getvalue())

    replace_slices(subject, change)
    assert_every_row_is_found(subject)


@pytest.mark.parametrize("kind", ["zones", "slices", "locator"])
def test_spans_that_no_file_has(subject, kind):
    for size in (2**31, 2**40, 2**62):
        rewrite(subject, lambda body, size=size: segments_of(body, kind)[0]["spans"][0].__setitem__(0, size))
        assert_every_row_is_found(subject, is_damaged=kind != "locator")


def test_runs_of_all_ids_take_no_time(subject):
    """Four thousand million ids: they became a set."""

    def change(body: dict[str, Any]) -> None:
        everything = [[0, 2**32 - 1]]
        for column in body["columns"]:
            column["unfit"] = everything
            for segment in column["segments"]:
                segment["fragments"] = everything

    rewrite(subject, change)
    pq.write_table(pa.table({"k": [600], "s": ["text 600"]}), subject.lake / "part-2.parquet")
    try:
        index = zb.open_index(subject.lake)
        index.optimize()
        index.refresh()
        assert index.to_table("k = 600")["k"].to_pylist() == [600]
    finally:
        (subject.lake / "part-2.parquet").unlink()


def test_joined_runs_hold_the_same_ids():
    random = np.random.default_rng(3)
    for _ in range(200):
        starts = random.integers(0, 40, 6).tolist()
        spans = [(start, start + int(random.integers(1, 9))) for start in starts]
        assert joined_runs(spans) == runs(number for start, stop in spans for number in range(start, stop))
