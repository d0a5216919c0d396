"""The command: text and JSON, exit status 0, 1 and 2, one line on stderr, JSON alone on stdout.

Oracle: the Python interface on the same lake, and the rows as written.
"""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from tests.child import run_python
from tests.conftest import flip, index_of, refuse_constant

FIVE = ["fragment_id", "zone_start", "zone_length", "has_null", "bloom_filter_data"]


@pytest.fixture
def lake(flat_lake, run):
    outcome = run("build", flat_lake.root, "--column", "user_id", "-c", "device_id", "--rows-per-zone", 256)
    assert (outcome.code, outcome.err) == (0, "")
    assert "indexed 8,001 rows of 3 files" in outcome.out
    return flat_lake


def test_a_build_says_how_what_it_indexed_is_searched(single_file, run, tmp_path):
    file, index = single_file.root / single_file.files[0], tmp_path / "an index"
    said = run("build", file, "-c", "user_id").out
    assert f"next: zonebloom search {file} --where \"user_id = '…'\"\n" in said
    assert re.search(
        r"indexed 4,000 rows of 1 file in [\d.]+ s, [\d,]+ rows/s(; compiled kernels in [\d.]+ s, once)?\n", said
    )
    assert f"recommended: zonebloom build {file} -c user_id --kind locator --overwrite\n" in said
    said = run("build", file, "-c", "user_id", "-c", "device_id", "--overwrite").out
    assert f"recommended: zonebloom build {file} -c user_id -c device_id --kind locator --overwrite\n" in said
    said = run("build", file, "-c", "device_id", "--overwrite").out
    assert f'next: zonebloom search {file} --where "user_id =' in said, "the first of its columns"
    said = run("build", file, "-c", "user_id", "--index", index).out
    assert f"next: zonebloom search {file} --index '{index}' --where" in said
    pq.write_table(pa.table({"trace_id": pa.array([b"0" * 16], pa.binary(16))}), tmp_path / "spans.parquet")
    assert "--where \"trace_id = X'…'\"\n" in run("build", tmp_path / "spans.parquet", "-c", "trace_id").out
    pq.write_table(pa.table({"$(x)`": [1]}), tmp_path / "shell.parquet")
    assert r'--where "\"\$(x)\`\" = …"' in run("build", tmp_path / "shell.parquet", "-c", "$(x)`").out


def test_search(lake, run):
    user = lake.table["user_id"][3000].as_py()
    text = run("search", lake.root, "--where", f"user_id = '{user}'")
    assert text.code == 0
    assert text.out == "part-0.parquet\t2816\t3072\n"
    assert text.err.startswith("at_most: 1 of 3 files, 1 of 33 zones, 256 of 8,001 rows, ")
    assert text.err.endswith(" bytes of row groups; all rows that match, and perhaps others\n")
    output = run("search", lake.root, "--where", f"user_id = '{user}'", "--format", "json")
    assert (output.code, output.err) == (0, "")
    assert list(output.document) == ["kind", "files", "row_ranges", "kept", "total", "num_unreadable", "reasons"]
    assert output.document["kind"] == "at_most"
    assert output.document["files"] == ["part-0.parquet"]
    assert output.document["row_ranges"] == [{"path": "part-0.parquet", "fragment_id": 0, "start": 2816, "stop": 3072}]
    assert list(output.document["kept"]) == list(output.document["total"]) == ["files", "zones", "rows", "bytes"]
    kept = run("search", lake.root, "-w", "trace IS NULL", "-f", "json").document
    assert [list(reason) for reason in kept["reasons"]] == [["code", "message", "column"]]


