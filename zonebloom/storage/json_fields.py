"""Shapes: the types and ranges that the JSON of a file must have, declared once and checked before any use.

A shape is a function that takes a decoded JSON value and returns the Python value for it. It raises a `ValueError` with
the place of a wrong value and the condition that it must meet. Time and memory are linear in the value.

>>> point = record(complex, real=integer(), imag=integer(most=9))
>>> array(point)([{"real": 1, "imag": 2}])
((1+2j),)
>>> array(point)([{"real": 1, "imag": 10}])
Traceback (most recent call last):
ValueError: 0: imag: must be an integer from 0 to 9, got 10
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Callable, Iterable
from itertools import count, repeat
from typing import Any, TypeVar

T = TypeVar("T")
Shape = Callable[[Any], T]
_MOST = 2**63 - 1


def _each(places: Iterable[object], shapes: Iterable[Shape[Any]], values: Iterable[Any]) -> list[Any]:
    """The values converted by their shapes; an error names the place of its value."""
    converted, where = [], None
    try:
        for where, shape, value in zip(places, shapes, values, strict=False):  # noqa: B007 - the error has it
            converted.append(shape(value))
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None
    return converted


def _checked(what: str, is_such: Callable[[Any], bool], make: Callable[[Any], T]) -> Shape[T]:
    """What `make` makes of a value that `is_such`; `what` says so in words."""

    def shape(value: Any) -> T:
        if not is_such(value):
            raise ValueError(f"must be {what}, got {reprlib.repr(value)}")
        return make(value)

    return shape


def integer(least: int = 0, most: int = _MOST) -> Shape[int]:
    """An integer of a range that includes both ends."""
    return _checked(
        f"an integer from {least} to {most}", lambda value: type(value) is int and least <= value <= most, int
    )


def number(least: float, most: float) -> Shape[float]:
    """A finite number of a range that includes both ends."""

    def is_such(value: Any) -> bool:
        return type(value) in (int, float) and least <= value <= most and math.isfinite(value)

    return _checked(f"a number from {least} to {most}", is_such, float)


boolean: Shape[bool] = _checked("true or false", lambda value: type(value) is bool, bool)
"""`true` or `false`."""


def text(pattern: str = r"[^\0]*", what: str = "a text without NUL") -> Shape[str]:
    """A text that matches `pattern` from end to end; `what` says so in words."""
    matches = re.compile(pattern, re.DOTALL).fullmatch
    return _checked(what, lambda value: type(value) is str and matches(value) is not None, str)


def one_of(*texts: str) -> Shape[str]:
    """One of some texts."""
    return _checked(f"one of {', '.join(texts)}", lambda value: type(value) is str and value in texts, str)


def optional(shape: Shape[T]) -> Shape[T | None]:
    """`null`, or a value of `shape`."""
    return lambda value: None if value is None else shape(value)


def array(item: Shape[T], *, least: int = 0) -> Shape[tuple[T, ...]]:
    """An array of at least `least` values of one shape."""
    return _checked(
        f"an array of {least} values or more",
        lambda value: type(value) is list and len(value) >= least,
        lambda value: tuple(_each(count(), repeat(item), value)),
    )


def pair(make: Callable[..., T], *shapes: Shape[Any]) -> Shape[T]:
    """An array of one value for each of `shapes`; `make` takes the values in that order."""
    return _checked(
        f"an array of {len(shapes)} values",
        lambda value: type(value) is list and len(value) == len(shapes),
        lambda value: make(*_each(count(), shapes, value)),
    )


def mapping(item: Shape[T]) -> Shape[dict[str, T]]:
    """An object with any keys, whose values have one shape."""
    return _checked(
        "an object",
        lambda value: type(value) is dict,
        lambda value: dict(zip(value, _each(value, repeat(item), value.values()), strict=True)),
    )


def record(make: Callable[..., T], /, **fields: Shape[Any]) -> Shape[T]:
    """An object with the keys `fields`, which `make` takes by name; other keys are ignored."""

    def object_of(value: dict[str, Any]) -> T:
        values = _each(fields, fields.values(), map(value.__getitem__, fields))
        return make(**dict(zip(fields, values, strict=True)))

    what = f"an object with {', '.join(fields)}"
    return _checked(what, lambda value: type(value) is dict and fields.keys() <= value.keys(), object_of)
