"""Mistakes that people make first, and their messages: one line, in the words of the command, with what to do.

Oracle: the table below, which was written from what newcomers tried.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys

import duckdb
import polars as pl
import pytest

import zonebloom as zb

UUID = "dc7a4f74-babd-4630-ad5c-06b9f37f4a5d"


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A lake with odd names and an index, one without an index, a folder of CSV, one that Polars wrote."""
    root = tmp_path_factory.mktemp("messages")
    columns = """uuid() as user_id, i as amount, 'x' as "e-mail", [i] as tags, {'ip': 'a'} as device, i % 2 as day"""
    for name in ("lake", "bare"):
        duckdb.sql(
            f"copy (select {columns} from range(50) t(i)) to '{root}/{name}' (format parquet, partition_by (day))"
        )
    zb.build_index(root / "lake", "user_id")
    (root / "csv").mkdir()
    (root / "csv" / "planes.csv").write_text("a,b\n1,2\n")
    pl.DataFrame({"carrier": ["UA"], "x": [1]}).write_parquet(f"{root}/polars", partition_by="carrier")
    zb.build_index(root / "polars", "x")
    return root


SEARCHES = [
    ("user_id =", "the condition cannot be read"),
    ("WHERE user_id = 'x'", "near 'WHERE' at character 1: WHERE user_id = 'x'; leave the word WHERE away"),
    ("user_id = 'x", "a quote is not closed"),
    (f"user_id = {UUID}", "put the text in single quotes"),
    (f'user_id = "{UUID}"', "text goes in single quotes"),
    ("e-mail = 'x'", 'a name with - goes in double quotes, as "e-mail"'),
    ("device['ip'] = 'a'", "a field of a struct is written device.ip"),
    (f"USER_ID = '{UUID}'", "did you mean user_id? Names are case-sensitive"),
    ("user_id", "compare the column with a value, as in user_id = …"),
    ("user_id = 5", "write it as text, '5'"),
    ("user_id = 'zzz'", "column user_id holds uuid, got the text 'zzz'"),
    ("year(amount) = 2024", "YEAR(amount) cannot be evaluated; use = == !="),
]
COMMANDS = [
    ("search {}/lakee -w x=1", 2, "no data set and no index at {}/lakee"),
    ("search {}/bare -w x=1", 2, "no index beside {}/bare or in it; make one with `zonebloom build`"),
    ("delete {}/bare --yes", 2, "no index beside {}/bare or in it: nothing to remove"),
    ("vacuum {}/bare", 2, "no index beside {}/bare or in it: nothing to remove"),
    ("build {}/lake -c user_id", 2, "is already indexed at", "refresh` brings it up to date; or add --overwrite"),
    ("build {}/lake -c day", 2, "day is a partition column"),
    ("build {}/lake -c tags", 2, "must be of a type that can be hashed, got list"),
    ("build {}/csv -c a", 1, "no Parquet file that can be read", "planes.csv"),
    ("build {}/lake/*.parquet -c a", 1, "give the folder: globs are not read"),
    ("build {}/nowhere -c a", 1, "/nowhere does not exist"),
    ("search {}/lake -w user_id = 'x'", 2, "put the whole condition in quotes"),
    ("search {}/lake -c user_id", 2, "a column without values; give --where"),
    ("scan {}/lake --values /dev/null", 2, "--values needs --column"),
    ("search {}/lake", 2, "no condition to search for; give --where"),
    ("search {}/lake -w amount=5 -f xml", 2, "'xml' is not one of"),
    ("build {}/lake -c user_id,amount", 2, "name each column by itself: user_id and amount"),
    ("build {}/lake -c user_id --fpp 1e-300", 2, "1e-300 is not in the range 1e-12<=x<1"),
    ("buidl {}/lake", 2, "No such command 'buidl'"),
    ("scan {}/lake -w amount=5 --columns amuont", 2, "did you mean amount"),
    ("scan {}/lake -w amount=5 -o {}/out.txt", 2, "/out.txt does not end in .csv or .arrow or .parquet"),
    (
        "scan {}/lake -w amount=5 -o {}/no/x.arrow",
        2,
        "be in a folder that exists, got {}/no/x.arrow; make the folder\n",
    ),
    ("exists {}/lake -c userid --values /dev/null", 2, "did you mean user_id"),
    ("restore {}/lake 9", 2, "no version 9 is kept; versions: 1"),
    ("exists {}/lake -c user_id --values /nowhere", 2, "--values /nowhere cannot be read: No such file"),
    ("verify {}/lake --sample 0", 2, "'--sample': 0.0 is not in the range 0<x<=1"),
    ("build {}/lake -c nothing", 2, "no column nothing in the data"),
    ("build {}/lake -c amount -c amount", 2, "different names"),
    ("whatif {}/lake -c day", 2, "day is a partition column"),
    ("exists {}/lake -c day --values /dev/null", 2, "search or scan by it: a partition column needs no index"),
    ("scan {}/lake", 2, "give --where"),
    ("refresh {}/lake --partition day=9", 2, "no file has day=9"),
    ("report {}/lake -o {}/r", 2, "--output {}/r does not end in .html"),
    ("search {}/lake --older-than 7d", 2, "No such option"),
    ("lance export {}/lake -c user_id", 2, "{}/lake is no Lance table; --output FILE writes its zones to a file"),
    ("lance import {}/bare -c user_id", 2, "{}/bare is no Lance table; --input FILE takes exported zones"),
    ("lance import {}/bare -c user_id --input x.arrow --overwrite", 2, "table's own index, not for --input"),
    ("vacuum {}/lake --older-than 7days", 2, "--older-than '7days' is no time; write 7d, 12h or 30m"),
    ("lance export {}/lake -c amount -o {}/x.arrow", 2, "amount is not indexed; zonebloom build PATH --column amount"),
]


