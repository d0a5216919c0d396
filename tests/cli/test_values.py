"""Ids in, rows out: lists of values from files and arrays, one rule for literals, outputs that replace nothing.

Oracle: DuckDB over the same files, and the rows as written.
"""

from __future__ import annotations

import itertools
import json
import uuid

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import zonebloom as zb
from zonebloom.errors import InvalidArgumentError

NUM_ROWS = 2000
TEXTS = ["", "a", " b ", "'q'", "id"]


@pytest.fixture
def lake(tmp_path):
    """UUIDs, and integers under an odd name, in two hive folders."""
    root = tmp_path / "lake"
    duckdb.sql(
        f"""copy (select md5(i::text)::uuid as user_id, i::bigint * 7 as "Order ID", i % 2 as day, i % 3 = 0 as paid
        from range({NUM_ROWS}) t(i)) to '{root}' (format parquet, partition_by (day))"""
    )
    zb.build_index(root, ["user_id", "Order ID"], rows_per_zone=50)
    return root


def ids_of(root, count):
    rows = duckdb.sql(f"select user_id::text from read_parquet('{root}/**/*.parquet') order by all limit {count}")
    return [row[0] for row in rows.fetchall()]


def number_of_rows(csv_text):
    return len(csv_text.splitlines()) - 1


# --- files of ids -----------------------------------------------------------------------------------------------------


def test_a_closed_stdin_and_a_column_that_is_listed_twice_are_named(lake, run):
    code, _, err = run("scan", lake, "--where", "user_id IS NULL", "--columns", "user_id,user_id")
    assert (code, "has a name twice" in err) == (2, True)
    for asked in (("--column", "user_id", "--values", "-"), ("--where", "@-")):
        code, _, err = run("scan", lake, *asked, stdin=None)
        assert (code, "stdin is closed" in err) == (2, True), err
    code, _, err = run("scan", lake, "--where", "@-", "--column", "user_id", "--values", "-", stdin=b"paid")
    assert (code, "another option reads stdin" in err) == (2, True)


@pytest.mark.parametrize(
    "spelt", [str, str.upper, lambda text: f"'{text}'", lambda text: f'  "{text}"\t'], ids=["plain", "upper", "'", '"']
)
def test_a_text_of_uuids_finds_their_rows_in_every_command(lake, asked, spelt):
    absent = [str(uuid.uuid4()) for _ in range(5)]
    text = "\n".join(map(spelt, ids_of(lake, 10) + absent)) + "\n"
    code, out, err = asked("scan", lake, "user_id", text)
    assert (code, number_of_rows(out), err) == (0, 10, "")
    code, out, _ = asked("exists", lake, "user_id", text, "--exact")
    assert (code, out.count("true"), out.count("false")) == (0, 10, 5)
    code, out, err = asked("search", lake, "user_id", text)
    assert (code, 1 <= len(out.splitlines()) <= 12, "TYPE_MISMATCH" in err) == (0, True, False)
    code, out, _ = asked("explain", lake, "user_id", text)
    assert (code, "… 15 values" in out) == (0, True)


def table_of(ids):
    return pa.table({"name": ["n"] * len(ids), "user_id": ids})


def as_parquet(path, ids):
    pq.write_table(table_of(ids), path)


def as_arrow(path, ids):
    table = table_of(ids)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)


def as_csv(path, ids):
    path.write_text('name,user_id\r\n"a, b",' + '\r\n"a, b",'.join(ids) + "\r\n")


def as_text_with_header(path, ids):
    path.write_text("\n".join(["user_id", *ids]))


FILES = {"x.parquet": as_parquet, "x.arrow": as_arrow, "x.csv": as_csv, "x.txt": as_text_with_header}


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("is_stdin", [False, True], ids=["file", "stdin"])
def test_a_column_of_that_name_is_taken_from_any_file(lake, run, tmp_path, name, is_stdin):
    ids = ids_of(lake, 7)
    FILES[name](tmp_path / name, ids)
    stdin = (tmp_path / name).read_bytes()
    source = "-" if is_stdin else tmp_path / name
    code, out, err = run("scan", lake, "--column", "user_id", "--values", source, stdin=stdin)
    assert (code, number_of_rows(out), err) == (0, 7, "")


@pytest.fixture
def texts(tmp_path):
    """Texts that a list could cut or drop, and ids of 16 bytes."""
    (root := tmp_path / "texts").mkdir()
    ids = pa.array([bytes([number]) * 16 for number in range(5)], pa.binary(16))
    coded = {"d": pa.array(TEXTS).dictionary_encode(), "o": pa.array([b"a"] * 5).dictionary_encode()}
    columns = {"s": TEXTS, "t": ids, "b": ids.cast(pa.binary()), "n": range(5)}
    pq.write_table(pa.table(columns | coded), root / "x.parquet")
    zb.build_index(root, ["s", "t", "b", "n", "d", "o"])
    return root


