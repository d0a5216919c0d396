"""The Spark session, and calls of zonebloom's functions on its executors.

`shipped` makes the closure that Spark sends. It can be unpickled without zonebloom. So an executor can report that
zonebloom is missing or has another version. `Cluster.map` calls a function once for each argument, each in one Spark
task, by `mapInArrow` over a range. Spark takes the result of one attempt, so a task that runs twice gives one row.
Nothing here calls the JVM, so Spark Connect sessions work like classic ones.

Design: docs/design/spark.md#tasks
"""

from __future__ import annotations

import datetime as dt
import importlib
import pickle
import re
import sys
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from zonebloom.ground.errors import InvalidArgumentError, MissingDependencyError, StorageError, ZoneBloomError
from zonebloom.ground.threads import concurrently
from zonebloom.ground.version import __version__

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

_SCHEMA = "number long, found string, result binary"
_RAISED = re.compile(r"zonebloom\.errors\.(\w+): ([^\n]+)")
_MOST_SLOTS = 4096
_JOBS = 16
"""Jobs at most, for a call with progress. Two run at a time, and the end of each is reported."""
TAG = "zonebloom"
_DESCRIPTION = "spark.job.description"
_UTC = frozenset({"UTC", "Etc/UTC", "GMT", "Z", "+00:00", "Etc/GMT"})
_CHANGING = threading.Lock()
_ABLE: WeakSet[SparkSession] = WeakSet()
"""Sessions whose executors can run zonebloom."""


def check_pyspark(least: tuple[int, int] = (3, 5), use: str = "zonebloom") -> None:
    """Check that PySpark can be used.

    Raises
    ------
    MissingDependencyError
        PySpark, or pandas (which Spark's own Arrow functions import), is missing or too old.
    """
    try:
        import pandas  # noqa: F401, ICN001, PLC0415 - only to say that it is missing
        import pyspark  # noqa: PLC0415 - an optional extra
    except ImportError as error:
        raise MissingDependencyError(
            "PySpark 3.5 or newer with pandas must be installed", got=error, do='pip install "zonebloom[spark]"'
        ) from error
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < least:
        must = f"PySpark must be {least[0]}.{least[1]} or newer for {use}"
        raise MissingDependencyError(must, got=pyspark.__version__, do='pip install "zonebloom[spark]"')


def session_of(spark: SparkSession | None = None) -> SparkSession:
    """`spark`, or the active session, or a new one.

    Raises
    ------
    MissingDependencyError
        PySpark or Java is missing or too old.
    InvalidArgumentError
        `spark` is not a session.
    """
    check_pyspark()
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - an optional extra
    from pyspark.sql import SparkSession  # noqa: PLC0415 - as above

    if spark is not None and not hasattr(spark, "createDataFrame"):
        raise InvalidArgumentError("spark must be a SparkSession", got=type(spark).__name__)
    try:
        session = spark or SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    except (PySparkRuntimeError, FileNotFoundError) as error:
        raise MissingDependencyError(
            "Spark must find a Java 17 or 21 through JAVA_HOME or PATH",
            got=f"{str(error).strip() or error!r}",
            do="install a JDK, such as Debian's openjdk-17-jre-headless",
        ) from error
    if is_connect(session):
        check_pyspark((4, 0), "Spark Connect")
    return session


def setting(spark: SparkSession, name: str) -> str:
    """The value that Spark uses for a setting, in upper case.

    It can be a default, or be set by an older name. Spark takes `true`, `TRUE` and `True ` for one value.
    """
    return str(spark.conf.get(name)).strip().upper()


def instant_of(spark: SparkSession, text: str) -> dt.datetime:
    """The instant of a timestamp's text without an offset, in the session's zone."""
    if spark.conf.get("spark.sql.session.timeZone") in _UTC:
        return dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    asked = f"SELECT unix_micros(CAST('{text}' AS TIMESTAMP_LTZ)) AS micros"
    return dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=spark.sql(asked).collect()[0].micros)


@contextmanager
def changed_setting(spark: SparkSession, name: str, value: str) -> Iterator[None]:
    """The setting with another value; one block at a time, so that each restores the value of the user."""
    with _CHANGING:
        before = spark.conf.get(name, None)
        spark.conf.set(name, value)
        try:
            yield
        finally:
            spark.conf.unset(name) if before is None else spark.conf.set(name, before)


