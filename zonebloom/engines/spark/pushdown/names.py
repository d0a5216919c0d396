"""Names of columns that Spark and the index may resolve to different columns.

Spark's Parquet reader ignores case, and prefers a folder's value to a column of that name. The library does neither. So
one name may mean different values in Spark and in the library.

Design: docs/design/spark-reads.md#binding
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import Column, functions

from zonebloom.bloom.hashing import leaf_paths
from zonebloom.engines.spark.versions import IS_BEFORE_4
from zonebloom.formats.hive import partition_values
from zonebloom.ground.errors import DataFileError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from zonebloom.search.view import View

_SURROGATE = re.compile("[\ud800-\udfff]")
_CANONICAL = re.compile(r"0|-?[1-9]\d*|\d{4}-\d\d-\d\d", re.ASCII)


class Names:
    """The names of one data set at present."""

    escaped: frozenset[str]
    """Partition columns with a value that Spark and the library decode differently."""
    canonical: frozenset[str]
    """Partition columns whose values are all integers or dates in their only spelling."""
    shadowed: frozenset[str]
    """Columns of files, in lower case, that folders name too: Spark takes the folders' values."""

    def __init__(self, view: View) -> None:
        names = [name.lower() for name in view.schema.names]
        self._twice = {name for name, count in Counter(names).items() if count > 1}
        keys, self.escaped, odd = _folders(view.listing)
        self.canonical = frozenset(keys) - odd
        own = keys - {field.name for field in view.partition_fields}
        self.shadowed = frozenset({key.lower() for key in own} & set(names))
        self._twice |= self.shadowed
        self._leaves = Counter(name.lower() for name in leaf_paths(view.schema))

    @property
    def is_ambiguous(self) -> bool:
        """Whether Spark and the library may resolve a name to different columns."""
        return bool(self._twice) or any(count > 1 for count in self._leaves.values())

    def is_same(self, name: str) -> bool:
        """Whether `name`, a column or the dotted path of a leaf, means the same values to Spark and the index."""
        lower = name.lower()
        is_twice = any(lower == twice or lower.startswith(f"{twice}.") for twice in self._twice)
        return not is_twice and name not in self.escaped and self._leaves[lower] == 1


def _folders(listing: Iterable[str]) -> tuple[set[str], frozenset[str], frozenset[str]]:
    """All keys of `key=value` folders; keys with a value that Spark decodes byte by byte; keys not canonical."""
    keys: set[str] = set()
    escaped: set[str] = set()
    odd: set[str] = set()
    for folder in {path.rpartition("/")[0] for path in listing}:
        if "=" in folder:
            values = partition_values(f"{folder}/")
            keys |= values.keys()
            odd |= {key for key, text in values.items() if text is not None and not _CANONICAL.fullmatch(text)}
            if re.search(r"%(?![0-7][0-9A-Fa-f])", folder):
                escaped |= values.keys()
    return keys, frozenset(escaped), frozenset(odd)


def misread(view: View, names: Names, paths: Iterable[str]) -> str | None:
    """The reason why names might give other rows of `paths` in the library than in Spark; None if they cannot."""
    if names.is_ambiguous or names.escaped:
        return "Spark and the library read some column names or folders differently"
    spellings = set(_spellings(view.schema))
    for path in set(view.files.unknown_paths) & set(paths):
        try:
            with view.dataset.open(path, view.listing[path]) as data:
                is_known = set(_spellings(data.schema)) <= spellings
        except DataFileError:
            return f"{path} cannot be read"
        if not is_known:
            return f"{path} has columns or fields that the index does not have"  # a struct of only such may be null
    return None


def resolves(frame: DataFrame, *path: str) -> bool:
    """Whether `frame` has one column or leaf at `path`, by the session's rule for upper and lower case."""
    try:
        frame.select(named(*path)).schema  # noqa: B018 - Connect resolves names with the schema
    except PySparkException:
        return False
    return True


def is_sent(text: object) -> bool:
    """Whether `text` is a text that reaches Spark: half of a surrogate pair has no UTF-8."""
    return isinstance(text, str) and not _SURROGATE.search(text)


def backquoted(*path: str) -> str:
    """SQL for the column or leaf at `path`."""
    return ".".join("`" + name.replace("`", "``") + "`" for name in path)


def named(*path: str) -> Column:
    """The column or leaf at `path`. Before Spark 4 only SQL takes a name with a backtick."""
    text = backquoted(*path)
    return functions.expr(text) if IS_BEFORE_4 and "``" in text else functions.col(text)


def unlike(names: Iterable[str]) -> str:
    """A name that none of `names` is, in any case: it is longer."""
    return max(names, key=len) + "_"


def respelled(schema: pa.Schema, stored: pa.Schema) -> str | None:
    """A column or inner field of `schema` that `stored` has only in another case; None if there is none."""
    spelled = set(_spellings(stored))
    lower = {name.lower() for name in spelled}
    return next((name for name in _spellings(schema) if name not in spelled and name.lower() in lower), None)


def _spellings(fields: Iterable[pa.Field], above: str = "") -> Iterator[str]:
    """The paths of columns and of all fields within them, in lists and maps too."""
    for field in fields:
        yield above + field.name
        inner = [field.type.field(number) for number in range(field.type.num_fields)]
        if pa.types.is_struct(field.type):
            yield from _spellings(inner, f"{above}{field.name}.")
        else:
            yield from _spellings([part.with_name(str(place)) for place, part in enumerate(inner)], above + field.name)
