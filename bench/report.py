"""The tables of bench/README.md, and the two of README.md between their markers, from bench/results/*.json.

Nothing in either is typed: change a result by running its bench. `python -m bench.report`
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.harness import RESULTS, cell_text

ORDER = (
    *("demo", "kernels", "emitters", "build", "memory", "startup", "search", "pages", "slices", "growth"),
    *("lance", "refresh", "choose", "locator", "billion", "upserts"),
    *("stores", "rounds", "large_lakes", "doors", "engines"),
    *("spark_build", "spark_lookup_40_string", "spark_lookup_400_long", "spark_choice", "spark_files", "spark_join"),
)
HERE = Path(__file__).parent
HEADLINE = {
    r"build the index of ([\d,]+) UUID strings, (\d+) workers\|(.+)\|([\d.]+) x a one-thread read of that column": (
        r"index \1 ids of 36 characters, \2 cores|\3|\4 times as long as reading the column with one thread"
    ),
    r"one UUID, present, among ([\d,]+) rows.*\|(.+)\|duckdb (.+)": (
        r"read the rows of one id, among \1 rows|\2|DuckDB \3"
    ),
    r"one UUID, absent, among ([\d,]+) rows.*\|(.+)\|duckdb (.+)": (
        r"see that an id is nowhere, among \1 rows|\2|DuckDB \3"
    ),
    r"20 values: in every zone, among .*\|(.+)\|duckdb (.+)": (
        r"read the rows of 20 values that are in every zone|\1|DuckDB \2"
    ),
    r"a new process, one key, ([\d,]+) files in an object store of (\d+) ms\|(.+)\|(.+)": (
        r"read the rows of one id, \1 files in an object store of \2 ms|\3|\4"
    ),
    r"Spark: one long key among (\d+) files, the whole query\|(.+)\|(.+)": (
        r"Spark: read the rows of one id, \1 files|\2|\3"
    ),
}
"""Rows of the README's table: what a headline must be, its cells joined by bars, and its plain words."""


def main() -> None:
    """Write both files."""
    results = load()
    (HERE / "README.md").write_text("\n".join(full_report(results)), encoding="utf-8")
    readme = HERE.parent / "README.md"
    text = with_table(readme.read_text(encoding="utf-8"), "bench", headline(results))
    readme.write_text(text, encoding="utf-8")


def load() -> list[dict[str, Any]]:
    """The results that there are, in reading order."""
    results = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(RESULTS.glob("*.json"))}
    names = [name for name in ORDER if name in results] + [name for name in results if name not in ORDER]
    return [normal(name, results[name]) for name in names]