def reads_by_id(spark: SparkSession, schema: StructType) -> bool:
    """Whether Spark finds columns of `schema` in a file by their ids, not by name."""
    return '"parquet.field.id"' in schema.json() and setting(spark, "spark.sql.parquet.fieldId.read.enabled") == "TRUE"


class Cluster:
    """The executors behind a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._slots: int | None = None
        self._lock = threading.Lock()

    @property
    def slots(self) -> int:
        """Tasks that can run at once: Spark's number of partitions for a range."""
        if self._slots is None:
            rows = self._spark.range(0, _MOST_SLOTS).selectExpr("spark_partition_id()").collect()
            self._slots = len({row[0] for row in rows})  # a maximum would be two stages, and twice the time
        return self._slots

    def map(
        self,
        function: Callable[..., Any],
        shared: Any,
        arguments: Sequence[Any],
        on_result: Callable[[Any], None] | None = None,
    ) -> list[Any]:
        """`function(shared, argument)` for each of `arguments`, in order; `function` is one of a module of zonebloom.

        Parameters
        ----------
        shared, arguments
            Anything that pickles.
        on_result
            Called with each result soon after its job. With this function the work is split into more jobs.

        Raises
        ------
        MissingDependencyError
            Executors have no zonebloom, or another version.
        ZoneBloomError
            `function` raised it in every attempt.
        """
        common = pickled((function.__module__, function.__qualname__, shared))
        sent = [pickled(argument) for argument in arguments]
        numbers = range(len(sent))
        results: dict[int, Any] = {}

        def run(chosen: Sequence[int]) -> None:
            answers = self._collect(common, [sent[number] for number in chosen], function.__qualname__)
            with self._lock:
                for place, result in answers.items():
                    results[chosen[place]] = result
                    if on_result is not None:
                        on_result(result)

        if on_result is None or len(sent) <= self.slots:
            run(numbers)
        else:
            size = max(-(-len(sent) // _JOBS), self.slots)
            list(concurrently(run, [numbers[i : i + size] for i in range(0, len(sent), size)], 2))
        return [results[number] for number in numbers]

    def _collect(self, common: bytes, arguments: Sequence[bytes], function: str) -> dict[int, Any]:
        count = len(arguments)
        if not count:
            return {}
        label = f"zonebloom {function.rpartition('.')[2]}: {count} tasks"
        tasks = shipped(perform, common, arguments, is_told=True, label=label)
        try:
            with described(self._spark, label):
                rows = self._spark.range(0, count, 1, count).mapInArrow(tasks, _SCHEMA).collect()
        except Exception as error:
            raised = _RAISED.findall(str(error))
            kind = getattr(sys.modules[ZoneBloomError.__module__], raised[-1][0], None) if raised else None
            if isinstance(kind, type) and issubclass(kind, ZoneBloomError):
                raise kind(raised[-1][1].strip()) from error
            raise StorageError(f"the Spark job '{label}' must run to its end", got=_cause(error)) from error
        strangers = sorted({row["found"] for row in rows if row["found"]})
        if strangers:
            raise MissingDependencyError(
                f"executors must have zonebloom {__version__} as the driver has",
                got=strangers[0],
                do="install it there, or send it: docs/how-to/spark-cluster.md",
            )
        if sorted(row["number"] for row in rows) != list(range(count)):
            raise StorageError(f"each of {count} Spark tasks must give one result", got=len(rows), do="run again")
        return {row["number"]: pickle.loads(row["result"]) for row in rows}  # noqa: S301 - from our own executors


@contextmanager
def described(spark: SparkSession, label: str) -> Iterator[None]:
    """Give this thread's jobs the tag `zonebloom`, and `label` in Spark's UI.

    Any thread can end the jobs by the tag: with `sparkContext.cancelJobsWithTag`, or `interruptTag` on Spark Connect.
    Tags of a classic session belong to one thread.
    """
    if is_connect(spark):
        spark.addTag(TAG)
        try:
            yield
        finally:
            spark.removeTag(TAG)
        return
    context = spark.sparkContext
    before = context.getLocalProperty(_DESCRIPTION)
    context.addJobTag(TAG)
    context.setJobDescription(label)
    try:
        yield
    finally:
        context.removeJobTag(TAG)
        context.setLocalProperty(_DESCRIPTION, before)


def is_connect(spark: SparkSession) -> bool:
    """Whether the session is one of Spark Connect, which has no `sparkContext`."""
    return ".connect." in type(spark).__module__


def _cause(error: BaseException) -> str:
    """The innermost cause that Spark names, in one line."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith(("Caused by:", ": org.apache.spark", "org.apache.spark"))]
    raised = [line for line in lines if re.match(r"\w+Error: ", line)]  # by Python, whose last line is the cause
    text = (raised[-1:] or causes or lines or [type(error).__name__])[0]
    return f"{re.sub(r'^(Caused by: |: )?(org.apache.spark.)?(SparkException: )?', '', text):.300}"


def lack_of_executors(spark: SparkSession) -> str | None:
    """The reason why executors cannot run zonebloom; None if they can. One job per session checks it."""
    if spark in _ABLE:
        return None
    try:
        Cluster(spark).map(_is_here, None, [None])
    except (MissingDependencyError, StorageError) as error:  # such as executors without Python
        return str(error)
    _ABLE.add(spark)
    return None


def _is_here(_: None, __: None) -> bool:
    return True


def shipped(
    function: Callable[..., Any], *arguments: Any, is_told: bool = False, label: str = "zonebloom"
) -> Callable[[Any], Any]:
    """`function(*arguments, given)` for Spark to call on an executor; `function` is one of a module of zonebloom.

    Spark pickles the result by value, so it must not refer to this module.

    Parameters
    ----------
    is_told
        Whether an executor that cannot run `function` returns the reason as a batch, for `Cluster`, or raises an error.
    label
        Its name in plans and Spark's UI.

    Design: docs/design/spark.md#delivery
    """
    package, version = __name__.partition(".")[0], __version__
    module, name = function.__module__, function.__qualname__

    def run(given):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - names of types would be pickled too
        import importlib.machinery  # noqa: PLC0415 - on the executor
        import importlib.util  # noqa: PLC0415 - as above
        import sys  # noqa: PLC0415 - as above

        import pyarrow  # noqa: ICN001, PLC0415 - as above

        problem, is_first = "", True
        for is_last in (False, True):
            try:
                there = importlib.import_module(package)
                problem = "" if there.__version__ == version else f"version {there.__version__}"
                if importlib.util.find_spec("numba") is None:
                    problem = "none that can be used (No module named 'numba')"
                first = importlib.machinery.PathFinder.find_spec(package)
                is_first = first is None or first.origin == getattr(there.__spec__, "origin", None)
            except ImportError as error:
                problem = f"none that can be imported ({error})"
            if not is_last and (
                problem or not is_first
            ):  # imported before this version was sent, or by another session
                for loaded in [loaded for loaded in sys.modules if loaded.partition(".")[0] == package]:
                    del sys.modules[loaded]
        if not problem:
            return getattr(importlib.import_module(module), name)(*arguments, given)
        if is_told:
            return iter([pyarrow.RecordBatch.from_pylist([{"number": -1, "found": problem, "result": b""}])])
        message = f"executors must have zonebloom {version} as the driver has, got {problem}"
        raise ImportError(f"{message}; install it there, or send it: docs/how-to/spark-cluster.md")

    run.__name__ = label
    return run


def perform(common: bytes, arguments: Sequence[bytes], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """On an executor: run the calls that `Cluster.map` packed, and give their results."""
    import pyarrow as pa  # noqa: PLC0415 - the driver's session needs none

    module, name, shared = unpickled(common)
    function = getattr(importlib.import_module(module), name)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            result = pickle.dumps(function(shared, unpickled(arguments[number])), protocol=5)
            yield pa.RecordBatch.from_pylist([{"number": number, "found": "", "result": result}])


def pickled(value: Any) -> bytes:
    """`value`, pickled and compressed, for executors."""
    return zlib.compress(pickle.dumps(value, protocol=5), 1)


def unpickled(data: bytes) -> Any:
    """On an executor: the value that the driver pickled and compressed.

    Raises
    ------
    MissingDependencyError
        The value needs a library that is not installed here, such as that of a table.
    """
    try:
        return pickle.loads(zlib.decompress(data))  # noqa: S301 - of our own driver
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            f"executors must have {error.name} as the driver has",
            got="none",
            do="install it there, or send it: docs/how-to/spark-cluster.md",
        ) from error