@pytest.mark.parametrize(("where", "told"), SEARCHES)
def test_conditions(data, run, where, told):
    """tests/whole/test_one_policy.py has that a scan and an explanation say the same."""
    code, out, err = run("search", data / "lake", "-w", where)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert told in err
    assert "; None" not in err


@pytest.mark.parametrize(("line", "code", "told"), [(line, code, told) for line, code, *told in COMMANDS])
def test_commands(data, run, line, code, told):
    status, out, err = run(*line.replace("{}", str(data)).split())
    assert (status, out, err.count("\n")) == (code, "", 1)
    assert err.startswith("zonebloom: ")
    assert all(text.replace("{}", str(data)) in err for text in told)
    assert not (data / "out.txt").exists()
    assert not {"index=", "overwrite=True", "build_index", "dataset="} & set(err.replace("(", " ").split())


def test_a_place_that_cannot_be_written_names_the_option(data, run, monkeypatch):
    def refused(*_arguments, **_options):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("pathlib.Path.mkdir", refused)  # root may write anywhere
    code, _, err = run("build", str(data / "bare"), "-c", "user_id")
    assert (code, err.count("\n")) == (1, 1)
    assert "an index can also be elsewhere, by --index FOLDER" in err


def test_advice_of_a_locator_without_filters_is_a_command(data, run, tmp_path):
    index = zb.build_index(data / "bare", "user_id", kind="locator", index=tmp_path / "index")
    with pytest.raises(zb.ZoneBloomError, match='mode="full", kind="both"'):
        index.zone_table("user_id")
    options = ("-c", "user_id", "--index", tmp_path / "index", "-o", tmp_path / "x.arrow")
    told = run("lance", "export", data / "bare", *options).err
    assert "`zonebloom refresh PATH --mode full --kind both`" in told


def test_files_without_filters_of_their_own_say_how_to_get_some(data, run):
    told = "no file has one; `zonebloom add-blooms` writes copies that do\n"
    assert run("blooms", data / "polars") == (0, "", told)


def test_rows_without_a_condition_need_a_limit(data, run):
    code, out, _ = run("scan", str(data / "lake"), "--limit", "3", "--columns", "amount")
    assert (code, out.count("\n")) == (0, 4)


