"""How deep the suite goes: as a change needs (`make test`), or in full where `ZONEBLOOM_DEPTH=deep` (`make test-deep`).

The properties are the same at both depths, but for some that need a cluster, long waits or settings that few have
(`deep_only`); the number of examples, lives, kills and sessions differs. `make test-deep` runs just the tests whose
depth differs: they have the mark `deep`, which `deeper_names` finds in the source. Tests of Spark that have it there
run with the other kind of session.
"""

from __future__ import annotations

import ast
import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from pathlib import Path
from typing import TypeVar

__all__ = ["IS_DEEP", "at_depth", "deep_only", "deeper_names", "some"]

T = TypeVar("T")

IS_DEEP = os.environ.get("ZONEBLOOM_DEPTH") == "deep"


def at_depth(full: int, change: int | None = None) -> int:
    """`full` in the deep suite; else `change`, by default a fifth, and at least 5."""
    return full if IS_DEEP else change or max(full // 5, 5)


def deep_only(test: T) -> T | None:
    """The test in the deep suite; else none, so that pytest finds no test of that name. The first of its decorators."""
    return test if IS_DEEP else None


def some(cases: Iterable[T], each: int) -> Sequence[T]:
    """All `cases` in the deep suite; else the first and every `each`-th after it."""
    return list(islice(cases, 0, None, 1 if IS_DEEP else each))


@cache
def deeper_names(module: Path) -> frozenset[str]:
    """Names that a module imports from here or from Hypothesis, or defines by such names: tests among them."""
    definitions = list(_definitions(ast.parse(module.read_text("utf-8")).body))
    deeper: set[str] = set()
    while more := {name for name, used in definitions if used & {__name__, "hypothesis", *deeper}} - deeper:
        deeper |= more
    return frozenset(deeper)


def _definitions(statements: Iterable[ast.stmt]) -> Iterator[tuple[str, set[str]]]:
    """Each name that `statements` define, and the names that its definition uses; a fixture's are those it asks for."""
    for statement in statements:
        used = {node.id for node in ast.walk(statement) if isinstance(node, ast.Name)}
        used |= {node.arg for node in ast.walk(statement) if isinstance(node, ast.arg)}
        if isinstance(statement, ast.ImportFrom):
            yield from ((alias.name, {str(statement.module)}) for alias in statement.names)
        elif isinstance(statement, ast.If):
            yield from ((name, used) for name, _ in _definitions([*statement.body, *statement.orelse]))
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            yield statement.name, used
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            yield from ((target.id, used) for target in targets if isinstance(target, ast.Name))
