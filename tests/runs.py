"""What runs of the suite printed, kept in docs/runs.json, and their table in docs/compatibility.md.

`make test RECORD=1` keeps its run if no test failed, as every target with tests does. A later run of the same command
on the same Python takes its place.
"""

from __future__ import annotations

import json
import os
import platform
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent.parent / "docs"
RUNS = DOCS / "runs.json"
_PACKAGES = ("pyarrow", "numpy", "numba", "pyspark", "daft", "ray")
_MARKS = ("<!-- runs:begin -->", "<!-- runs:end -->")


def record(counts: Mapping[str, int], command: str, path: Path = RUNS) -> None:
    """Keep a run: the number of tests by outcome, and `command`, which started it."""
    run = {
        "date": datetime.now(UTC).date().isoformat(),
        "command": command,
        "platform": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version() + (" free-threaded" if sysconfig.get_config_var("Py_GIL_DISABLED") else ""),
        "with": dict(_versions()),
        "passed": counts.get("passed", 0),
        "left_out": counts.get("skipped", 0),
    }
    others = [other for other in load(path) if _key(other) != _key(run)]
    path.write_text(json.dumps(sorted([*others, run], key=_key), indent=1) + "\n", "utf-8")


def load(path: Path = RUNS) -> list[dict[str, Any]]:
    """All runs that were kept."""
    return json.loads(path.read_text("utf-8")) if path.exists() else []


def table(runs: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Lines of Markdown, a row for each run."""
    yield "| command | platform | Python | with | date | passed | left out by name |"
    yield "|---|---|---|---|---|---|---|"
    for run in runs:
        packages = ", ".join(f"{name} {number}" for name, number in run["with"].items())
        counts = " | ".join(f"{run[name]:,}" for name in ("passed", "left_out"))
        yield f"| `{run['command']}` | {run['platform']} | {run['python']} | {packages} | {run['date']} | {counts} |"


def page_with(runs: Sequence[Mapping[str, Any]], page: str) -> str:
    """The text of a page with the table of `runs` between its marks."""
    before, _, rest = page.partition(_MARKS[0])
    after = rest.partition(_MARKS[1])[2]
    return "\n".join([before + _MARKS[0], *table(runs), _MARKS[1] + after])


def finished(counts: Mapping[str, int]) -> None:
    """Keep this run, in which no test failed, if its command asked for that, and write the table anew."""
    command = os.environ.get("ZONEBLOOM_RECORD")
    if command and not (counts.get("failed") or counts.get("error")):
        record(counts, command)
        page = DOCS / "compatibility.md"
        page.write_text(page_with(load(), page.read_text("utf-8")), "utf-8")


def _key(run: Mapping[str, Any]) -> tuple[str, ...]:
    return run["command"], run["platform"], run["python"]


def _versions() -> Iterator[tuple[str, str]]:
    for name in _PACKAGES:
        try:
            yield name, version(name)
        except PackageNotFoundError:
            continue