def normal(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """`document` with all fields that the report reads."""
    empty = {"bench": name, "about": "", "machine": {}, "targets": [], "headline": [], "tables": [], "others": 0.0}
    if "tables" in document:
        return empty | document
    return empty | _of_kernels(document)


def _of_kernels(document: dict[str, Any]) -> dict[str, Any]:
    """The kernel bench keeps one object a case, with the time of each contender."""
    cases = document["results"]
    contenders = list(cases[0]["ns_per_key"])
    rows = [
        [
            case["case"],
            case["rows"],
            *(case["ns_per_key"].get(name, "-") for name in contenders),
            case.get("ratio_to_c") or "-",
            case["times_faster_than_plain_numba"],
            case["fpp_counted"],
            case["fpp_measured"],
        ]
        for case in cases
    ]
    columns = ["column", "rows", *(f"{name}, ns/key" for name in contenders)]
    columns += ["ours / C", "faster than plain Numba", "fpp by its bits", "fpp measured"]
    title = "Hash and insert a column into zone filters"
    note = "The filters of all contenders are equal, bit for bit (asserted)."
    targets = []
    for case in cases[:2]:
        if case.get("ratio_to_c"):
            targets.append(
                _target(f"hash + insert, {case['case']}, to the best C", case["ratio_to_c"], 1.1, at_most=True)
            )
        faster = case["times_faster_than_plain_numba"]
        targets.append(_target(f"hash + insert, {case['case']}, faster than plain Numba", faster, 3.0, at_most=False))
    vectors = "with" if document["environment"]["fast_vectors"] else "without"
    return {
        "about": f"Kernels on data in memory, one thread, {vectors} AVX-512.",
        "targets": targets,
        "tables": [{"title": title, "note": note, "columns": columns, "rows": rows}],
    }


def _target(claim: str, measured: float, limit: float, *, at_most: bool) -> dict[str, Any]:
    reached = measured <= limit if at_most else measured >= limit
    return {"claim": claim, "measured": measured, "limit": limit, "at_most": at_most, "unit": "x", "reached": reached}


def full_report(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Lines of bench/README.md."""
    yield "# Benchmarks"
    yield ""
    yield "Written by `python -m bench.report` from `bench/results/*.json`; run `python -m bench.build` and so on to"
    yield "measure. Rounds are interleaved, and run again where other processes used the cores; cells are medians"
    yield "(min..max), ratios are taken within a round. Answers and filters are compared inside each bench. Data is"
    yield "generated, and deleted afterwards."
    machines = [result["machine"] for result in results if result["machine"]]
    if machines:
        machine = machines[0]
        versions = {name: version for other in machines for name, version in other["packages"].items()}
        packages = ", ".join(f"{name} {version}" for name, version in versions.items())
        yield ""
        yield f"Machines have {machine['cores']} cores and {machine['memory_gib']} GiB, {machine['system']};"
        yield f"Python {machine['python']}, {packages}."
    for result in results:
        yield ""
        yield f"## {result['bench']}"
        if result["about"]:
            yield ""
            yield result["about"]
        if (HERE / f"{result['bench']}.png").exists():
            yield ""
            yield f"![{result['about']}]({result['bench']}.png)"
        if result["machine"]:
            yield ""
            yield f"Measured {result['date']} on {result['machine']['cpu']}."
        if result["others"] > 0.1:
            yield ""
            yield f"Other processes used up to {result['others']:.0%} of the cores: read the ratios, not the times."
        for table in result["tables"]:
            yield ""
            yield f"### {table['title']}"
            yield ""
            yield from _table(table["columns"], table["rows"])
            if table["note"]:
                yield ""
                yield table["note"]
    targets = [target for result in results for target in result["targets"]]
    if targets:
        yield ""
        yield "## Targets"
        yield ""
        yield from _table(["", "measured", "target", ""], [_target_row(target) for target in targets])
    yield ""


def _target_row(target: dict[str, Any]) -> list[str]:
    sign = "≤" if target["at_most"] else "≥"
    unit = target["unit"]
    measured, limit = cell_text(float(target["measured"])), cell_text(float(target["limit"]))
    return [
        target["claim"],
        f"{measured} {unit}",
        f"{sign} {limit} {unit}",
        "reached" if target["reached"] else "**missed**",
    ]


def headline(results: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of the README's table."""
    lines = ["|".join(map(cell_text, row)) for result in results for row in result["headline"]]
    rows = [
        match.expand(plain) for must, plain in HEADLINE.items() for line in lines if (match := re.match(must, line))
    ]
    if len(rows) != len(HEADLINE):
        raise ValueError(f"each of {len(HEADLINE)} patterns must match one headline, got {len(rows)} rows: {rows}")
    return list(_table(["", "with zonebloom", "without"], [row.split("|") for row in rows]))


def with_table(text: str, name: str, lines: Sequence[str]) -> str:
    """`text` with `lines` between the markers of a table.

    >>> with_table("a\\n<!-- bench:begin -->\\nold\\n<!-- bench:end -->\\nb", "bench", ["new"])
    'a\\n<!-- bench:begin -->\\nnew\\n<!-- bench:end -->\\nb'
    """
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    before, rest = text.split(begin, 1)
    _, after = rest.split(end, 1)
    return before + "\n".join([begin, *lines, end]) + after


def _table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> Iterator[str]:
    yield "| " + " | ".join(columns) + " |"
    yield "|" + "---|" * len(columns)
    for row in rows:
        yield "| " + " | ".join(cell_text(cell).replace("|", "\\|") for cell in row) + " |"


if __name__ == "__main__":
    main()