@pytest.mark.parametrize(
    ("name", "text", "values"),
    [
        ("v.csv", 's\n""\na\n', ["", "a"]),
        ("v.csv", "x,s\n1,a\n2,\n\n", ["a", ""]),
        ("v.csv", 's\n" b "\n', [" b "]),
        ("v.txt", "a\n\n  \n\n", ["a"]),
        ("v.txt", 'a\n \t"a" \n\'\'\n" b "\n"\'q\'"\n', ["a", "a", "", " b ", "'q'"]),
        ("v.txt", '"b\na\n', ['"b', "a"]),
        ("v.txt", "PAR1-7\na\n", ["PAR1-7", "a"]),
        ("v.txt", "ARROW1\na\n", ["ARROW1", "a"]),
        ("v.txt:s", "x,s\n1,a\n2,\n", ["a", ""]),
        ("v.csv:x", "x,s\na,1\n", ["a"]),
        ("-:x", "x,s\na,1\n", ["a"]),
    ],
)
def test_no_value_of_a_list_is_lost(texts, run, tmp_path, name, text, values):  # noqa: PLR0917 - fixtures too
    """An empty text is a value of CSV and, in quotes, of plain text; empty lines are none."""
    (tmp_path / name.partition(":")[0]).write_text(text)
    source = name if name.startswith("-") else tmp_path / name
    code, out, err = run("exists", texts, "-c", "s", "--values", source, "-f", "json", "--exact", stdin=text.encode())
    assert (code, err) == (0, "")
    assert [(row["value"], row["exists"]) for row in json.loads(out)] == [(value, value in TEXTS) for value in values]


def test_a_list_for_a_column_of_a_dictionary_is_one_for_its_values(texts, asked):
    rows = asked("exists", texts, "d", 'd\n""\n" b "\na\n', "-f", "json", name="v.csv").document
    assert [(row["value"], row["exists"]) for row in rows] == [(value, True) for value in ("", " b ", "a")]
    assert number_of_rows(asked("scan", texts, "o", "\\x61\n").out) == 5


@pytest.mark.parametrize("kind", [pa.float16(), pa.float32(), pa.float64()], ids=str)
def test_floats_are_found_as_people_and_the_command_write_them(tmp_path, run, asked, kind):
    (root := tmp_path / "floats").mkdir()
    values = pa.array([0.1, -1e-5, float("inf"), 65504.0, 1e30, -0.0]).cast(kind, safe=False)
    pq.write_table(pa.table({"x": values}), root / "x.parquet")
    zb.build_index(root, "x")
    printed = run("scan", root, "--where", "TRUE").out.partition("\n")[2]
    for text in (printed, "0.1\n-1e-05\ninf\n65504\n1e30\n0\n"):
        assert number_of_rows(asked("scan", root, "x", text).out) == len(values)


def test_the_only_column_of_a_csv_needs_no_name(texts, asked):
    assert asked("exists", texts, "n", "number\n3\n9\n", name="only.csv")[:2] == (0, "3\ttrue\n9\tfalse\n")
    code, out, err = asked("exists", texts, "s", "number\n3\n9\n", name="only.csv")
    assert (code, out) == (0, "3\tfalse\n9\tfalse\n")
    assert "warning: the first line of" in err, "a text could be a value"
    assert "'number', is taken for a header; name it s, or end the name of the file in .txt" in err
    code, _, err = asked("exists", texts, "n", "3\n9\n", name="only.csv")
    assert (code, "has no header: its first line is the value '3'" in err) == (2, True)


def test_a_table_that_does_not_say_its_values_is_refused(texts, asked):
    for given, told in (
        ("s,s\na,b\n", "has the column s twice"),
        ("x,y\na,b\n", "choose one by --values"),
        ("x,s\na\n", "line 2 of {} must have as many columns as the first, 2, got 1"),
        ("s\nSmith, John\n", "as the first, 1, got 2; put a value that has a comma in double quotes"),
        ('s\n"a\nb\n', "is not CSV"),
        ('s\n"a"b\n', "line 2 of {} is not CSV"),
        (["s", "s"], "has the column s twice"),
        (["x", "y"], "but x, y"),
        (["x", "y"], "no column s in"),
    ):
        name, sink = "v.csv", pa.BufferOutputStream()
        if isinstance(given, list):
            name = "v.parquet"
            pq.write_table(pa.table([["a"], ["b"]], names=given), sink)
            given = sink.getvalue().to_pybytes()  # noqa: PLW2901 - as a file has it
        code, out, err = asked("exists", texts, "s", given, name=name)
        assert (code, out) == (2, "")
        assert all(part in err for part in told.split("{}")), err


