"""Calling a function of zonebloom on the executors: arguments there, small results back, each exactly once.

One Spark task for each argument, by `mapInArrow` over a range, which works on classic sessions and on Spark Connect.
What Spark sends is a closure that needs no zonebloom to be unpickled, so executors that lack it, or have another
version, can say so. A task that is tried again, or runs twice, gives one row: Spark takes the result of one attempt.

Spec: specs/spark.md#tasks
"""

from __future__ import annotations

import importlib
import pickle
import re
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import zonebloom
from zonebloom import errors
from zonebloom.errors import MissingDependencyError, StorageError, ZoneBloomError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

__all__ = ["Cluster", "lack_of_executors", "perform", "unpacked"]

_SCHEMA = "number long, found string, result binary"
_RAISED = re.compile(r"zonebloom\.errors\.(\w+): ([^\n]+)")
_MOST_SLOTS = 4096
_JOBS = 16
"""With progress, tasks go out in so many jobs at most, two at a time, and each that ends is reported."""
_ABLE: WeakSet[SparkSession] = WeakSet()
"""Sessions whose executors can run zonebloom."""


class Cluster:
    """The executors behind a session."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._slots: int | None = None
        self._lock = threading.Lock()

    @property
    def slots(self) -> int:
        """Tasks that run at once, as far as Spark says: the partitions that it gives a range."""
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
            Called with each result not long after it is there; costs some jobs more.

        Raises
        ------
        MissingDependencyError
            Executors lack zonebloom, or have another version.
        ZoneBloomError
            What `function` raised each time that Spark tried it.
        """
        common = _packed((function.__module__, function.__qualname__, shared))
        packed = [_packed(argument) for argument in arguments]
        numbers = range(len(packed))
        results: dict[int, Any] = {}

        def run(chosen: Sequence[int]) -> None:
            found = self._collect(common, [packed[number] for number in chosen])
            with self._lock:
                for place, result in found.items():
                    results[chosen[place]] = result
                    if on_result is not None:
                        on_result(result)

        if on_result is None or len(packed) <= self.slots:
            run(numbers)
        else:
            size = max(-(-len(packed) // _JOBS), self.slots)
            with ThreadPoolExecutor(2, thread_name_prefix="zonebloom-spark") as pool:
                for future in [pool.submit(run, numbers[i : i + size]) for i in range(0, len(packed), size)]:
                    future.result()
        return [results[number] for number in numbers]

    def _collect(self, common: bytes, arguments: Sequence[bytes]) -> dict[int, Any]:
        count = len(arguments)
        if not count:
            return {}
        tasks = _tasks(zonebloom.__version__, common, arguments)
        try:
            rows = self._spark.range(0, count, 1, count).mapInArrow(tasks, _SCHEMA).collect()
        except Exception as error:
            raised = _RAISED.findall(str(error))
            kind = getattr(errors, raised[-1][0], None) if raised else None
            if isinstance(kind, type) and issubclass(kind, ZoneBloomError):
                raise kind(raised[-1][1].strip()) from error
            raise
        strangers = sorted({row["found"] for row in rows if row["found"]})
        if strangers:
            message = f"executors must have zonebloom {zonebloom.__version__} as the driver has, got {strangers[0]}"
            raise MissingDependencyError(f"{message}; install it there, or send it along: specs/spark.md#delivery")
        if sorted(row["number"] for row in rows) != list(range(count)):
            raise StorageError(f"each of {count} Spark tasks must give one result, got {len(rows)}; run again")
        return {row["number"]: pickle.loads(row["result"]) for row in rows}  # noqa: S301 - of our own executors


def lack_of_executors(spark: SparkSession) -> str | None:
    """Why executors cannot run zonebloom; None where they can, which a job finds out once for each session."""
    if spark in _ABLE:
        return None
    try:
        Cluster(spark).map(_is_here, None, [None])
    except MissingDependencyError as error:
        return str(error)
    _ABLE.add(spark)
    return None


def _is_here(_: None, __: None) -> bool:
    return True


def _packed(value: Any) -> bytes:
    return zlib.compress(pickle.dumps(value, protocol=5), 1)


def _tasks(
    version: str, common: bytes, arguments: Sequence[bytes]
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """A function for `mapInArrow` that Spark pickles by value, so that it must not refer to this module."""

    def run(batches):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN202 - names of types would be pickled too
        import importlib.util  # noqa: PLC0415 - on the executor
        import sys  # noqa: PLC0415 - as above

        import pyarrow  # noqa: ICN001, PLC0415 - as above

        found = ""
        for is_last in (False, True):
            try:
                import zonebloom as there  # noqa: PLC0415 - as above

                found = "" if there.__version__ == version else f"version {there.__version__}"
                if importlib.util.find_spec("numba") is None:
                    found = "none that can be used (No module named 'numba')"
            except ImportError as error:
                found = f"none that can be imported ({error})"
            if found and not is_last:  # Spark's Python workers serve other sessions first, with other artifacts
                for name in [one for one in sys.modules if one.partition(".")[0] == "zonebloom"]:
                    del sys.modules[name]
        for batch in batches:
            for number in batch.column(0).to_pylist():
                result = None
                if not found:
                    from zonebloom.engines.spark.executors import perform  # noqa: PLC0415 - as above

                    result = perform(common, arguments[number])
                yield pyarrow.RecordBatch.from_arrays(
                    [
                        pyarrow.array([number], pyarrow.int64()),
                        pyarrow.array([found], pyarrow.string()),
                        pyarrow.array([result], pyarrow.binary()),
                    ],
                    names=["number", "found", "result"],
                )

    return run


def perform(common: bytes, argument: bytes) -> bytes:
    """On an executor: the call that `Cluster.map` packed, and its result."""
    module, name, shared = unpacked(common)
    function = getattr(importlib.import_module(module), name)
    return pickle.dumps(function(shared, unpacked(argument)), protocol=5)


def unpacked(data: bytes) -> Any:
    """On an executor: what the driver pickled and compressed.

    Raises
    ------
    MissingDependencyError
        It is of a library that is not installed here, such as that of a table.
    """
    try:
        return pickle.loads(zlib.decompress(data))  # noqa: S301 - of our own driver
    except ModuleNotFoundError as error:
        message = f"executors must have {error.name} as the driver has, got none"
        raise MissingDependencyError(
            f"{message}; install it there, or send it along: specs/spark.md#delivery"
        ) from error
