"""The command `zonebloom`.

JSON goes to stdout alone, progress and warnings to stderr. Exit status: 0, 1 where data or the environment are at
fault, 2 for the caller's mistake; one line on stderr, a traceback only with `--verbose`.
"""

from __future__ import annotations

import json
import math
import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zonebloom import errors
from zonebloom.sizing import Sizing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["app", "main"]

app = typer.Typer(
    name="zonebloom",
    help="Find which rows of a data lake can hold a value.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

_FORMATS = ("text", "json")
_CALLERS_MISTAKES = (ValueError, TypeError, LookupError, ImportError)


def _check_format(value: str) -> str:
    if value not in _FORMATS:
        raise typer.BadParameter(f"must be one of {', '.join(_FORMATS)}, got {value}")
    return value


Source = Annotated[Path, typer.Argument(metavar="PATH", help="Folder of Parquet files, one file, or an index folder.")]
Where = Annotated[str, typer.Option("--where", "-w", help="Predicate, as in SQL: \"user_id = 'u-1' AND day = 3\".")]
Format = Annotated[str, typer.Option("--format", "-f", callback=_check_format, help="text or json.")]
IndexFolder = Annotated[Path | None, typer.Option("--index", help="Folder of the index, if not beside the data.")]
Strict = Annotated[bool, typer.Option("--strict", help="Fail where files are new or changed since the last refresh.")]
Column = Annotated[str, typer.Option("--column", "-c", help="An indexed column.")]


@app.callback()
def _options(
    verbose: Annotated[bool, typer.Option("--verbose", help="Show tracebacks.")] = False,  # noqa: FBT002 - a flag
) -> None:
    """Find which rows of a data lake can hold a value."""
    _State.verbose = verbose


class _State:
    verbose = False


def _print_json(document: Any, *, indent: int | None = 2) -> None:
    try:
        text = json.dumps(document, indent=indent, ensure_ascii=False, default=str, allow_nan=False)
    except ValueError:  # JSON has no NaN and no infinity
        text = json.dumps(_without_nan(document), indent=indent, ensure_ascii=False, default=str)
    typer.echo(text)


def _without_nan(value: Any) -> Any:
    """`value` with null for each float that is not finite, as JavaScript has it."""
    if isinstance(value, dict):
        return {key: _without_nan(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _open(path: Path, index: Path | None) -> Any:
    from zonebloom.index import open_index  # noqa: PLC0415 - `--help` must not load Arrow

    return open_index(index or path)


@app.command()
def build(
    path: Source,
    column: Annotated[list[str], typer.Option("--column", "-c", help="Column to index; may be given again.")],
    rows_per_zone: Annotated[int, typer.Option(help="Rows of a zone.")] = 8192,
    fpp: Annotated[float, typer.Option(help="False positive probability of a zone, in (0, 1).")] = 0.00057,
    sizing: Annotated[Sizing, typer.Option(help="power_of_two, exact, adaptive or parquet.")] = "power_of_two",
    index: IndexFolder = None,
    workers: Annotated[int | None, typer.Option(help="Threads; by default the number of cores.")] = None,
    levels: Annotated[str, typer.Option(help="zone, and fragment or dataset above it, separated by commas.")] = "zone",
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Build indexed columns anew.")] = False,  # noqa: FBT002
    optimize: Annotated[bool, typer.Option(help="Slice columns of more than 4096 zones at the end.")] = True,  # noqa: FBT002
    format: Format = "text",  # noqa: A002 - the option's name
) -> None:
    """Build an index over columns of PATH; data files are only read."""
    from zonebloom.creating import build_index  # noqa: PLC0415 - `--help` must not load Arrow

    started = time.perf_counter()
    built = build_index(
        path,
        column,
        rows_per_zone=rows_per_zone,
        fpp=fpp,
        sizing=sizing,
        index=index,
        workers=workers,
        overwrite=overwrite,
        optimize=optimize,
        levels=[name.strip() for name in levels.split(",")],
        progress=sys.stderr.isatty(),
    )
    info = built.info()
    if format == "json":
        _print_json(info)
        return
    elapsed = time.perf_counter() - started
    speed = info["num_rows"] / elapsed
    typer.echo(f"indexed {info['num_rows']:,} rows of {info['num_fragments']:,} files, {speed:,.0f} rows/s")
    _print_info(info)


@app.command()
def search(
    path: Source,
    where: Where,
    strict: Strict = False,  # noqa: FBT002 - a flag
    index: IndexFolder = None,
    format: Format = "text",  # noqa: A002
) -> None:
    """Print the files and row ranges that can match; the rest certainly do not."""
    found = _open(path, index).search(where, strict=strict)
    if format == "json":
        _print_json(found.to_dict())
        return
    kept, total = found.kept, found.total
    for row in found.to_dict()["row_ranges"]:
        typer.echo(f"{row['path']}\t{row['start']}\t{row['stop']}")
    typer.echo(
        f"{found.kind}: {kept.files:,} of {total.files:,} files, {kept.zones:,} of {total.zones:,} zones, "
        f"{kept.rows:,} of {total.rows:,} rows, {kept.bytes:,} of {total.bytes:,} bytes",
        err=True,
    )
    for reason in found.reasons:
        typer.echo(f"{reason.code}: {reason.message}", err=True)


@app.command()
def scan(
    path: Source,
    where: Where,
    columns: Annotated[str | None, typer.Option("--columns", help="Columns to print, separated by commas.")] = None,
    limit: Annotated[int | None, typer.Option(help="Stop after so many rows.")] = None,
    output: Annotated[Path | None, typer.Option("--output", "-o", help="Write .arrow or .parquet instead.")] = None,
    strict: Strict = False,  # noqa: FBT002 - a flag
    index: IndexFolder = None,
    format: Format = "text",  # noqa: A002
) -> None:
    """Print the rows that match, as a full scan would find them: CSV, or one JSON object a line."""
    names = columns.split(",") if columns else None
    reader = _open(path, index).scan(where, columns=names, limit=limit, strict=strict)
    if output is not None:
        _write(reader.read_all(), output)
        return
    if format == "json":
        for batch in reader:
            for row in _python_rows(batch):
                _print_json(row, indent=None)
        return
    _print_csv(reader)


def _print_csv(reader: pa.RecordBatchReader) -> None:
    import csv  # noqa: PLC0415 - only here

    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(reader.schema.names)
    for batch in reader:
        writer.writerows(row.values() for row in _python_rows(batch))


def _python_rows(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    """The rows of `batch`; times in nanoseconds, which Python has none of, as text."""
    try:
        rows: list[dict[str, Any]] = batch.to_pylist()
    except ValueError:
        from zonebloom.arrays import python_value  # noqa: PLC0415 - rarely needed

        names = batch.schema.names
        rows = [{name: python_value(batch[name][i]) for name in names} for i in range(batch.num_rows)]
    return rows


@app.command()
def exists(
    path: Source,
    column: Column,
    values: Annotated[Path, typer.Option("--values", help="Text (one value a line), .arrow or .parquet (1st column).")],
    exact: Annotated[bool, typer.Option("--exact", help="Read the candidates: true is certain.")] = False,  # noqa: FBT002
    index: IndexFolder = None,
    format: Format = "text",  # noqa: A002
) -> None:
    """For each value of a file, say whether the column may hold it; false is certain."""
    opened = _open(path, index)
    wanted = _read_values(values, opened, column)
    found = opened.exists(column, wanted, exact=exact)
    if format == "json":
        rows = zip(wanted.to_pylist(), found.to_pylist(), strict=True)
        _print_json([{"value": value, "exists": answer} for value, answer in rows])
        return
    for value, answer in zip(wanted.to_pylist(), found.to_pylist(), strict=True):
        typer.echo(f"{value}\t{str(answer).lower()}")
    typer.echo(f"{found.true_count:,} of {len(found):,} may exist", err=True)


def _read_values(path: Path, index: Any, column: str) -> pa.Array:
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow

    if path.suffix in (".arrow", ".parquet"):
        table = _read(path)
        if not table.num_columns:
            raise errors.InvalidArgumentError(f"--values must have a column, got {path}, which has none")
        return table.column(0).combine_chunks()
    try:
        lines = path.read_text(encoding="utf-8").split("\n")  # splitlines() also cuts at characters inside a value
    except (OSError, UnicodeDecodeError) as error:
        raise errors.InvalidArgumentError(f"--values must be a readable file of UTF-8, got {path}: {error}") from error
    wanted = index.column_type(column)
    texts = pa.array([line for line in lines if line], pa.string())
    try:
        return texts if pa.types.is_string(wanted) or pa.types.is_large_string(wanted) else texts.cast(wanted)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise errors.InvalidArgumentError(f"each line of {path} must be a {wanted}, got: {error}") from error


@app.command()
def explain(path: Source, where: Where, index: IndexFolder = None, format: Format = "text") -> None:  # noqa: A002
    """Print the funnel of a search, and a reason for each part that was not pruned."""
    found = _open(path, index).explain(where)
    if format == "json":
        _print_json(found.to_dict())
    else:
        typer.echo(str(found))


@app.command()
def info(path: Source, index: IndexFolder = None, format: Format = "text") -> None:  # noqa: A002
    """Print version, counts, and the parameters and size of each column."""
    found = _open(path, index).info()
    if format == "json":
        _print_json(found)
        return
    typer.echo(f"index    {found['index']}\ndata set {found['dataset']}")
    typer.echo(f"version {found['version']}, {found['num_fragments']:,} files, {found['num_rows']:,} rows")
    _print_info(found)


def _print_info(found: dict[str, Any]) -> None:
    for column in found["columns"]:
        typer.echo(
            f"  {column['name']} {column['type']}: {column['num_zones']:,} zones of {column['rows_per_zone']:,} rows, "
            f"fpp {column['fpp']}, {column['sizing']}, {column['index_bytes']:,} bytes "
            f"({column['bytes_per_row']:.2f} a row) in {_kinds(column['kinds'])}"
        )
        for level in column["levels"]:
            typer.echo(
                f"    level {level['name']}: {level['num_filters']:,} filters of {level['num_values']:,} values, "
                f"fpp {level['fpp']:.2g}, {level['index_bytes']:,} bytes"
            )


def _kinds(kinds: dict[str, int]) -> str:
    parts = [f"{count} {kind.rstrip('s')} segment{'s' if count > 1 else ''}" for kind, count in kinds.items()]
    return " and ".join(parts) or "no segments"


@app.command()
def optimize(path: Source, index: IndexFolder = None, format: Format = "text") -> None:  # noqa: A002
    """Merge segments into few slice segments, of which a search reads some rows; answers stay the same."""
    done = _open(path, index).optimize()
    if format == "json":
        _print_json(done.to_dict())
        return
    if not done.columns:
        typer.echo(f"nothing to do: version {done.version} stays")
        return
    typer.echo(f"version {done.version}")
    for column in done.columns:
        typer.echo(
            f"  {column.name}: {column.num_zones_rewritten:,} zones rewritten, {column.num_zones_dropped:,} dropped; "
            f"{column.num_segments_before:,} segments became {column.num_segments:,}, "
            f"{column.index_bytes_before:,} bytes became {column.index_bytes:,}"
        )
        for message in column.damage:
            typer.echo(f"  damaged, left as it is: {message}", err=True)


@app.command()
def refresh(
    path: Source,
    mode: Annotated[
        str, typer.Option(help="incremental, quick (reads no data) or full (builds all anew).")
    ] = "incremental",
    part: Annotated[
        list[str] | None, typer.Option("--part", help="A file or folder in PATH; may be given again.")
    ] = None,
    check: Annotated[bool, typer.Option("--check", help="Read the index whole first, and mend it.")] = False,  # noqa: FBT002
    index: IndexFolder = None,
    workers: Annotated[int | None, typer.Option(help="Threads; by default the number of cores.")] = None,
    format: Format = "text",  # noqa: A002
) -> None:
    """Bring the index in line with files that came, changed or went; work in proportion to the change."""
    if mode not in ("incremental", "quick", "full"):
        raise typer.BadParameter(f"--mode must be incremental, quick or full, got {mode}")
    opened = _open(path, index)
    done = opened.refresh(mode, paths=part, check=check, workers=workers, progress=sys.stderr.isatty())
    if format == "json":
        _print_json(done.to_dict())
        return
    typer.echo(
        f"version {done.version}: {done.num_files_added:,} files added, {done.num_files_dropped:,} dropped, "
        f"{done.num_files_kept:,} kept; {done.num_zones_added:,} zones added, {done.num_zones_dropped:,} dropped, "
        f"{done.num_zones_kept:,} kept"
    )


@app.command()
def versions(path: Source, index: IndexFolder = None, format: Format = "text") -> None:  # noqa: A002
    """Print the versions that are kept, the oldest first."""
    found = _open(path, index).versions()
    if format == "json":
        _print_json([version.to_dict() for version in found])
        return
    for version in found:
        typer.echo(
            f"{version.number}\t{version.committed_at:%Y-%m-%d %H:%M:%S}Z\t{version.operation}\t"
            f"{version.num_files:,} files\t{version.index_bytes:,} bytes"
        )


@app.command()
def restore(
    path: Source,
    version: Annotated[int, typer.Argument(help="A version that is kept; see `versions`.")],
    index: IndexFolder = None,
) -> None:
    """Make the content of an older version current again, as a new version."""
    typer.echo(f"version {_open(path, index).restore(version)}")


@app.command()
def vacuum(
    path: Source,
    older_than: Annotated[float, typer.Option(help="Days since a version was superseded.")] = 7.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Remove nothing, only say what.")] = False,  # noqa: FBT002
    index: IndexFolder = None,
    format: Format = "text",  # noqa: A002
) -> None:
    """Remove old versions, and files that no kept version needs."""
    from datetime import timedelta  # noqa: PLC0415 - only here

    done = _open(path, index).vacuum(older_than=timedelta(days=older_than), dry_run=dry_run)
    if format == "json":
        _print_json(done.to_dict())
        return
    verb = "would remove" if done.is_dry_run else "removed"
    typer.echo(f"{verb} {len(done.versions):,} versions and {len(done.files):,} files, {done.num_bytes:,} bytes")


@app.command()
def delete(
    path: Source,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,  # noqa: FBT002
    index: IndexFolder = None,
) -> None:
    """Remove the index, all its versions; data files are not touched."""
    from zonebloom.retention import delete_index  # noqa: PLC0415 - `--help` must not load Arrow
    from zonebloom.storage.local_store import LocalStore  # noqa: PLC0415 - as above

    root = _open(path, index).root
    if not yes:
        typer.confirm(f"Remove the index {root}?", abort=True)
    typer.echo(f"removed {delete_index(LocalStore(root)):,} files of {root}")


@app.command()
def verify(
    path: Source,
    sample: Annotated[float, typer.Option(help="Share of the files to read again, in (0, 1].")] = 0.1,
    all_files: Annotated[bool, typer.Option("--all", help="Read every file.")] = False,  # noqa: FBT002
    index: IndexFolder = None,
    format: Format = "text",  # noqa: A002
) -> None:
    """Read data again and prove that no value is missing from the filter of its zone; exit 1 if one is."""
    found = _open(path, index).verify(sample=1.0 if all_files else sample)
    if format == "json":
        _print_json(found.to_dict())
    else:
        typer.echo(
            f"{'sound' if found.is_sound else 'NOT SOUND'}: read {found.num_files_read} of {found.num_files} files"
        )
        for column in found.columns:
            typer.echo(
                f"  {column.name}: {column.num_missing:,} of {column.num_values:,} values missing in "
                f"{column.num_zones:,} zones; fpp expected {column.expected_fpp:.3g}, "
                f"measured {column.measured_fpp:.3g} by bits, {column.measured_false_positives:.3g} by probing"
            )
        for message in found.damage:
            typer.echo(f"  damaged: {message}")
    if not found.is_sound:
        raise typer.Exit(1)


@app.command()
def export(
    path: Source,
    column: Column,
    output: Annotated[Path, typer.Option("--output", "-o", help="FILE.arrow or FILE.parquet.")],
    index: IndexFolder = None,
) -> None:
    """Write the zone table of a column, in Lance's schema, as one Arrow or Parquet file."""
    table = _open(path, index).zone_table(column).to_arrow()
    _write(table, output)
    typer.echo(f"wrote {table.num_rows:,} zones to {output}", err=True)


@app.command("import")
def import_(
    file: Annotated[Path, typer.Argument(help="A zone table: .arrow or .parquet.")],
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The data that it describes.")],
    column: Annotated[str, typer.Option("--column", "-c", help="The column that it describes.")],
    index: IndexFolder = None,
) -> None:
    """Make an index of PATH from a zone table that was made elsewhere; it is checked against the data first."""
    from zonebloom.creating import import_index  # noqa: PLC0415 - `--help` must not load Arrow
    from zonebloom.zones import ZoneTable  # noqa: PLC0415 - as above

    imported = import_index(path, ZoneTable.from_arrow(_read(file)), column=column, index=index)
    _print_info(imported.info())


@app.command()
def whatif(
    path: Source,
    column: Annotated[str, typer.Option("--column", "-c", help="The column to index.")],
    rows_per_zone: Annotated[int, typer.Option(help="Rows of a zone.")] = 8192,
    fpp: Annotated[list[float] | None, typer.Option(help="Probability to try; may be given again.")] = None,
    format: Format = "text",  # noqa: A002
) -> None:
    """Predict from a sample what an index would cost and save, and whether it is of use; nothing is written."""
    from zonebloom import predicting  # noqa: PLC0415 - `--help` must not load Arrow

    found = predicting.whatif(path, column, rows_per_zone=rows_per_zone, fpp=fpp or predicting.FPPS)
    if format == "json":
        _print_json(found.to_dict())
    else:
        typer.echo(str(found))


@app.command()
def demo(
    rows: Annotated[int, typer.Option(help="Rows to generate.")] = 4_000_000,
    files: Annotated[int, typer.Option(help="Files to generate.")] = 8,
) -> None:
    """Generate a lake in a temporary folder, index it, search it, and compare with a full scan."""
    from zonebloom.demo import run_demo  # noqa: PLC0415 - only here

    run_demo(rows=rows, files=files)


def _write(table: pa.Table, path: Path) -> None:
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    if path.suffix not in (".arrow", ".parquet"):
        raise errors.InvalidArgumentError(f"--output must end in .arrow or .parquet, got {path}")
    try:
        if path.suffix == ".parquet":
            pq.write_table(table, path, compression="none", use_dictionary=False, write_statistics=False)
        else:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
    except OSError as error:
        raise errors.StorageError(f"cannot write {path}: {error}") from error


def _read(path: Path) -> pa.Table:
    import pyarrow as pa  # noqa: PLC0415 - `--help` must not load Arrow
    import pyarrow.parquet as pq  # noqa: PLC0415 - as above

    try:
        if path.suffix == ".parquet":
            return pq.ParquetFile(path).read()
        with pa.OSFile(str(path), "rb") as source:
            return pa.ipc.open_file(source).read_all()
    except (OSError, pa.ArrowInvalid) as error:
        raise errors.DataFileError(f"{path} must be an Arrow or Parquet file, got: {error}") from error


def _show_warning(message: Warning | str, *_: Any) -> None:
    typer.echo(f"zonebloom: warning: {message}", err=True)


def main() -> None:
    """Run the command; every error of zonebloom is one line on stderr."""
    with warnings.catch_warnings():
        warnings.simplefilter("always", RuntimeWarning)
        warnings.showwarning = _show_warning  # type: ignore[assignment]
        try:
            app()
        except errors.ZoneBloomError as error:
            if _State.verbose:
                raise
            typer.echo(f"zonebloom: {' '.join(str(error).split())}", err=True)
            raise SystemExit(2 if isinstance(error, _CALLERS_MISTAKES) else 1) from None
