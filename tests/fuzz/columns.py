"""Random columns of awkward names and types, and random values of them."""

from __future__ import annotations

import datetime as dt
import random
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tests.fuzz.conditions import Path

NAMES = (
    *("k", "K", "a", "b.c", "select", "x y", 'q"q', "it's", "naïve", "数", "%41", "a=b", "x.list.element"),
    *("l.list.element", "s.b", "_x", ".y", "é"),
)
UTC = dt.UTC


def _text(chance: random.Random) -> str:
    return chance.choice(("", "a", "b", "A", "é", "e\u0301", "it's", "x" * 40, " ", "%", "0", "\\", "数", "NULL"))


KINDS: dict[str, tuple[pa.DataType, Callable[[random.Random], Any]]] = {
    "int64": (pa.int64(), lambda chance: chance.choice((*range(-2, 9), 2**31, 2**53 + 1, -(2**63), 2**63 - 1))),
    "int32": (pa.int32(), lambda chance: chance.choice((*range(-2, 9), 2**31 - 1))),
    "int8": (pa.int8(), lambda chance: chance.randrange(-3, 4)),
    "uint64": (pa.uint64(), lambda chance: chance.choice((*range(6), 2**63, 2**64 - 1))),
    "double": (pa.float64(), lambda chance: chance.choice((-1.5, -0.0, 0.0, 0.5, 1.0, 2.5, 1e300, 0.1))),
    "odd double": (pa.float64(), lambda chance: chance.choice((-0.0, 0.0, 1.0, float("nan"), float("inf")))),
    "float": (pa.float32(), lambda chance: chance.choice((-1.5, -0.0, 0.0, 0.5, 2.5))),
    "text": (pa.string(), _text),
    "large text": (pa.large_string(), _text),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), _text),
    "bytes": (pa.binary(), lambda chance: chance.choice((b"", b"a", b"\xff\x00", b"x" * 30))),
    "bool": (pa.bool_(), lambda chance: chance.random() < 0.5),
    "date": (pa.date32(), lambda chance: dt.date(2024, 1, chance.randrange(1, 9))),
    "time": (pa.timestamp("us"), lambda chance: dt.datetime(2024, 1, 1, 0, 0, 0, chance.choice((0, 1, 500_000)))),  # noqa: DTZ001 - local
    "instant": (pa.timestamp("us", "UTC"), lambda chance: dt.datetime(2024, 1, chance.randrange(1, 5), tzinfo=UTC)),
    "decimal": (pa.decimal128(9, 2), lambda chance: Decimal(chance.choice(("0", "1.5", "-2.25", "1234567.89")))),
}
NARROWER = {"int64": "int32", "int32": "int8", "double": "float"}
"""What an older file may have instead."""


@dataclass(frozen=True)
class Column:
    """One top-level column: a kind, or of a struct the kinds of its fields."""

    name: str
    kind: str
    fields: tuple[tuple[str, str], ...] = ()

    @property
    def type(self) -> pa.DataType:
        if self.fields:
            return pa.struct([(name, KINDS[kind][0]) for name, kind in self.fields])
        return pa.list_(pa.int64()) if self.kind == "list" else KINDS[self.kind][0]

    @property
    def leaves(self) -> dict[Path, str]:
        """What can be asked for: path and kind."""
        if self.kind == "list":
            return {}
        return {(self.name, name): kind for name, kind in self.fields} if self.fields else {(self.name,): self.kind}

    def value(self, chance: random.Random, num_values: int) -> Any:
        if chance.random() < 0.15:
            return None
        if self.fields:
            return {name: None if chance.random() < 0.1 else KINDS[kind][1](chance) for name, kind in self.fields}
        if self.kind == "list":
            return [chance.randrange(5) for _ in range(chance.randrange(3))]
        return KINDS[self.kind][1](random.Random(chance.randrange(num_values)))


def random_columns(chance: random.Random) -> list[Column]:
    names = chance.sample(NAMES, chance.randrange(2, 6))
    columns = [Column(name, chance.choice(list(KINDS))) for name in names]
    if chance.random() < 0.4:
        inner = chance.sample(("b", "c", "x y", "element", "D"), 2)
        kinds = chance.choices([kind for kind in KINDS if kind not in ("dictionary", "odd double")], k=2)
        struct = Column(chance.choice(("s", "st ruct", "x")), "struct", tuple(zip(inner, kinds, strict=True)))
        paths = {".".join(leaf) for leaf in struct.leaves}  # a name that is also a path is refused, so it is not asked
        columns = [*(column for column in columns if column.name not in paths), struct]
    if chance.random() < 0.3:
        columns.append(Column(chance.choice(("l", "list")), "list"))
    chance.shuffle(columns)
    return columns
