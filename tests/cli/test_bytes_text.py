"""Bytes in what the command prints and reads. The oracle for their text is DuckDB's cast of a BLOB, both ways."""

from __future__ import annotations

import csv
import json

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given, strategies as st

from zonebloom.cli.bytes_text import blob_of, text_of

BLOBS = [b"plain", b"\x00\xff\n", "é".encode(), b"\\x41 'a' \"b\", c", b"", None]


@given(st.binary(max_size=24))
@example(bytes(range(256)))
def test_bytes_are_written_as_duckdb_writes_them_and_read_again(blob):
    [(text,)] = duckdb.execute("SELECT CAST(CAST(? AS BLOB) AS VARCHAR)", [blob]).fetchall()
    assert text_of(blob) == text
    assert blob_of(text) == blob
    assert duckdb.execute("SELECT CAST(? AS BLOB)", [text_of(blob)]).fetchall() == [(blob,)]


def test_a_text_beside_ascii_is_its_utf8_and_a_backslash_must_begin_a_byte():
    assert blob_of("é\\xc3\\xA9") == "éé".encode()
    for text in ("\\", "a\\b", "\\x4", "\\xg0", "\\\\"):
        with pytest.raises(ValueError, match="two hex digits"):
            blob_of(text)


@pytest.fixture
def root(tmp_path, run):
    columns = {
        "id": range(len(BLOBS)),
        "blob": pa.array(BLOBS, pa.binary()),
        "fixed": pa.array([None if blob is None else blob[:2].ljust(2, b"\xfe") for blob in BLOBS], pa.binary(2)),
        "nested": pa.array([[{"b": blob}] for blob in BLOBS]),
        "map": pa.array([[("k", blob)] for blob in BLOBS], pa.map_(pa.string(), pa.large_binary())),
    }
    (tmp_path / "lake").mkdir()
    pq.write_table(pa.table(columns), tmp_path / "lake" / "part-0.parquet")
    assert run("build", tmp_path / "lake", "-c", "blob", "-c", "fixed", "--rows-per-zone", 2).code == 0
    return tmp_path / "lake"


def test_a_scan_prints_bytes_in_csv(root, run):
    rows = list(csv.DictReader(run("scan", root, "-w", "id >= 0").out.splitlines()))
    assert [row["blob"] for row in rows] == ["" if blob is None else text_of(blob) for blob in BLOBS]
    assert [row["fixed"] for row in rows] == ["pl", "\\x00\\xFF", "\\xC3\\xA9", "\\x5Cx", "\\xFE\\xFE", ""]
    assert rows[0]["nested"] == "[{'b': 'plain'}]"
    assert rows[0]["map"] == "[('k', 'plain')]"


def test_a_scan_prints_bytes_in_json(root, run):
    rows = [json.loads(line) for line in run("scan", root, "-w", "id >= 0", "-f", "json").out.splitlines()]
    texts = [None if blob is None else text_of(blob) for blob in BLOBS]
    assert [row["blob"] for row in rows] == texts
    assert [row["nested"] for row in rows] == [[{"b": text}] for text in texts]
    assert [row["map"] for row in rows] == [[["k", text]] for text in texts]


@pytest.mark.parametrize("column", ["blob", "fixed"])
def test_what_a_scan_prints_exists_finds(root, run, asked, column):
    rows = csv.DictReader(run("scan", root, "-w", "id >= 0").out.splitlines())
    lines = [row[column] for row in rows if row[column]]
    absent = "no" if column == "fixed" else "nothing \\x00"
    output = asked("exists", root, column, "\n".join([*lines, absent])).out
    assert output.splitlines() == [f"{line}\ttrue" for line in lines] + [f"{absent}\tfalse"]


def test_a_line_that_spells_no_bytes_is_refused(root, asked):
    assert "is not bytes as text" in asked("exists", root, "blob", "a\\b").err


def test_bytes_of_a_fixed_width_are_written_as_they_are_or_in_hex(root, asked):
    lines = asked("exists", root, "fixed", "ab\n6162\n'  '\n").out.splitlines()
    assert lines == [f"ab\t{lines[0].split()[1]}", lines[0], "  \tfalse"]
    told = asked("exists", root, "fixed", "ab\nlong").err
    assert "'long', has 4 bytes; write 2 bytes, or 4 hex digits" in told


def test_numbers_that_json_has_not_are_null_inside_maps_too(tmp_path, run):
    values = pa.array([[("k", float("nan"))]], pa.map_(pa.string(), pa.float64()))
    columns = {"id": [1], "map": values, "nan": [float("nan")], "infinite": [float("inf")], "half": [0.5]}
    pq.write_table(pa.table(columns), tmp_path / "part-0.parquet")
    run("build", tmp_path, "-c", "id")
    row = run("scan", tmp_path, "-w", "id = 1", "-f", "json").document
    assert row == {"id": 1, "map": [["k", None]], "nan": None, "infinite": None, "half": 0.5}
