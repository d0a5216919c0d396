"""`Lake`: a data set on Spark with its index; a query reads only rows that can match.

A lake has the methods of a DataFrame that make sense before a condition. `where` and `filter` give a DataFrame.

For each `where` it lists the data set afresh, searches the index, and chooses how to read: by the driver itself, by
executors from row ranges, by Spark from few files, or by Spark's plain read. Spark filters what was read by the
condition as it was given, so the rows are those of a plain read.

Design: docs/design/spark-reads.md#reads
"""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias, cast, get_args

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql.types import StructType

from zonebloom.bloom.hashing import names_of
from zonebloom.engines.spark.executors import instant_of, lack_of_executors, reads_by_id
from zonebloom.engines.spark.join.keys import collected
from zonebloom.engines.spark.pushdown.names import named, resolves
from zonebloom.engines.spark.pushdown.translate import Condition, keys_condition, names_its_frame, understand_all
from zonebloom.engines.spark.pushdown.types import Binder, Piece
from zonebloom.engines.spark.scan.catalog_table import CatalogTable
from zonebloom.engines.spark.scan.choice import (
    BY_ID,
    DRIVER_ROW_BYTES,
    TOO_WIDE,
    Kept,
    Method,
    choose,
    lack_of_driver,
    obstacle_of_rows,
)
from zonebloom.engines.spark.scan.layout import Layout
from zonebloom.engines.spark.scan.plan import Plan, PrunedRead
from zonebloom.engines.spark.scan.readers import Reader, SparkReader, filtered, local_frame
from zonebloom.engines.spark.scan.row_ranges import local_rows, read_rows
from zonebloom.engines.spark.scan.splits import TooWideError
from zonebloom.engines.spark.versions import IS_BEFORE_4
from zonebloom.formats import ParquetDataset
from zonebloom.ground.cached import cached_property
from zonebloom.ground.errors import (
    ColumnNotFoundError,
    DataFileError,
    IndexNotFoundError,
    InvalidArgumentError,
    PredicateError,
)
from zonebloom.ground.threads import concurrently
from zonebloom.index.index import Index
from zonebloom.index.reader import IndexReader
from zonebloom.predicates import Predicate
from zonebloom.predicates.sql_writer import as_sql
from zonebloom.search.query import Query
from zonebloom.search.view import View
from zonebloom.storage.manifest import list_versions

Asked: TypeAlias = Literal["auto"] | Method
_METHODS = ("auto", *get_args(Method))
_ATTEMPTS = 3
_LOOK_AFTER_SECONDS = 1.0
"""Seconds until a new version of the index is noticed, at most."""