def test_a_terminal_gets_colours_and_bars_if_it_wants_any(data):
    code = "import sys\nfrom zonebloom import cli\nsys.argv = ['zonebloom', *sys.argv[1:]]\ncli.run()"
    command = [sys.executable, "-c", code, "explain", str(data / "lake"), "-w", "amount = 5"]
    for environment, signs in (({}, True), ({"NO_COLOR": "1"}, False)):
        ours, theirs = os.openpty()
        subprocess.run(command, stdout=theirs, check=True, env={**os.environ, "NO_COLOR": "", **environment})
        os.close(theirs)
        printed = os.read(ours, 1 << 16).decode()
        assert ("█" in printed, "\x1b[1m" in printed) == (signs, signs)


def test_advice_of_explain_is_a_command(data, run):
    _, out, _ = run("explain", str(data / "lake"), "-w", "amount = 5")
    assert "zonebloom build PATH --column amount" in " ".join(out.split())
    _, out, _ = run("explain", str(data / "polars"), "-w", "carrier = 'UA'")
    assert "PARTITION_COLUMN_IN_FILE (carrier): column carrier is stored in the files as well" in " ".join(out.split())


def test_a_refresh_of_what_never_was_says_so(data, run):
    for path, told in (("month_77.parquet", ", neither in the data set nor in the index"), ("day=9", "")):
        code, _, err = run("refresh", str(data / "lake"), "--path", path)
        assert (code, err.count("\n"), f"no file is at {path}{told}" in err) == (0, 1, True)


def test_whatif_takes_several_columns_as_build_does(data, run):
    code, out, _ = run("whatif", str(data / "lake"), "-c", "amount", "-c", "user_id")
    assert code == 0
    assert re.findall(r"  column +(\w+)", out) == ["amount", "user_id"]
    assert run("whatif", data / "lake", "-c", "tags")[0] == 2, "as a build"


def test_a_build_says_where_the_index_is_and_what_was_skipped(data, run, tmp_path):
    hidden = data / "bare" / "_old"
    hidden.mkdir(exist_ok=True)
    (hidden / "x.parquet").write_bytes(b"PAR1")
    code, out, err = run("build", str(data / "bare"), "-c", "amount", "--index", str(tmp_path / "index"))
    assert code == 0
    assert f"the index is {tmp_path / 'index'}" in out
    assert "skipped: 1 Parquet file (names that begin with _ or .)" in err
    assert "skipped: 1 Parquet file" in run("status", str(data / "bare"), "--index", str(tmp_path / "index"))[1]


ONE_OF_MANY = re.compile(
    r"\b1 (?:[a-z]+ ){0,4}(?:file|row|zone|version|segment|filter|value|range|key|block|column)s\b"
)


def test_one_of_a_thing_is_told_in_the_singular(tmp_path, run):
    """Over a lake of one file of one row, and one new file and one that cannot be read."""
    (tmp_path / "lake").mkdir()
    frame = pl.DataFrame({"id": [1]})
    commands = [
        *("whatif {} -c id", "build {} -c id --kind both", "build {} -c id --dry-run"),
        *(f"{name} {{}} -w id=1" for name in ("search", "scan", "explain")),
        *(f"{name} {{}}" for name in ("status", "verify", "blooms", "versions")),
        *(f"{name} {{}} --dry-run" for name in ("refresh", "optimize", "vacuum", "delete")),
        *(
            "lance export {} -c id -o {}/../zones.arrow --overwrite",
            "scan {} -w id=1 -o {}/../rows.parquet --overwrite",
        ),
        *("refresh {}", "optimize {}", "vacuum {} --older-than 0d", "delete {} --yes"),
    ]
    said = []
    frame.write_parquet(tmp_path / "lake" / "a.parquet")
    for after in ("build", "new file"):
        if after == "new file":
            frame.write_parquet(tmp_path / "lake" / "b.parquet")
            (tmp_path / "lake" / "c.parquet").write_bytes(b"PAR1")
            (tmp_path / "lake" / "_d.parquet").write_bytes(b"")
        for command in commands:
            done = run(*command.replace("{}", str(tmp_path / "lake")).split())
            said += [(command, match[0]) for match in ONE_OF_MANY.finditer(done.out + done.err)]
    assert said == []
