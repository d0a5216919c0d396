"""For mkdocstrings: a line `Spec: specs/x.md#y` or `Design: docs/design/x.md#y` becomes a link before the sections."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SPEC = re.compile(r"\n*^(Spec|Design): (.*)$", re.MULTILINE)
_PATH = re.compile(r"(?:docs/)?(specs|design)/([\w-]+)\.md((?:#[\w-]+)?)")
_SECTION = re.compile(r"\n\n(?=\w+\n-{3,}\n)")


class SpecLines(griffe.Extension):
    """Moves the line in every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of `obj`, if it has such a line."""
        if obj.docstring and (found := _SPEC.search(obj.docstring.value)):
            text = _SPEC.sub("", obj.docstring.value)
            line = f"\n\n{found[1]}: " + _PATH.sub(r"[\2\3](../\1/\2.md\3)", found[2])
            start = _SECTION.search(text)
            place = start.start() if start else len(text)
            obj.docstring.value = text[:place] + line + text[place:]
