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
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Shape = Callable[[Any], T]
_MOST = 2**63 - 1


def _must(is_right: bool, what: str, value: Any) -> None:  # noqa: FBT001 - a condition
    if not is_right:
        raise ValueError(f"must be {what}, got {reprlib.repr(value)}")


def _inside(where: object, shape: Shape[T], value: Any) -> T:
    try:
        return shape(value)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from None


def integer(least: int = 0, most: int = _MOST) -> Shape[int]:
    """An integer of a range that includes both ends."""
    what = f"an integer from {least} to {most}"

    def shape(value: Any) -> int:
        _must(type(value) is int and least <= value <= most, what, value)
        return int(value)

    return shape


def number(least: float, most: float) -> Shape[float]:
    """A finite number of a range that includes both ends."""
    what = f"a number from {least} to {most}"

    def shape(value: Any) -> float:
        _must(type(value) in (int, float) and least <= value <= most and math.isfinite(value), what, value)
        return float(value)

    return shape


def boolean(value: Any) -> bool:
    """`true` or `false`."""
    _must(type(value) is bool, "true or false", value)
    return bool(value)


def text(pattern: str = r"[^\0]*", what: str = "a text without NUL") -> Shape[str]:
    """A text that matches `pattern` from end to end; `what` says so in words."""
    matches = re.compile(pattern, re.DOTALL).fullmatch

    def shape(value: Any) -> str:
        _must(type(value) is str and matches(value) is not None, what, value)
        return str(value)

    return shape


def one_of(*texts: str) -> Shape[str]:
    """One of some texts."""
    what = f"one of {', '.join(texts)}"

    def shape(value: Any) -> str:
        _must(type(value) is str and value in texts, what, value)
        return str(value)

    return shape


def optional(shape: Shape[T]) -> Shape[T | None]:
    """`null`, or a value of `shape`."""
    return lambda value: None if value is None else shape(value)


def array(item: Shape[T], *, least: int = 0) -> Shape[tuple[T, ...]]:
    """An array of at least `least` values of one shape."""
    what = f"an array of {least} values or more"

    def shape(value: Any) -> tuple[T, ...]:
        _must(type(value) is list and len(value) >= least, what, value)
        return tuple([_inside(number, item, one) for number, one in enumerate(value)])

    return shape


def pair(make: Callable[..., T], *shapes: Shape[Any]) -> Shape[T]:
    """An array of one value for each of `shapes`; `make` takes the values in that order."""
    what = f"an array of {len(shapes)} values"

    def shape(value: Any) -> T:
        _must(type(value) is list and len(value) == len(shapes), what, value)
        return make(*[_inside(number, one, part) for number, (one, part) in enumerate(zip(shapes, value, strict=True))])

    return shape


def mapping(item: Shape[T]) -> Shape[dict[str, T]]:
    """An object with any keys, whose values have one shape."""

    def shape(value: Any) -> dict[str, T]:
        _must(type(value) is dict, "an object", value)
        return {key: _inside(key, item, one) for key, one in value.items()}

    return shape


def record(make: Callable[..., T], /, **fields: Shape[Any]) -> Shape[T]:
    """An object with the keys `fields`, which `make` takes by name; other keys are ignored."""
    what = f"an object with {', '.join(fields)}"

    def shape(value: Any) -> T:
        _must(type(value) is dict and fields.keys() <= value.keys(), what, value)
        return make(**{key: _inside(key, one, value[key]) for key, one in fields.items()})

    return shape