def test_bytes_are_listed_in_hex(texts, run, asked):
    ids, wanted = "03" * 16 + "\n" + "FE" * 16 + "\n", "03" * 16
    assert asked("exists", texts, "t", ids).out.split("\n")[0].endswith("\ttrue")
    assert number_of_rows(asked("scan", texts, "t", ids).out) == 1
    for where, num_rows in ((f"t = X'{wanted}'", 1), (f"b = X'{wanted}'", 1), (f"b = CAST('{wanted}' AS BINARY)", 0)):
        assert number_of_rows(run("scan", texts, "-w", where).out) == num_rows
    bare = [f"t = '{wanted}'", f"b = '{wanted}'", f"b IN ('{wanted}', 'abc')", f"b > '{wanted}'"]
    for command, where in itertools.product(("search", "scan", "explain"), bare):
        code, out, err = run(command, texts, "-w", where)
        assert (code, out) == (2, "")
        held = "t holds 16 bytes" if where[0] == "t" else "b holds bytes"
        assert f"column {held}, got a text of 32 characters; bytes are written X'0303…'" in err


def test_hex_digits_for_bytes_of_any_length_are_read_as_text_with_a_warning(texts, asked):
    _, out, err = asked("exists", texts, "b", "03" * 16 + "\n" + "FE" * 16 + "\n")
    assert (out.count("false"), err.count("hex digits are read as text, as in line 1 of")) == (2, 1)
    _, out, err = asked("exists", texts, "b", r"\x03" * 16 + "\nabc\n")
    assert (out.count("true"), "hex digits" in err) == (1, False)


@pytest.mark.parametrize("options", [(), ("--exact",)], ids=str)
@pytest.mark.parametrize("command", ["exists", "locate"])
def test_new_files_are_told(texts, asked, command, options):
    assert "warning" not in asked(command, texts, "n", "7\n", *options).err
    pq.write_table(pa.table({"n": [50]}), texts / "new.parquet")
    code, out, err = asked(command, texts, "n", "7\n", *options)
    assert (code, err.count("warning")) == (0, 1)
    assert "warning: read whole: 1 new or changed file, such as new.parquet; run `zonebloom refresh PATH`" in err
    assert out.startswith("\tnew.parquet\t") or (command, options) != ("locate", ())


def test_a_bad_line_is_told_by_its_number(lake, asked):
    for command in ("scan", "search", "explain", "exists"):
        code, _, err = asked(command, lake, "Order ID", "7\n\n14\nx\n")
        assert (code, err.count("\n"), "line 4 of" in err, ", 'x', is no int64" in err) == (2, 1, True, True)


def test_a_condition_and_a_list_both_hold(lake, asked):
    code, out, _ = asked("scan", lake, "Order ID", "0\n7\n14\n21\n", "-w", "day = 0")
    assert (code, number_of_rows(out)) == (0, 2)


