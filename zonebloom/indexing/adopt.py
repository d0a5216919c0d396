"""Building from existing filters: those inside Parquet files, or Lance's own index of a table.

`Adopting` is a runner that takes these filters as zones. Another runner builds the other files. Zones of Parquet files
are row groups, and no data page is read. A Parquet file is read if a column has no filter or no count of nulls, or if
its filters hash other bytes than an index. `adopt_lance` handles Lance's index.

Spec: specs/parquet-blooms.md#adopt
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, TypeVar

from zonebloom.bloom.physical_values import ParquetSbbf, value_type
from zonebloom.bloom.zones import zone_schema
from zonebloom.formats import DatasetSnapshot, OpenedFile
from zonebloom.formats.parquet.file import DataFile
from zonebloom.ground.errors import DataFileError
from zonebloom.indexing.fill import BuildPlan, BuiltColumns, Inspected, Runner, check_same
from zonebloom.storage.fragments import Fragment
from zonebloom.storage.manifest import ColumnEntry
from zonebloom.storage.zone_segment import Zone, ZoneWriter
from zonebloom.stores.fingerprint import Fingerprint, wait_until_settled
from zonebloom.stores.store import Store, undoing

T = TypeVar("T")
OwnZones = Callable[[BuildPlan, OpenedFile, Fragment, str], list[Zone] | None]
"""Returns the zones of a column from a file's own filters; None if the file must be read."""


@dataclass(frozen=True, slots=True)
class Adopting:
    """A runner that takes zones from the filters of files, and passes other files to another runner."""

    runner: Runner
    """Builds the other files."""
    own_zones: OwnZones
    """Returns a file's own zones."""

    def read_footers(
        self, dataset: DatasetSnapshot, listing: Mapping[str, Fingerprint], ids: Mapping[str, int]
    ) -> Inspected:
        """As `Runner` says."""
        return self.runner.read_footers(dataset, listing, ids)

    def admit(self, columns: Iterable[tuple[ColumnEntry, Sequence[Fragment]]]) -> None:
        """As `Runner` says."""
        self.runner.admit(columns)

    def run(self, function: Callable[..., T], store: Store, *arguments: Any) -> T:
        """As `Runner` says."""
        return self.runner.run(function, store, *arguments)

    def build(self, plan: BuildPlan, fragments: Sequence[Fragment]) -> BuiltColumns:
        """As `Runner` says; if a file has filters for a column, the column is not read."""
        built = BuiltColumns()
        rest = self._adopt(plan, fragments, built)
        together: defaultdict[tuple[int, ...], list[str]] = defaultdict(list)
        for column, left in rest.items():
            if left:
                together[tuple(left)].append(column)
        with undoing(plan.store) as written:
            written.extend(built.paths)
            for numbers, columns in together.items():
                part = replace(plan, columns={column: plan.columns[column] for column in columns})
                added = self.runner.build(part, [fragments[number] for number in numbers])
                written.extend(added.paths)
                built.add(added)
        return built

    def _adopt(self, plan: BuildPlan, fragments: Sequence[Fragment], built: BuiltColumns) -> dict[str, list[int]]:
        """Write the files' own zones; returns by column the numbers of the fragments still to build."""
        seen = time.monotonic()
        rest: dict[str, list[int]] = {column: [] for column in plan.columns}
        with ExitStack() as stack:
            writers = {column: stack.enter_context(_writer(plan, column)) for column in plan.columns}
            for number, fragment in enumerate(fragments):
                adopted: dict[str, list[Zone] | None] = dict.fromkeys(plan.columns)
                wait_until_settled(fragment.fingerprint, seen)
                with suppress(DataFileError), plan.dataset.open(fragment.path, fragment.fingerprint) as file:
                    check_same(file, fragment)
                    own = {column: self.own_zones(plan, file, fragment, column) for column in plan.columns}
                    file.check_unchanged()
                    adopted = own
                for column, zones in adopted.items():
                    if zones is None:
                        rest[column].append(number)
                    else:
                        for zone in zones:
                            writers[column].add(zone)
                if plan.on_rows and None not in adopted.values():
                    plan.on_rows(fragment.num_rows)
            for column, writer in writers.items():
                built.segments[column] += writer.finish()
        return rest


def _writer(plan: BuildPlan, column: str) -> ZoneWriter:
    options, column_type = plan.options, plan.columns[column]
    schema = zone_schema(options.rows_per_zone, options.fpp, column=column, column_type=column_type)
    return ZoneWriter(plan.store, column, schema)


def parquet_zones(plan: BuildPlan, file: OpenedFile, fragment: Fragment, column: str) -> list[Zone] | None:
    """A zone for each row group with rows; None if one of these has no filter that an index can use."""
    leaf = file.leaf_of(column) if isinstance(file, DataFile) else None
    if leaf is None or not isinstance(file, DataFile) or not file.leaves[leaf][1].equals(plan.columns[column]):
        return None
    filters = {own.row_group: own.filter for own in file.own_filters(leaf)}
    starts = list(accumulate(file.row_group_rows, initial=0))
    zones: list[Zone] = []
    for group, rows in enumerate(file.row_group_rows):
        if not rows:
            continue
        own, num_nulls = filters.get(group), file.num_nulls(group, leaf)
        if own is None or num_nulls is None or not _hashes_as_an_index(own):
            return None
        zones.append(Zone(fragment.fragment_id, starts[group], rows, num_nulls > 0, own.to_bytes()))
    return zones


def _hashes_as_an_index(own: ParquetSbbf) -> bool:
    """Whether Parquet hashes the same bytes as an index."""
    return own.plain_type is not None and own.plain_type == value_type(own.column_type)
