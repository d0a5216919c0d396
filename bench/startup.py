"""What it costs to begin: the import, `--help`, and one search by the command, as whole processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

import zonebloom as zb
from bench.data import uuids, write_files
from bench.harness import Result, compile_sources, interleaved, scratch

_EVERY_NAME = "import zonebloom\nfor name in zonebloom.__all__: getattr(zonebloom, name)"


def main() -> None:
    """Run each process in turn."""
    result = Result("startup", "Whole processes, started in turn; the files are in the page cache.")
    rng = np.random.default_rng(4)
    compile_sources()
    with scratch() as folder:
        keys = [uuids(1_000_000, rng) for _ in range(4)]
        write_files(folder, (pa.table({"key": key}) for key in keys))
        zb.build_index(folder, ["key"])
        where = f"key = '{keys[2][12_345].as_py()}'"
        kept = _output("search", str(folder), "--where", where, "--format", "json")
        assert '"kind": "at_most"' in kept
        commands = {
            "python -c pass": ["-c", "pass"],
            "import pyarrow": ["-c", "import pyarrow"],
            "import pyarrow, zonebloom": ["-c", "import pyarrow, zonebloom"],
            "every public name of zonebloom": ["-c", "import pyarrow\n" + _EVERY_NAME],
            "zonebloom --help": [*_command(), "--help"],
            "zonebloom search (one key of 4 M rows)": [*_command(), "search", str(folder), "--where", where],
            "zonebloom scan (the same)": [*_command(), "scan", str(folder), "--where", where],
            "pyarrow.dataset, full scan (the same)": ["-c", _FULL_SCAN, str(folder), where.split("'")[1]],
        }
        rounds = result.note_load(interleaved({name: _runner(args) for name, args in commands.items()}, rounds=11))
    rows = [[name, rounds.wall(name, 1e-3), rounds.cpu(name, 1e-3)] for name in commands]
    note = "Milliseconds. `every public name` loads all that the library needs to build and to search, but not Numba."
    result.table("Start-up", ["process", "wall, ms", "CPU, ms"], rows, note)
    base = rounds.wall("import pyarrow")["median"]
    extra = rounds.wall("import pyarrow, zonebloom")["median"] - base
    result.target("import zonebloom beyond pyarrow's own", max(extra, 0.0), 0.15, "s")
    every = rounds.wall("every public name of zonebloom")["median"] - base
    result.target("import of every public name beyond pyarrow's own", every, 0.15, "s")
    result.target("zonebloom --help", rounds.wall("zonebloom --help")["median"], 0.3, "s")
    search = rounds.wall("zonebloom search (one key of 4 M rows)", 1e-3)
    result.headline.append(
        ["`zonebloom search`, the whole process", f"{search['median']:.0f} ms", f"`import pyarrow` {base * 1e3:.0f} ms"]
    )
    result.save()


_FULL_SCAN = """
import sys, pyarrow.dataset as ds
found = ds.dataset(sys.argv[1]).to_table(filter=ds.field("key") == sys.argv[2])
assert len(found) == 1
"""


def _command() -> list[str]:
    script = Path(sys.executable).parent / "zonebloom"
    return [str(script)] if script.exists() else ["-m", "zonebloom"]


def _output(*arguments: str) -> str:
    command = [sys.executable, *_command(), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _runner(arguments: list[str]) -> Callable[[], object]:
    command = [sys.executable, *arguments]
    return lambda: subprocess.run(command, check=True, capture_output=True)


if __name__ == "__main__":
    main()
