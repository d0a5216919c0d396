"""The Spark session: the caller's, the active one, or a new one; and what to say where there can be none.

Nothing below reaches into the JVM, so that a Spark Connect session does as well as a classic one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zonebloom.errors import InvalidArgumentError, MissingDependencyError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["is_connect", "reads_by_id", "session_of"]

_LEAST = (4, 1)


def session_of(spark: SparkSession | None = None) -> SparkSession:
    """`spark`, or the active session, or a new one.

    Raises
    ------
    MissingDependencyError
        PySpark, pandas (which Spark's own Arrow functions import) or Java is missing or too old.
    InvalidArgumentError
        `spark` is no session.
    """
    try:
        import pandas  # noqa: F401, ICN001, PLC0415 - only to say that it is missing
        import pyspark  # noqa: PLC0415 - an optional extra
        from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - as above
        from pyspark.sql import SparkSession  # noqa: PLC0415 - as above
    except ImportError as error:
        message = f'PySpark 4.1 or newer with pandas must be installed, got: {error}; pip install "zonebloom[spark]"'
        raise MissingDependencyError(message) from error
    if tuple(int(part) for part in pyspark.__version__.split(".")[:2]) < _LEAST:
        message = f"PySpark must be 4.1 or newer, got {pyspark.__version__}"
        raise MissingDependencyError(f'{message}; pip install "zonebloom[spark]"')
    if spark is not None:
        if not hasattr(spark, "createDataFrame"):
            raise InvalidArgumentError(f"spark must be a SparkSession, got {type(spark).__name__}")
        return spark
    try:
        return SparkSession.getActiveSession() or SparkSession.builder.getOrCreate()
    except (PySparkRuntimeError, FileNotFoundError) as error:
        message = f"Spark must find a Java 17 or 21 through JAVA_HOME or PATH, got: {str(error).strip() or error!r}"
        raise MissingDependencyError(f"{message}; install a JDK, such as Debian's openjdk-17-jre-headless") from error


def is_connect(spark: Any) -> bool:
    """Whether the session is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def reads_by_id(spark: SparkSession) -> bool:
    """Whether Spark finds a column that has an id in a file by it, not by its name."""
    return bool(spark.conf.get("spark.sql.parquet.fieldId.read.enabled", "false") == "true")
