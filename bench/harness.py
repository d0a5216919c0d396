"""How every bench measures: interleaved rounds on idle cores, medians with their spread, JSON that a report reads.

A round runs each case once, so that what disturbs one case disturbs all. A round during which other processes used the
cores is run again; the quietest rounds count, whatever they say. Ratios are taken within a round.

A result file is one object: `bench`, `date`, `machine`, `tables` (each `title`, `note`, `columns`, `rows`), `targets`
(`claim`, `limit`, `measured`, `unit`, `reached`) and `headline` (rows of the README's table). A cell is text, a number,
or a spread with `median`, `min`, `max`.
"""

from __future__ import annotations

import compileall
import contextlib
import gc
import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import zonebloom

RESULTS = Path(__file__).parent / "results"
NUM_CORES = len(os.sched_getaffinity(0))

_QUIET = 0.10
"""Share of the cores that others may use during a round that counts."""
_ROUNDS_TRIED = 2
"""Times the rounds asked for, after which the quietest count."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of one case."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds of all threads and of all processes below, user and system."""


@dataclass(slots=True)
class Rounds:
    """The samples of each case, in order of the rounds."""

    samples: dict[str, list[Sample]]
    others: float
    """Largest share of the cores that others used during a round that counts."""

    def wall(self, case: str, per: float = 1.0) -> dict[str, float]:
        """Seconds by the clock, divided by `per`."""
        return spread([sample.wall / per for sample in self.samples[case]])

    def cpu(self, case: str, per: float = 1.0) -> dict[str, float]:
        """Seconds of CPU, divided by `per`."""
        return spread([sample.cpu / per for sample in self.samples[case]])

    def ratio(self, case: str, base: str, kind: str = "wall") -> dict[str, float]:
        """`case` over `base`, round by round."""
        pairs = zip(self.samples[case], self.samples[base], strict=True)
        return spread([getattr(a, kind) / getattr(b, kind) for a, b in pairs])


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, least and greatest."""
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def seconds_of(case: Callable[[], Any]) -> float:
    """How long one call takes."""
    began = time.perf_counter()
    case()
    return time.perf_counter() - began


def interleaved(
    cases: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 9,
    warm_up: int = 1,
    prepare: Mapping[str, Callable[[], Any]] | None = None,
) -> Rounds:
    """Run the cases in turn, `rounds` times after `warm_up` that do not count; `prepare` runs before, untimed."""
    prepare = prepare or {}
    kept: list[tuple[float, dict[str, Sample]]] = []
    for number in range(warm_up + _ROUNDS_TRIED * rounds):
        _wait_until_quiet()
        busy, own, began = _busy(), _own_cpu(), time.perf_counter()
        together = {name: _sample(case, prepare.get(name)) for name, case in cases.items()}
        wall = time.perf_counter() - began
        others = max(0.0, (_busy() - busy) - (_own_cpu() - own)) / (wall * NUM_CORES)
        if number >= warm_up:
            kept.append((others, together))
        if sum(load <= _QUIET for load, _ in kept) >= rounds:
            break
    quietest = sorted(kept, key=lambda pair: pair[0])[:rounds]
    samples = {name: [together[name] for _, together in quietest] for name in cases}
    return Rounds(samples, round(max(load for load, _ in quietest), 3))


def _sample(case: Callable[[], Any], prepare: Callable[[], Any] | None) -> Sample:
    if prepare is not None:
        prepare()
    gc.collect()
    cpu, wall = _own_cpu(), time.perf_counter()
    case()
    wall = time.perf_counter() - wall
    return Sample(wall, _own_cpu() - cpu)


def _own_cpu() -> float:
    """Of this process, of its children that ended, and of all processes that run below it, as Spark's do."""
    import psutil  # the report and its test need nothing of the benches

    ended = os.times()
    total = time.process_time() + ended.children_user + ended.children_system
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(child.cpu_times()[:4])
    return total


