"""`Lake`: a data set on Spark with its index; a query reads only rows that can match.

For each `where` it lists the data set afresh, searches the index, and chooses how to read: by the driver itself, by
executors from row ranges, by Spark from few files, or by Spark's plain read. Spark filters what was read by the
condition as it was given, so the rows are those of a plain read.

Spec: specs/spark.md#reads
"""

from __future__ import annotations

import datetime as dt
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeAlias, get_args

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from zonebloom.engines.spark.executors import lack_of_executors, reads_by_id
from zonebloom.engines.spark.join.keys import collected
from zonebloom.engines.spark.pushdown.names import backquoted
from zonebloom.engines.spark.pushdown.translate import Condition, keys_condition, understand_all
from zonebloom.engines.spark.pushdown.types import Binder, Piece
from zonebloom.engines.spark.scan.choice import BY_ID, Choice, Kept, Method, choose, obstacle_of_rows
from zonebloom.engines.spark.scan.own_scans import Scans, filtered, local_frame
from zonebloom.engines.spark.scan.row_ranges import local_rows, read_rows
from zonebloom.engines.spark.scan.schema import Layout
from zonebloom.engines.spark.scan.splits import narrowing_of
from zonebloom.errors import ColumnNotFoundError, DataFileError, InvalidArgumentError
from zonebloom.formats import ParquetDataset
from zonebloom.index import Index
from zonebloom.predicates import Predicate
from zonebloom.search.result import SearchResult
from zonebloom.search.selection import RowSelection
from zonebloom.search.view import View
from zonebloom.storage.manifest import list_versions

Asked: TypeAlias = Literal["auto"] | Method
_ATTEMPTS = 3
_LOOK_AFTER_SECONDS = 1.0
"""Seconds until a new version of the index is noticed, at most."""
_UTC = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00", "Etc/GMT"})


@dataclass(frozen=True)
class Plan:
    """How the rows of one condition will be read, and what is skipped."""

    condition: Condition
    """The condition, with its parts for the index and for Spark."""
    result: SearchResult
    """The search: rows, zones and bytes kept of total, and the reasons."""
    choice: Choice
    """The way to read, and why."""
    view: View
    """The data set as it was listed."""
    paths: tuple[str, ...]
    """Files that must be read, relative to the root."""


@dataclass(frozen=True)
class PrunedRead:
    """A frame, and what was skipped for it."""

    frame: DataFrame
    """The rows that match, of the files that were listed; use it soon."""
    plan: Plan
    """How the frame is read."""

    @property
    def method(self) -> Method:
        """The way to read."""
        return self.plan.choice.method


