"""For mkdocstrings: the line `Spec: specs/x.md#y` of a docstring comes before its sections, as a link."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SPEC = re.compile(r"\n*^Spec: (.*)$", re.MULTILINE)
_PATH = re.compile(r"specs/([\w-]+)\.md((?:#[\w-]+)?)")
_SECTION = re.compile(r"\n\n(?=\w+\n-{3,}\n)")


class SpecLines(griffe.Extension):
    """Moves the line in every docstring."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of `obj`, if it has such a line."""
        if obj.docstring and (found := _SPEC.search(obj.docstring.value)):
            text = _SPEC.sub("", obj.docstring.value)
            line = "\n\nSpec: " + _PATH.sub(r"[\1\2](../specs/\1.md\2)", found[1])
            start = _SECTION.search(text)
            place = start.start() if start else len(text)
            obj.docstring.value = text[:place] + line + text[place:]