@dataclass(eq=False, repr=False)
class Lake:
    """A data set on Spark with its index: a table whose queries read only rows that can match."""

    spark: SparkSession
    """Classic or Spark Connect."""
    index: Index
    """The index, in the version that was used last."""
    reader: Reader
    """Who reads its files whole."""
    method: Asked = "auto"
    """As for `read`."""
    table: CatalogTable | None = None
    """The table of Spark's catalog whose files these are."""
    _frame: DataFrame | None = None
    """The plain scan that was given, whose own columns conditions may use."""
    resolve: Callable[[], Lake] | None = field(default=None, init=False)
    """Gives the lake as it is now, if it is a table or view by its name."""
    _columns: tuple[str, ...] | None = field(default=None, init=False)
    """Those that rows have, in order; None for all."""
    _full_schema: StructType | None = field(default=None, init=False)
    _binders: tuple[View, Binder] | None = field(default=None, init=False)
    _warned: bool = field(default=False, init=False)
    _lock: Any = field(default_factory=threading.Lock, init=False)
    _index: IndexReader = field(init=False)
    """The index over the files that are read."""
    _looked: float = field(default_factory=time.monotonic, init=False)

    def __post_init__(self) -> None:
        InvalidArgumentError.unless_among("method", self.method, _METHODS)
        self._index = self.reader.searched(self.index)

    def __repr__(self) -> str:
        return f"Lake({self._index.data.location!r}, method {self.method}, {self._index!r})"

    @property
    def full_schema(self) -> StructType:
        """Schema of Spark's plain read at the first use."""
        if self._full_schema is None:
            self.present()
        return cast("StructType", self._full_schema)

    @property
    def schema(self) -> StructType:
        """Schema of the rows that `where` gives."""
        return StructType([self.full_schema[name] for name in self.columns])

    def _known(self, columns: Sequence[str]) -> tuple[str, ...]:
        if not columns:
            raise InvalidArgumentError("columns must be one or more names", got="none", do="count() counts rows")
        all_columns, names = self.full_schema.names, []
        for name in names_of(columns):
            same = [name] if name in all_columns else [own for own in all_columns if own.casefold() == name.casefold()]
            if len(same) != 1 or not (name in all_columns or resolves(self._template, name)):
                view = self._index.view()
                if name in view.schema.names:
                    Layout(view).schema([name])  # raises if Spark does not read its type
                raise ColumnNotFoundError.among(name, all_columns, f"the data set {self._index.data.location}")
            names += same
        return tuple(names)

    @property
    def columns(self) -> list[str]:
        """Names of the columns, in order."""
        return list(self.full_schema.names if self._columns is None else self._columns)

    @property
    def dtypes(self) -> list[tuple[str, str]]:
        """Names and types of the columns, in order."""
        return [(column.name, column.dataType.simpleString()) for column in self.schema]

    def printSchema(self) -> None:  # noqa: N802 - Spark's name
        """Print names and types of the columns as a tree."""
        self._selected(self._template).printSchema()

    @cached_property
    def _template(self) -> DataFrame:
        return self.spark.createDataFrame([], self.full_schema)

    # --- queries ----------------------------------------------------------------------------------------------------

    def select(self, *columns: str | Sequence[str]) -> Lake:
        """The same lake with these columns only, by name. A read opens no others, except those of a condition.

        Raises
        ------
        ColumnNotFoundError
            There is no such column.
        InvalidArgumentError
            A column is not given by its name.
        """
        other = copy(self)
        given = columns[0] if len(columns) == 1 and isinstance(columns[0], (list, tuple)) else columns
        other._columns = self._known(cast("Sequence[str]", given))  # noqa: SLF001 - of its class
        return other

    def _now(self) -> Lake:
        """The lake itself; a table or view is resolved again. If a table was altered, Spark reads it plainly."""
        if self.resolve is None:
            return self
        try:
            lake = self.resolve()
        except (DataFileError, IndexNotFoundError, InvalidArgumentError) as error:  # the first while it is overwritten
            if self.table is None:  # the name is of another view now, or of none
                raise
            lake = copy(self)
            lake.table = replace(self.table, frame=self.spark.table(self.table.name), problem=str(error))
            lake.reader = SparkReader(self.spark, cast("ParquetDataset", self.index.data), lake.table)
        lake.resolve, lake._columns = None, self._columns  # noqa: SLF001 - of its class
        if self._frame is not None and self._frame.schema == lake.full_schema:
            lake._frame = self._frame  # noqa: SLF001 - of its class
        return lake

    def toDF(self) -> DataFrame:  # noqa: N802 - Spark's name
        """All rows: Spark's plain read, listed now."""
        lake = self._now()
        return lake._selected(lake.reader.frame(lake._index.view(), lake.schema, is_shown=True))  # noqa: SLF001 - of its class

    def count(self) -> int:
        """The number of all rows."""
        return int(self.toDF().count())

    def show(self, n: int = 20, truncate: bool | int = True) -> None:  # noqa: FBT001, FBT002 - as Spark's
        """Print the first `n` rows."""
        self.toDF().show(n, truncate)

    def join(self, other: DataFrame, on: Any = None, how: str | None = None) -> DataFrame:
        """Spark's join of all rows; `ZoneBloom.prune_join` reads fewer."""
        return self.toDF().join(other, on, how)

    def createOrReplaceTempView(self, name: str) -> None:  # noqa: N802 - Spark's name
        """Make all rows, listed now, a view of the session; `ZoneBloom.sql` prunes its scans of the view."""
        self.toDF().createOrReplaceTempView(name)

    def binder(self) -> Binder:
        """The binder of the columns of the present data set."""
        return self.present()[1]

    def _selected(self, frame: DataFrame) -> DataFrame:
        if self._columns is None:
            return frame
        return frame.select(*map(named, self._columns))

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

        Design: docs/design/spark-reads.md#reads
        """
        read = self.prepare(*conditions, method=method, strict=strict)
        predicate = read.plan.condition.predicate
        if isinstance(predicate, Piece) and not self._warned:
            self._warned = True
            message = f"a condition must compare indexed columns with literals to prune, got {as_sql(predicate)}"
            warnings.warn(f"{message}; every row is read, and explain() says more", RuntimeWarning, stacklevel=2)
        return read.frame

    filter = where

    def where_in(
        self, column: str, keys: DataFrame | Any, *, method: Asked | None = None, strict: bool = False
    ) -> DataFrame:
        """The rows whose `column` is one of `keys`: a frame that has that column, or any collection of values.

        A frame is collected once, up to a million distinct keys. The plan has no literals of them.

        Raises
        ------
        InvalidArgumentError
            There are more keys; `prune_join` takes any number.
        PredicateError
            The keys are not of the column's type.

        Design: docs/design/spark-reads.md#keys
        """
        values = collected(column, keys)
        read = self._now()._read  # noqa: SLF001 - of its class
        return read(lambda binder: keys_condition(binder.path(column), values, binder), method, strict=strict).frame

    def prepare(
        self, *conditions: str | Column | Predicate, method: Asked | None = None, strict: bool = False
    ) -> PrunedRead:
        """`where`, with the plan: what is skipped, and why not more."""
        lake = self._now()
        return lake._read(lambda binder: lake._understood(conditions, binder), method, strict=strict)  # noqa: SLF001 - of its class

    def plan(self, condition: str | Column | Predicate, *, method: Asked | None = None) -> Plan:
        """How `condition` would be read now. Nothing is read."""
        lake = self._now()
        return lake._planned(lambda binder: lake._understood([condition], binder), method, strict=False)  # noqa: SLF001 - of its class

    def query(self, condition: str | Column | Predicate) -> Query:
        """The search for `condition` in the present data set and index."""
        return self._asked(lambda binder: self._understood([condition], binder))[1]

    def _understood(self, conditions: Sequence[str | Column | Predicate], binder: Binder) -> Condition:
        is_of_session = self._frame is not None and self._frame.sparkSession is self.spark  # proofs need its settings
        template = self._frame if is_of_session and self._frame is not None else self._template
        condition = understand_all(conditions, binder, template)
        if not condition.is_local and not self.reader.is_native:
            for given in conditions:
                if not isinstance(given, Predicate):
                    template.where(given).schema  # noqa: B018 - Spark's error names a column that is none
        if is_of_session and condition.columns is None:
            table = None if self.table is None or condition.is_local else self.table.frame  # it is read plainly
            rows = self._template if table is None else table
            if table is None and isinstance(self.reader, SparkReader) and not condition.is_local:  # of _metadata
                rows = self.reader.plain(self._index.view().listing, self.full_schema)
            for given in conditions:
                if names_its_frame(given, self._frame, rows, table):
                    raise PredicateError(
                        "a condition of this kind must name columns without their frame or its alias",
                        got=condition.shown,
                        do='use functions.col("name")',
                    )
        return condition

    # --- the data set now -------------------------------------------------------------------------------------------

    def _look(self) -> None:
        """Open the newest version of the index; looks once a second."""
        with self._lock:
            if time.monotonic() - self._looked <= _LOOK_AFTER_SECONDS:
                return
            versions = list_versions(self._index.store)
            if versions and versions[-1] != self._index.version:
                self.index = self.index.newest()
                self._index = self.reader.searched(self.index)
            self._looked = time.monotonic()

    def present(self) -> tuple[View, Binder]:
        """The present data set and index, and the binder of its columns."""
        self._look()
        with self._lock:
            view = self._index.view()
            if self._full_schema is None:
                self._full_schema = self.reader.schema(view)
            if self._binders is None or self._binders[0] is not view:
                may_move = self.table is not None and self.table.is_partitioned
                of_session = partial(instant_of, self.spark), partial(resolves, self._template)
                self._binders = view, Binder(self.full_schema, view, *of_session, may_move=may_move)
            return self._binders

    def _asked(self, understood: Callable[[Binder], Condition]) -> tuple[Condition, Query, Binder]:
        """A condition on the present data set and index.

        If the data set has not changed since the last condition, the index is asked while the files are listed.
        """
        is_by_id, index, last = self.is_by_id, self._index, self._binders

        def by_names(binder: Binder) -> Condition:
            condition = understood(binder)
            return replace(condition, predicate=Piece(condition.shown, BY_ID)) if is_by_id else condition

        if last is not None:
            with suppress(ColumnNotFoundError, PredicateError):  # the data set may have changed
                condition = by_names(last[1])
                asked: tuple[Callable[[], Any], ...] = (partial(index.query, condition.predicate), self._look)
                query, _ = concurrently(lambda ask: ask(), asked, len(asked))
                if index is self._index and query.view is last[0]:
                    return condition, replace(query, own_filters=False), last[1]
        view, binder = self.present()
        condition = by_names(binder)
        return condition, Query(view, condition.predicate, own_filters=False), binder

    def _planned(self, understood: Callable[[Binder], Condition], method: Asked | None, *, strict: bool) -> Plan:
        asked = self.method if method is None else method
        InvalidArgumentError.unless_among("method", asked, _METHODS)
        condition, query, binder = self._asked(understood)
        view = query.view
        if strict:
            view.check_known()
        with self._lock:
            result = query.result
        paths = tuple(result.files)
        schema = self._read_schema(condition)
        misplaced = self.misplaced(view, paths)
        obstacle = self._lack if IS_BEFORE_4 else None  # executors bring the driver's rows there
        if self.reader.is_native and misplaced is None:
            obstacle = obstacle_of_rows(condition, schema, view, binder, paths, spark=self.spark) or obstacle
        kept = Kept(
            files=len(paths),
            of_files=len(view.listing),
            rows=result.kept.rows,
            of_rows=result.total.rows,
            bytes=result.kept.bytes,
            is_local=condition.is_local and misplaced is None,
            obstacle=misplaced or obstacle,
            lack=lambda: self._lack,
            is_native=self.reader.is_native,
            driver_lack=lack_of_driver(self.spark, schema),
        )
        wider = partial(choose, replace(kept, driver_lack=TOO_WIDE), asked)
        return Plan(condition, query, choose(kept, asked), paths, wider)

    @property
    def is_by_id(self) -> bool:
        """Whether Spark finds columns by ids, which only the table has if Spark did not write the files."""
        return reads_by_id(self.spark, self.full_schema if self.table is None else self.table.frame.schema)

    def misplaced(self, view: View, paths: Sequence[str]) -> str | None:
        """The reason why Spark may find other values in `paths` than the library, or other files; None if not."""
        problem = self.reader.other_files or (BY_ID if self.is_by_id else None)
        if problem is not None or self.table is None:
            return problem
        return self.table.misplaced(view.dataset, view.listing, paths)

    def _read_schema(self, condition: Condition) -> StructType:
        """The columns to read: the lake's and those of the condition; all if the condition has parts for Spark."""
        needed = condition.columns
        if self._columns is None or needed is None:
            return self.full_schema
        above = {name.split(".")[0] for name in needed}
        return StructType([column for column in self.full_schema if column.name in {*self._columns, *needed, *above}])

    @cached_property
    def _lack(self) -> str | None:
        return lack_of_executors(self.spark)

    # --- ways to read -----------------------------------------------------------------------------------------------

    def _read(self, understood: Callable[[Binder], Condition], method: Asked | None, *, strict: bool) -> PrunedRead:
        """The read; if files change or vanish meanwhile, they are listed again. The last attempt is a plain read."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return self.by(self._planned(understood, method, strict=strict))
            except DataFileError:
                continue
            except AnalysisException as error:
                if not str(error).startswith("[PATH_NOT_FOUND]"):
                    raise
        last = "plain" if method in (None, "auto") else method
        return self.by(self._planned(understood, last, strict=strict))

    def by(self, plan: Plan) -> PrunedRead:
        """The rows, read as `plan` says."""
        reader, method, condition = self.reader, plan.choice.method, plan.condition
        layout, schema, wanted = Layout(plan.view), self._read_schema(condition), condition.exact
        rows = None
        if method == "row_ranges":
            rows = read_rows(self.spark, layout, plan.result.row_ranges, schema, wanted=wanted, result=plan.result)
        elif isinstance(reader, SparkReader) and method == "files":
            rows = reader.files(plan.paths, schema)
        elif method == "driver" and plan.paths:
            try:
                table = local_rows(layout, plan.result.row_ranges, schema, wanted, max_bytes=DRIVER_ROW_BYTES)
            except TooWideError:
                return self.by(replace(plan, choice=plan.wider()))
            rows = local_frame(self.spark, table, schema)
        elif method == "driver":
            rows = self._template.where("1 = 0")  # the optimizer sees that there are no rows, and runs no job
            condition = replace(condition, residual=(), keys=())
        frame = reader.frame(plan.view, schema, rows)
        return PrunedRead(self._selected(filtered(self.spark, frame, condition)), plan)