class Lake:
    """A data set on Spark with its index: a table whose queries read only rows that can match.

    Parameters
    ----------
    spark
        Classic or Spark Connect.
    index
        Open.
    dataset
        Its Parquet files.
    reopen
        Gives the current version of the index.
    method
        As for `read`.
    columns
        Those that rows have, in order; None for all.
    """

    def __init__(
        self,
        spark: SparkSession,
        index: Index,
        dataset: ParquetDataset,
        reopen: Callable[[], Index],
        *,
        method: Asked = "auto",
        columns: Sequence[str] | None = None,
    ) -> None:
        _check_method(method)
        self.spark = spark
        self.method = method
        self._index = index
        self._reopen = reopen
        self._lock = threading.Lock()
        self._looked = time.monotonic()
        self._dataset = dataset
        self._scans = Scans(spark, dataset)
        self._binders: tuple[View, Binder] | None = None
        self._warned = False
        self._full_schema: StructType | None = None
        self._columns = None if columns is None else self._known(columns)

    def __repr__(self) -> str:
        return f"Lake({self._dataset.location!r}, method {self.method}, {self._index!r})"

    @property
    def full_schema(self) -> StructType:
        """Schema of Spark's plain read at the first use."""
        if self._full_schema is None:
            self._full_schema = self._schema_of(self._index.view())
        return self._full_schema

    def _schema_of(self, view: View) -> StructType:
        return self._scans.schema(view.listing)

    @property
    def schema(self) -> StructType:
        """Schema of the rows that `where` gives."""
        return self.full_schema if self._columns is None else self._part(self._columns)

    def _part(self, names: Iterable[str]) -> StructType:
        """Some columns, in the order of the data set."""
        wanted = set(names)
        return StructType([field for field in self.full_schema if field.name in wanted])

    def _known(self, columns: Sequence[str]) -> tuple[str, ...]:
        names = [columns] if isinstance(columns, str) else list(columns)
        for name in names:
            if name not in self.full_schema.names:
                raise ColumnNotFoundError.among(name, self.full_schema.names, f"the data set {self._dataset.location}")
        return tuple(names)

    @cached_property
    def _has_ids(self) -> bool:
        return '"parquet.field.id"' in self.full_schema.json()

    @property
    def index(self) -> Index:
        """The index, in the version that was used last."""
        return self._index

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self.full_schema.names if self._columns is None else self._columns)

    @cached_property
    def _template(self) -> DataFrame:
        return self.spark.createDataFrame([], self.full_schema)

    # --- queries ----------------------------------------------------------------------------------------------------

    def select(self, *columns: str) -> Lake:
        """The same lake with these columns only. A read opens no others, except those of a condition.

        Raises
        ------
        ColumnNotFoundError
            There is no such column.
        """
        other = copy(self)
        other._columns = self._known(columns)  # noqa: SLF001 - of its class
        return other

    def toDF(self) -> DataFrame:  # noqa: N802 - Spark's name
        """All rows: Spark's plain read, listed now."""
        return self._selected(self._whole(self._index.view(), self.schema))

    def createOrReplaceTempView(self, name: str) -> None:  # noqa: N802 - Spark's name
        """Make all rows, listed now, a view of the session; `ZoneBloom.sql` prunes its scans of the view."""
        self.toDF().createOrReplaceTempView(name)

    def binder(self) -> Binder:
        """The binder of the columns of the present data set."""
        return self._state(strict=False)[1]

    def _whole(self, view: View, schema: StructType) -> DataFrame:  # noqa: ARG002 - Spark itself reads what is used
        """All rows, with the columns of `schema` or more."""
        return self._scans.plain(view.listing, self.full_schema)

    def _selected(self, frame: DataFrame) -> DataFrame:
        if self._columns is None:
            return frame
        return frame.select(*map(backquoted, self._columns))

    def where(
        self, *conditions: str | Column | Predicate, method: Asked | None = None, strict: bool = False
    ) -> DataFrame:
        """The rows for which Spark finds each of `conditions` TRUE.

        A condition can depend on how a row is read: `_metadata`, `input_file_name()`, `rand()`. It needs a plain read.
        In the result, these have the values of a plain read only with `method="plain"`. The first condition of a lake
        that prunes nothing warns.

        Parameters
        ----------
        conditions
            SQL text, a Column, or a predicate made with `zonebloom.col`, whose `isin` takes any number of values.
        method
            As for `read`, for this query.
        strict
            Refuse if files are new or changed since the last refresh. By default they are read whole.

        Raises
        ------
        StaleIndexError
            `strict`, and a file is new or changed.
        InvalidArgumentError
            `method` cannot read this.

        Spec: specs/spark.md#reads
        """
        read = self.prepare(*conditions, method=method, strict=strict)
        known = read.plan.condition.predicate
        if isinstance(known, Piece) and not self._warned:
            self._warned = True
            message = f"a condition must compare indexed columns with literals to prune, got {known.text}"
            warnings.warn(f"{message}; every row is read, and why_not() says more", RuntimeWarning, stacklevel=2)
        return read.frame

    def where_in(
        self,
        column: str,
        keys: DataFrame | Any,
        *,
        method: Asked | None = None,
        strict: bool = False,
    ) -> DataFrame:
        """The rows whose `column` is one of `keys`: a frame that has that column, or any collection of values.

        A frame is collected once, up to a million distinct keys. The plan has no literals of them.

        Raises
        ------
        InvalidArgumentError
            There are more keys; `prune_join` takes any number.
        PredicateError
            The keys are not of the column's type.

        Spec: specs/spark.md#keys
        """
        values = collected(column, keys)
        return self._read(
            lambda binder: keys_condition(binder.path(column), values, binder), method, strict=strict
        ).frame

    def prepare(
        self, *conditions: str | Column | Predicate, method: Asked | None = None, strict: bool = False
    ) -> PrunedRead:
        """`where`, with the plan: what is skipped, and why not more."""
        return self._read(lambda binder: understand_all(conditions, binder, self._template), method, strict=strict)

    def plan(
        self,
        condition: str | Column | Predicate,
        *,
        method: Asked | None = None,
        strict: bool = False,
        template: DataFrame | None = None,
    ) -> Plan:
        """How `condition` would be read now. Nothing is read.

        Parameters
        ----------
        template
            A frame over which the condition resolves, if it uses columns of one frame.
        """
        view, binder = self._state(strict=strict)
        return self._planned(understand_all([condition], binder, template or self._template), view, binder, method)

    def check_plain_scan(self, frame: DataFrame) -> None:
        """Refuse a frame that is not Spark's plain read of this data set; Spark compares the two.

        Raises
        ------
        InvalidArgumentError
            It has other columns, a filter, a join, options, or other files.
        """
        listing = self._dataset.list()
        plain = self._scans.plain(listing)
        is_plain = frame.schema == plain.schema and any(
            frame.sameSemantics(self._scans.plain(listing, schema, scheme=scheme))
            for scheme in ("file://", "", "file:")
            for schema in (self.full_schema, None)
        )
        if not is_plain:  # `sameSemantics` does not see renamed columns
            message = "a frame to prune must be the plain scan spark.read.parquet(path) of the indexed data"
            raise InvalidArgumentError(
                f"{message}, got columns {', '.join(frame.columns)[:200]} derived from it or read otherwise; "
                "use read(path).where(condition), and derive from what that gives"
            )

    # --- the data set now -------------------------------------------------------------------------------------------

    def _state(self, *, strict: bool) -> tuple[View, Binder]:
        """The present data set and index."""
        with self._lock:
            if time.monotonic() - self._looked > _LOOK_AFTER_SECONDS:
                versions = list_versions(self._index.store)
                if versions and versions[-1] != self._index.version:
                    self._index = self._reopen()
                self._looked = time.monotonic()
            view = self._index.view()
            if self._full_schema is None:
                self._full_schema = self._schema_of(view)
            if self._binders is None or self._binders[0] is not view:
                self._binders = view, Binder(self.full_schema, view, self._instant)
            binder = self._binders[1]
        if strict:
            view.check_known()
        return view, binder

    def _instant(self, text: str) -> dt.datetime | None:
        """The instant of a timestamp's text in Spark's session."""
        if self.spark.conf.get("spark.sql.session.timeZone") in _UTC:
            return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
        asked = f"SELECT unix_micros(CAST('{text}' AS TIMESTAMP_LTZ)) AS micros"
        micros = self.spark.sql(asked).collect()[0].micros
        return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=micros)

    def _planned(self, condition: Condition, view: View, binder: Binder, method: Asked | None) -> Plan:
        asked = self.method if method is None else method
        _check_method(asked)
        is_by_id = self._has_ids and reads_by_id(self.spark)
        if is_by_id:
            condition = replace(condition, predicate=Piece(condition.shown, BY_ID))
        with self._lock:
            result = view.search(condition.predicate)
        is_seen = self._is_seen(view)
        paths = tuple(filter(is_seen, result.files))
        schema = self._read_schema(condition)
        kept = Kept(
            files=len(paths),
            of_files=len(view.listing),
            rows=result.kept.rows,
            rows_of_files=sum(view.files[path].num_rows for path in paths),
            is_narrowed=narrowing_of(view, condition.exact) is not None,
            bytes=result.kept.bytes,
            of_bytes=result.total.bytes,
            is_local=condition.is_local,
            obstacle=BY_ID if is_by_id else self._obstacle(condition, schema, view, binder, paths),
            lack=lambda: self._lack,
        )
        return Plan(condition, result, self._choose(kept, asked), view, paths)

    def _choose(self, kept: Kept, asked: Asked) -> Choice:
        return choose(kept, asked)

    def _is_seen(self, view: View) -> Callable[[str], bool]:
        return self._scans.is_seen(view.listing)

    def _read_schema(self, condition: Condition) -> StructType:
        """The columns to read: the lake's and those of the condition; all if the condition has parts for Spark."""
        known = condition.columns
        if self._columns is None or known is None:
            return self.full_schema
        above = {name.split(".")[0] for name in known}
        return self._part({*self._columns, *known, *above})

    def _obstacle(
        self, condition: Condition, schema: StructType, view: View, binder: Binder, paths: tuple[str, ...]
    ) -> str | None:
        """Why the library's rows might differ from Spark's; None if they cannot."""
        return obstacle_of_rows(condition, schema, view, binder, paths, spark=self.spark)

    @cached_property
    def _lack(self) -> str | None:
        return lack_of_executors(self.spark)

    # --- ways to read -----------------------------------------------------------------------------------------------

    def _read(self, understood: Callable[[Binder], Condition], method: Asked | None, *, strict: bool) -> PrunedRead:
        """The read; if files change or vanish meanwhile, they are listed again. The last attempt is a plain read."""

        def planned(asked: Asked | None) -> Plan:
            view, binder = self._state(strict=strict)
            return self._planned(understood(binder), view, binder, asked)

        for _ in range(_ATTEMPTS - 1):
            try:
                return self.by(planned(method))
            except DataFileError:
                continue
            except AnalysisException as error:
                if error.getCondition() != "PATH_NOT_FOUND":
                    raise
        return self.by(planned("plain" if method in (None, "auto") else method))

    def by(self, plan: Plan) -> PrunedRead:
        """The rows, read as `plan` says."""
        method, schema, wanted = plan.choice.method, self._read_schema(plan.condition), plan.condition.exact
        if method == "candidates":
            frame = self._scans.candidates(plan.paths, self.full_schema, plan.condition)
            return PrunedRead(self._selected(frame), plan)
        if method == "plain":
            frame = self._whole(plan.view, schema)
        elif method == "row_ranges":
            rows = self._rows(plan)
            frame = read_rows(self.spark, Layout(plan.view), rows, schema, wanted=wanted, found=plan.result)
        elif plan.paths:
            frame = local_frame(self.spark, local_rows(Layout(plan.view), self._rows(plan), schema, wanted), schema)
        else:
            frame, plan = self._template.where("1 = 0"), replace(plan, condition=replace(plan.condition, keys=()))
        return PrunedRead(self._selected(filtered(self.spark, frame, plan.condition)), plan)

    def _rows(self, plan: Plan) -> RowSelection:
        """The candidate rows of the files that Spark reads."""
        files = [plan.view.files[path] for path in plan.paths]
        seen = RowSelection.from_ranges([(file.fragment_id, 0, file.num_rows) for file in files])
        return plan.result.row_ranges & seen


def _check_method(method: str) -> None:
    known = ("auto", *get_args(Method))
    if method not in known:
        raise InvalidArgumentError(f"method must be one of {', '.join(known)}, got {method!r}")