def test_an_index_of_another_data_set_is_refused(lake, run, make_lake, tmp_path):
    """Its rows would be those of the other one, and no row of this one would be found."""
    other = make_lake(name="other", seed=9)
    place = index_of(lake.root)
    for command in (("search", "-w", "user_id = 'x'"), ("scan", "-w", "user_id = 'x'"), ("refresh",), ("status",)):
        outcome = run(command[0], other.root, *command[1:], "--index", place)
        assert (outcome.code, outcome.out) == (2, "")
        assert f"which is {lake.root}, got {other.root}; name that" in outcome.err
    link, missing = tmp_path / "link", "user_id = 'x'"
    link.symlink_to(lake.root)
    for same in (link, f"{lake.root}/", lake.root.as_uri(), place):
        assert run("search", same, "-w", missing, "--index", place).code == 0
    first, second = (lake.root / name for name in lake.files[:2])
    of_one = zb.build_index(first, "user_id", index=tmp_path / "of-one").location
    of_two = zb.build_index([first, second], "user_id", index=tmp_path / "of-two").location
    for path, index in ((first, place), (second, of_one), (lake.root, of_one), (first, of_two), (lake.root, of_two)):
        assert run("search", path, "-w", missing, "--index", index).code == 2
    for path, index in ((first, of_one), (of_two, of_two)):
        assert run("search", path, "-w", missing, "--index", index).code == 0


def test_an_empty_place_of_an_index_is_none_and_not_the_default(lake, run):
    for command in (("delete", "--dry-run"), ("search", "-w", "user_id = 'x'"), ("vacuum",), ("status",)):
        outcome = run(command[0], lake.root, *command[1:], "--index", "")
        assert (outcome.code, outcome.out) == (2, "")
        assert "not empty" in outcome.err
    with pytest.raises(zb.errors.InvalidArgumentError, match="not empty"):
        zb.erase(lake.root, "user_id", ["x"], index="", dry_run=True)


def test_an_index_beside_a_file_answers_for_that_file_alone(tmp_path, run):
    """Also if both were renamed and another file has the former name, or if the index is of a list."""
    first, march = tmp_path / "events.parquet", tmp_path / "march.parquet"
    pq.write_table(pa.table({"u": ["old", "both"]}), first)
    zb.build_index(first, "u")
    index_of(first).rename(index_of(march))
    first.rename(march)
    pq.write_table(pa.table({"u": ["new", "both"]}), first)
    assert zb.open_index(march).to_table("u = 'both' OR u = 'old'").num_rows == 2
    assert run("erase", march, "-c", "u", "--values", "-", stdin=b"both\n").code == 0
    assert (pq.read_table(march)["u"].to_pylist(), pq.read_table(first)["u"].to_pylist()) == (["old"], ["new", "both"])
    zb.build_index([first, march], "u", index=index_of(first))
    assert zb.open_index(first).to_table("u = 'old'").num_rows == 0
    zb.build_index(first, "u", index=tmp_path / "_zonebloom")
    assert zb.open_index(tmp_path).to_table("u = 'old'").num_rows == 1


def test_scan_prints_csv_and_json_lines(lake, run):
    device = lake.table["device_id"][5].as_py()
    scan = ("scan", lake.root, "-w", f"device_id = {device}")
    users = lake.expected(pc.equal(lake.table["device_id"], device))["user_id"].to_pylist()
    outcome = run(*scan, "--columns", "user_id,device_id")
    assert (outcome.code, outcome.err) == (0, "")
    rows = list(csv.reader(io.StringIO(outcome.out)))
    assert (rows[0], [row[0] for row in rows[1:]]) == (["user_id", "device_id"], users)
    assert len(run(*scan, "--limit", 2).out.splitlines()) == 3
    rows = [json.loads(line, parse_constant=refuse_constant) for line in run(*scan, "-f", "json").out.splitlines()]
    assert ([row["user_id"] for row in rows], list(rows[0])) == (users, lake.table.column_names)


@pytest.mark.parametrize("ending", [".arrow", ".parquet"])
def test_scan_writes_files(lake, run, tmp_path, ending):
    device = lake.table["device_id"][5].as_py()
    scan = partial(run, "scan", lake.root, "-w", f"device_id = {device}")
    for output in (tmp_path / f"out{ending}", tmp_path / "out.csv"):
        assert scan("-o", output)[:2] == (0, "")
    assert (tmp_path / "out.csv").read_text("utf-8") == scan().out
    expected = lake.expected(pc.equal(lake.table["device_id"], device)).drop_columns("amount")
    assert read(tmp_path / f"out{ending}").drop_columns("amount").equals(expected)


