"""What the demo's searches must read: the table of README.md. `python -m bench.demo`"""

from __future__ import annotations

from bench.harness import Result
from zonebloom.cli.demo import run_demo


def main() -> None:
    """Run the demo as `zonebloom demo` does, and keep what each search must read; answers are compared inside."""
    report = run_demo()
    total = report.searches[0].total
    whole = f"{total.bytes / 1e6:,.0f} MB"
    columns = ["search", "rows that match", f"zones to read, of {total.zones:,}", f"MB of their row groups, of {whole}"]
    rows = [
        [search.title, search.num_matches, search.kept.zones, f"{search.kept.bytes / 1e6:,.1f}"]
        for search in report.searches
    ]
    result = Result("demo", f"`zonebloom demo`: {report.num_rows:,} events with random keys, {report.num_files} files.")
    result.table("What must be read", columns, rows, "Every answer equals the full scan's.")
    result.save()


if __name__ == "__main__":
    main()
