"""For mkdocstrings: links of `Spec: specs/x.md#y` and `Design: docs/design/x.md#y`, and the values of defaults.

A line that begins with one of both becomes a link before the sections. A constant as a default of a parameter
(`rows_per_zone=ROWS_PER_ZONE`) is shown as its value.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import griffe

_SPEC = re.compile(r"\n*^(Spec|Design): (.*)$", re.MULTILINE)
_PATH = re.compile(r"(?:docs/)?(specs|design)/([\w-]+)\.md((?:#[\w-]+)?)")
_SECTION = re.compile(r"\n\n(?=\w+\n-{3,}\n)")


class SpecLines(griffe.Extension):
    """Changes every docstring with such a line, and every function with such a default."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of `obj`, if it has such a line; pages of the reference are two folders deep."""
        if obj.docstring and (found := _SPEC.search(obj.docstring.value)):
            text = _SPEC.sub("", obj.docstring.value)
            line = f"\n\n{found[1]}: " + _PATH.sub(r"[\2\3](../../\1/\2.md\3)", found[2])
            start = _SECTION.search(text)
            place = start.start() if start else len(text)
            obj.docstring.value = text[:place] + line + text[place:]

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:
        """Show the values of constants; nothing is imported, because engines may be missing."""
        for function in _functions(pkg):
            for parameter in function.parameters:
                if isinstance(parameter.default, griffe.ExprName) and parameter.default.name.isupper():
                    parameter.default = str(loader.modules_collection[parameter.default.canonical_path].value)


def _functions(parent: griffe.Module | griffe.Class) -> Iterator[griffe.Function]:
    for member in parent.members.values():
        if isinstance(member, griffe.Function):
            yield member
        elif isinstance(member, griffe.Module | griffe.Class):
            yield from _functions(member)