@pytest.mark.parametrize("ending", [".arrow", ".parquet"])
def test_scan_writes_views_within_structs_and_categories_of_each_file(run, tmp_path, ending):
    """pyarrow 26 writes such views to Parquet from their first row on alone, and one dictionary in an Arrow file."""
    views = pa.array([{"text": str(number)} for number in range(300)], pa.struct([("text", pa.string_view())]))
    (tmp_path / "lake").mkdir()
    for number, name in enumerate(("red", "blue")):
        names = pa.array([name] * 300).dictionary_encode()
        columns = {"id": range(300 * number, 300 * number + 300), "s": views, "name": names}
        columns["names"] = pa.ListArray.from_arrays(pa.array(range(301), pa.int32()), names)
        pq.write_table(pa.table(columns), tmp_path / f"lake/part-{number}.parquet")
    assert run("build", tmp_path / "lake", "-c", "id").code == 0
    assert run("scan", tmp_path / "lake", "-w", "id > 5", "-o", tmp_path / f"out{ending}").code == 0
    rows = read(tmp_path / f"out{ending}")
    assert rows["s"].to_pylist() == views.to_pylist()[6:] + views.to_pylist()
    assert rows["name"].to_pylist() == ["red"] * 294 + ["blue"] * 300
    assert rows["names"].to_pylist() == [["red"]] * 294 + [["blue"]] * 300


def read(path: Path) -> pa.Table:
    if path.suffix == ".parquet":
        return pq.read_table(path)
    with pa.OSFile(str(path)) as source:
        return pa.ipc.open_file(source).read_all()


def test_exists(lake, asked):
    user = lake.table["user_id"][5].as_py()
    values = f"{user}\nnobody\n\nwith\u2028separator\r\n"
    text = asked("exists", lake.root, "user_id", values)
    assert text == (0, f"{user}\ttrue\nnobody\tfalse\nwith\u2028separator\tfalse\n", "1 of 3 may exist\n")
    output = asked("exists", lake.root, "user_id", values, "--exact", "-f", "json")
    assert output.document == [
        {"value": value, "exists": value == user} for value in (user, "nobody", "with\u2028separator")
    ]


def test_a_mark_of_the_byte_order_is_no_part_of_the_first_value(lake, asked):
    """Editors on Windows write one: a value that is there must not be called absent."""
    user = lake.table["user_id"][4000].as_py()
    output = asked("exists", lake.root, "user_id", b"\xef\xbb\xbf" + user.encode() + b"\r\nnobody\r\n")
    assert output.out == f"{user}\ttrue\nnobody\tfalse\n"


def test_locate(lake, run, asked, tmp_path):
    index = tmp_path / "located"
    assert run("build", lake.root, "-c", "user_id", "--kind", "both", "--index", index).code == 0
    user = lake.table["user_id"][5].as_py()
    locate = partial(asked, "locate", lake.root, "user_id", f"{user}\nnobody\n", "--index", index)
    ranges = locate("-f", "json").document
    assert {row["value"] for row in ranges} == {user}
    assert set(ranges[0]) == {"value", "path", "fragment_id", "start", "stop", "fingerprint"}
    rows = locate("--exact", "-f", "json").document
    assert rows[-1] == {"value": "nobody", "path": None, "row": None}
    assert len(rows) - 1 == lake.table["user_id"].to_pylist().count(user)
    shown = [str(ranges[0][name]) for name in ("value", "path", "start", "stop")]
    assert locate().out.splitlines()[0].split("\t") == shown
    text = locate("--exact")
    assert (text.code, text.err) == (0, "")
    assert text.out.splitlines()[:: len(rows) - 1] == ["\t".join(map(str, rows[0].values())), "nobody\t\t"]


