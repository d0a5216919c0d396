"""What README.md shows runs as it is printed there. The oracle is the text itself."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from click.testing import CliRunner

from zonebloom import cli
from zonebloom.cli import demo

BLOCKS = re.findall(
    r"^```\w*\n(.*?)^```", (Path(__file__).parent.parent / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
)
(COMMANDS,) = (block.splitlines() for block in BLOCKS if block.startswith("zonebloom build"))


def without_sizes(text: str) -> str:
    """How many bytes the files have depends on the version of pyarrow that wrote them; times depend on the machine."""
    return re.sub(r"(  bytes +)\S+( of +)\S+|\S+ ms", r"\1…\2…", text)


def test_the_first_example_prints_what_it_says(tmp_path, monkeypatch):
    example, printed = BLOCKS[:2]
    monkeypatch.chdir(tmp_path)
    demo._write_lake(Path("events"), 4_000_000, 8)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(example, {})
    assert without_sizes(out.getvalue()) == without_sizes(printed)
    assert "at_most 1 of 496 zones" in printed


def test_every_command_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder in ("events", "copy-of-events"):
        Path(folder).mkdir()
        users = [f"u-{number}" for number in range(20_000)]
        pq.write_table(pa.table({"user_id": users, "amount": range(20_000)}), f"{folder}/part-0.parquet")
    Path("ids.txt").write_text("u-1\nnobody\n")
    for line in COMMANDS:
        program, *arguments = shlex.split(line, comments=True)
        if arguments == ["demo"]:  # tests/test_demo.py runs a small one
            continue
        done = CliRunner().invoke(cli.app, arguments)
        assert (program, done.exit_code) == ("zonebloom", 0), (line, done.output)
    assert Path("_copy-of-events.zonebloom").is_dir()


def test_every_command_is_named():
    named = set(re.findall(r"\w+", "\n".join(COMMANDS)))
    assert set(cli.app.commands) <= named