# --- one rule for literals --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "num_rows"),
    [
        ("\"Order ID\" = '7'", 1),
        ("\"Order ID\" IN ('7', '14', '5')", 2),
        ("\"Order ID\" = '7.0'", 1),
        ("\"Order ID\" = '99999999999999999999999'", 0),
        ("day = '1'", NUM_ROWS // 2),
        ("paid = 'true' AND day = '0'", NUM_ROWS // 6 + 1),
    ],
)
def test_text_that_spells_a_value_is_that_value(lake, where, num_rows):
    index = zb.open_index(lake)
    assert index.to_table(where).num_rows == num_rows
    assert "TYPE_MISMATCH" not in {reason.code for reason in index.search(where).reasons}
    if num_rows:  # DuckDB refuses what is out of range, and we find nothing
        engine = duckdb.sql(f"from read_parquet('{lake}/**/*.parquet', hive_partitioning=true) where {where}")
        assert len(engine.fetchall()) == num_rows


# --- outputs ----------------------------------------------------------------------------------------------------------


def test_an_output_never_replaces_data(lake, run):
    target = next(lake.rglob("*.parquet"))
    before = target.read_bytes()
    for command in (("scan", lake, "-w", "paid"), ("lance", "export", lake, "-c", "user_id")):
        for place in (target, lake / "new.parquet", lake.parent / "_lake.zonebloom" / "x.arrow"):
            code, out, err = run(*command, "-o", place, "--overwrite")
            assert (code, out) == (2, "")
            assert "is in the data set or in its index" in err
    assert target.read_bytes() == before


def test_what_a_link_of_the_data_set_leads_to_is_data_by_any_name(tmp_path, run):
    root, other, alone = (tmp_path / name for name in ("lake", "other", "alone"))
    for folder in (root, other, alone):
        folder.mkdir()
        pq.write_table(pa.table({"k": [1]}), folder / "a.parquet")
    (root / "linked").symlink_to(other)
    (root / "b.parquet").symlink_to(alone / "a.parquet")
    zb.build_index(root, "k")
    outputs = (root / "linked/a.parquet", other / "a.parquet", other / "new.parquet", root / "b.parquet")
    for output in (*outputs, alone / "a.parquet"):
        code, out, err = run("scan", root, "-w", "k = 1", "-o", output, "--overwrite")
        assert (code, out, "is in the data set or in its index" in err) == (2, "", True)
    for place in (root / "linked/index", other / "index"):
        with pytest.raises(InvalidArgumentError, match="an index inside the data set"):
            zb.build_index(root, "k", index=place)
    with pytest.raises(InvalidArgumentError, match="copies must go outside"):
        zb.add_parquet_blooms(root, other, "k")
    assert run("scan", root, "-w", "k = 1", "-o", alone / "new.parquet").code == 0
    zb.build_index(root, "k", index=other / "_index")
    assert zb.open_index(root).to_table("k = 1").num_rows == 3


def test_an_output_replaces_nothing_unless_it_is_told_to(lake, run, tmp_path):
    output = tmp_path / "out.parquet"
    for command in (("scan", lake, "-w", "paid"), ("lance", "export", lake, "-c", "user_id")):
        output.write_bytes(b"precious")
        code, _, err = run(*command, "-o", output)
        assert (code, "exists already; name another file, or add --overwrite" in err) == (2, True)
        assert output.read_bytes() == b"precious"
        code, out, err = run(*command, "-o", output, "--overwrite")
        assert (code, out) == (0, "")
        what = "rows" if command[0] == "scan" else "zones"
        assert err == f"wrote {pq.read_metadata(output).num_rows:,} {what} to {output}\n"


def test_times_of_day_are_printed_to_the_nanosecond(tmp_path, run):
    times = pa.array([1, None, 86_399_999_999_999], pa.time64("ns"))
    nested = pa.StructArray.from_arrays([times], ["t"])
    pq.write_table(pa.table({"id": [1, 2, 3], "t": times, "s": nested}), tmp_path / "a.parquet")
    zb.build_index(tmp_path / "a.parquet", ["id", "t"])
    printed = [
        json.loads(line) for line in run("scan", tmp_path / "a.parquet", "-w", "id > 0", "-f", "json").out.splitlines()
    ]
    assert [row["t"] for row in printed] == ["00:00:00.000000001", None, "23:59:59.999999999"]
    assert [(row["s"] or {}).get("t") for row in printed] == [row["t"] for row in printed]
    asked = run("exists", tmp_path / "a.parquet", "-c", "t", "--values", "-", "--exact", stdin=b"23:59:59.999999999\n")
    assert asked.out.split()[-1] == "true"


def test_instants_before_standard_time_are_printed_so_that_they_are_found_again(tmp_path, run):
    """The offset of Berlin was 53 minutes and 28 seconds, which ISO 8601 has not; pytz, of pyarrow 21, rounds it."""
    seconds = pa.array([-2_840_140_800, 0]).view(pa.timestamp("s", "Europe/Berlin"))
    nested = pa.StructArray.from_arrays([seconds], ["t"])
    pq.write_table(pa.table({"t": seconds, "s": nested}), tmp_path / "a.parquet")
    zb.build_index(tmp_path / "a.parquet", "t", rows_per_zone=1)
    command = ("scan", tmp_path / "a.parquet", "-w", "TRUE", "--columns")
    header, first, last = run(*command, "t").out.splitlines()
    assert (header, last) == ("t", "1970-01-01 01:00:00+01:00")
    assert first in ("1880-01-01 00:00:00+00:00", "1880-01-01 00:53:00+00:53")
    assert json.loads(run(*command, "t,s", "-f", "json").out.splitlines()[0]) == {"t": first, "s": {"t": first}}
    values = run(*command, "t").out.encode()
    asked = run("exists", tmp_path / "a.parquet", "-c", "t", "--values", "-", "--exact", stdin=values)
    assert [line.split()[-1] for line in asked.out.splitlines()] == ["true", "true"]


def test_names_of_columns_are_a_line_of_csv(tmp_path, run):
    pq.write_table(pa.table({"a,b": [1], "c": [2], "d": [3]}), tmp_path / "x.parquet")
    zb.build_index(tmp_path, "c")
    assert run("scan", tmp_path, "-w", "c = 2", "--columns", '"a,b", d')[1] == '"a,b",d\n1,3\n'
    for text in ("", "a,,b", " "):
        code, _, err = run("scan", tmp_path, "-w", "c = 2", "--columns", text)
        assert (code, "has an empty name" in err) == (2, True)