def test_verify(lake, run):
    text = run("verify", lake.root, "--all")
    assert (text.code, text.err) == (0, "")
    assert text.out.startswith("sound\n  files       3\n  files read  3\n")
    assert run("verify", lake.root, "--sample", "0.3", "-f", "json").document["is_sound"] is True
    flip(next((index_of(lake.root) / "columns").rglob("*.arrow")))
    wrong = run("verify", lake.root, "--all", "-f", "json")
    assert (wrong.code, wrong.document["is_sound"]) == (1, False)
    assert run("verify", lake.root).out.startswith("NOT SOUND")


@pytest.mark.parametrize("ending", [".arrow", ".parquet"])
def test_export_has_exactly_the_five_columns_and_import_takes_it_back(lake, run, tmp_path, ending):
    output = tmp_path / f"zones{ending}"
    exported = run("lance", "export", lake.root, "--column", "user_id", "-o", output)
    assert (exported.code, exported.out, exported.err) == (0, "", f"wrote 33 zones to {output}\n")
    assert read(output).column_names == FIVE
    before = zb.open_index(lake.root).zone_table("user_id").to_arrow().combine_chunks()
    place = tmp_path / "imported"
    imported = run("lance", "import", lake.root, "--input", output, "--column", "user_id", "--index", place)
    assert (imported.code, imported.err) == (0, "")
    again = zb.open_index(place).zone_table("user_id").to_arrow().combine_chunks()
    assert again.equals(before, check_metadata=True)


def test_import_refuses_what_is_no_zone_table(lake, run, tmp_path):
    pq.write_table(pa.table({"x": [1]}), tmp_path / "c.parquet")
    for name, content in (("a.arrow", b"garbage"), ("a.parquet", b"garbage"), ("b.arrow", b"")):
        (tmp_path / name).write_bytes(content)
    for name in ("a.arrow", "a.parquet", "b.arrow", "c.parquet"):
        outcome = run("lance", "import", lake.root, "-i", tmp_path / name, "-c", "user_id", "--index", tmp_path / "i")
        assert (outcome.code, outcome.err.count("\n")) == (1, 1)
    assert "must have the column fragment_id" in outcome.err


def test_bad_data_is_status_1_and_warnings_go_to_stderr(lake, run):
    (lake.root / "part-9.parquet").write_bytes(b"not Parquet")
    output = run("search", lake.root, "-w", "user_id = 'nobody'", "-f", "json")
    assert output.code == 0
    assert {reason["code"] for reason in output.document["reasons"]} == {"FILE_NOT_INDEXED", "FILE_UNREADABLE"}
    scanned = run("scan", lake.root, "-w", "user_id = 'nobody'", "-f", "json")
    assert (scanned.code, scanned.out, scanned.err.count("\n")) == (1, "", 1)
    assert "must be a whole Parquet file" in scanned.err
    shutil.rmtree(index_of(lake.root))
    built = run("build", lake.root, "-c", "user_id", "-f", "json")
    assert built.code == 0
    assert built.document["num_files"] == 4
    assert built.err.startswith("zonebloom: warning: ")
    assert built.err.count("\n") == 1


FAR = pa.array([2**40], pa.timestamp("s"))
GIVEN = {
    "integers": (pa.array([7, None]), ["7", "None"]),
    "views": (pa.array(["a", "b"], pa.string_view()), ["a", "b"]),
    "uuids": (pa.array([bytes(16)], pa.uuid()), ["00000000-0000-0000-0000-000000000000"]),
    "after the year 9999": (FAR, [FAR.cast(pa.string())[0].as_py()]),
}