def _busy() -> float:
    """Seconds of CPU that all processes used since the machine started; stolen time counts."""
    numbers = [int(ticks) for ticks in Path("/proc/stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]]
    return (sum(numbers) - numbers[3] - numbers[4]) / os.sysconf("SC_CLK_TCK")


def _wait_until_quiet(patience: float = 1.0) -> None:
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        before = _busy()
        time.sleep(0.1)
        if _busy() - before <= 0.02:
            return


@contextmanager
def scratch() -> Iterator[Path]:
    """A temporary folder for generated data, deleted at the end."""
    with TemporaryDirectory(prefix="zonebloom-bench-") as folder:
        yield Path(folder)


def compile_sources() -> None:
    """Write the project's bytecode, as pip does where it installs; before processes are timed, which might not."""
    assert compileall.compile_dir(Path(zonebloom.__file__).parent, quiet=1)


@dataclass(slots=True)
class Result:
    """What one bench found; `save` writes it."""

    bench: str
    about: str
    """One or two sentences above the tables."""
    packages: Sequence[str] = ()
    """Peers, whose versions are noted."""
    tables: list[dict[str, Any]] = field(default_factory=list)
    targets: list[dict[str, Any]] = field(default_factory=list)
    headline: list[list[Any]] = field(default_factory=list)
    others: float = 0.0

    def table(self, title: str, columns: Sequence[str], rows: Sequence[Sequence[Any]], note: str = "") -> None:
        """Add a table and print it."""
        self.tables.append({"title": title, "note": note, "columns": list(columns), "rows": [list(r) for r in rows]})
        print(f"\n{title}")
        for row in [columns, *rows]:
            print("  " + " | ".join(cell_text(cell) for cell in row))

    def target(self, claim: str, measured: float, limit: float, unit: str, *, at_most: bool = True) -> None:
        """Add a promise, reached or not, and print it."""
        reached = measured <= limit if at_most else measured >= limit
        entry = {"claim": claim, "limit": limit, "at_most": at_most, "measured": measured, "unit": unit}
        self.targets.append({**entry, "reached": reached})
        sign = "<=" if at_most else ">="
        print(f"{'reached' if reached else 'MISSED '} {claim}: {measured:.3g} {unit}, asked {sign} {limit:g}")

    def note_load(self, rounds: Rounds) -> Rounds:
        """Remember how busy the cores were."""
        self.others = max(self.others, rounds.others)
        return rounds

    def save(self) -> None:
        """Write `bench/results/<bench>.json`."""
        document = {
            "bench": self.bench,
            "about": self.about,
            "date": datetime.now(UTC).date().isoformat(),
            "machine": machine(self.packages),
            "others": self.others,
            "targets": self.targets,
            "headline": self.headline,
            "tables": self.tables,
        }
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(document, indent=1, ensure_ascii=False, default=float)
        (RESULTS / f"{self.bench}.json").write_text(text + "\n", encoding="utf-8")


def machine(packages: Sequence[str] = ()) -> dict[str, Any]:
    """The machine and the versions, without names or paths."""
    cpu = [line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if "model name" in line]
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    wanted = ["numba", "numpy", "pyarrow", *packages]
    return {
        "cpu": cpu[0].split(":", 1)[1].strip() if cpu else platform.machine(),
        "cores": NUM_CORES,
        "memory_gib": round(pages / 2**30),
        "system": platform.system(),
        "python": platform.python_version(),
        "packages": {name: metadata.version(name) for name in dict.fromkeys(wanted)},
    }


def cell_text(cell: Any) -> str:
    """A cell as text: three digits that count; a spread as `median (min..max)`."""
    if isinstance(cell, dict):
        return f"{_digits(cell['median'])} ({_digits(cell['min'])}..{_digits(cell['max'])})"
    if isinstance(cell, bool) or not isinstance(cell, (int, float)):
        return str(cell)
    return f"{cell:,}" if isinstance(cell, int) else _digits(cell)


def _digits(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"