@pytest.mark.parametrize("kind", list(GIVEN))
@pytest.mark.parametrize("command", ["locate", "exists"])
def test_values_of_an_arrow_file_are_printed(run, asked, tmp_path, command, kind):
    values, printed = GIVEN[kind]
    (tmp_path / "data").mkdir()
    stored = values.cast(pa.string()) if kind == "views" else values
    pq.write_table(pa.table({"k": stored}), tmp_path / "data/a.parquet")
    assert run("build", tmp_path / "data", "-c", "k").code == 0
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, pa.schema([("k", values.type)])) as writer:
        writer.write_table(pa.table({"k": values}))
    outcome = asked(command, tmp_path / "data", "k", sink.getvalue().to_pybytes(), "--exact", name="values.arrow")
    assert outcome.code == 0
    assert [line.split("\t")[0] for line in outcome.out.splitlines()] == printed


BROKEN_LINES = ["a\nb", "a\r\nb", "c\rd", "ab"]


@pytest.fixture
def broken_lines(run, tmp_path):
    """A data set of texts with line ends inside."""
    (tmp_path / "data").mkdir()
    pq.write_table(pa.table({"s": BROKEN_LINES}), tmp_path / "data/a.parquet")
    assert run("build", tmp_path / "data", "-c", "s").code == 0
    return tmp_path / "data"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_ends_inside_quotes_of_a_csv_are_of_the_value(broken_lines, asked, end):
    quoted = end.join(["s", *(f'"{value}"' for value in BROKEN_LINES), ""])
    document = asked("locate", broken_lines, "s", quoted, "--exact", "-f", "json", name="values.csv").document
    assert [(row["value"], row["row"]) for row in document] == list(zip(BROKEN_LINES, range(4), strict=True))


def test_line_ends_inside_texts_are_quoted_in_csv(broken_lines, run, tmp_path):
    assert run("scan", broken_lines, "-w", "s IS NOT NULL", "-o", tmp_path / "rows.csv").code == 0
    with (tmp_path / "rows.csv").open(newline="") as stream:
        assert [value for (value,) in csv.reader(stream)] == ["s", *BROKEN_LINES]


def test_what_is_no_csv_is_text_or_an_error(broken_lines, asked):
    document = asked("exists", broken_lines, "s", b"c\rd\n" + b"x" * 200_000 + b"\r", "-f", "json").document
    assert [row["exists"] for row in document] == [True, False]
    for wrong in (b"s\nc\rd\n", b's\n"' + b"x" * 200_000 + b'"\n'):
        outcome = asked("exists", broken_lines, "s", wrong, name="values.csv")
        assert (outcome.code, outcome.err.count("\n"), " is not CSV: " in outcome.err) == (2, 1, True)


def test_line_ends_inside_a_condition_of_a_file_stay(broken_lines, run, tmp_path):
    for value in BROKEN_LINES:
        (tmp_path / "where.sql").write_bytes(f"s = '{value}'\r\n".encode())
        output = run("scan", broken_lines, "-w", f"@{tmp_path}/where.sql", "-f", "json").out
        assert [json.loads(line)["s"] for line in output.splitlines()] == [value]


def test_values_that_are_no_text_are_an_error(lake, asked):
    outcome = asked("exists", lake.root, "user_id", b"\xff\xfe\x00")
    assert (outcome.code, outcome.err.count("\n")) == (2, 1)
    assert asked("exists", lake.root, "user_id", b"", name="empty.parquet").code == 1
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pylist([{}]), sink)
    outcome = asked("exists", lake.root, "user_id", sink.getvalue().to_pybytes(), name="none.parquet")
    assert (outcome.code, outcome.err.count("\n")) in ((1, 1), (2, 1))


def test_the_process_ends_as_python_does(lake):
    """What is registered to run at the end runs, and what was printed arrives, though nothing is freed one by one."""
    script = "import atexit, threading, time\n"
    script += "atexit.register(print, 'at exit')\n"
    script += "threading.Thread(target=lambda: (time.sleep(0.2), print('thread'))).start()\n"
    script += "from zonebloom.cli import main; main()"
    done = run_python(script, "search", lake.root, "-w", "user_id = 'nobody'")
    assert done.stdout.splitlines()[-2:] == ["thread", "at exit"]
    assert done.stderr == "certainly nowhere: none of 8,001 rows need be read\n"
