"""The tutorial's notebook runs, and shows what it is printed with; numbers may differ, as it tells of times.

The oracle is the notebook itself.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tests.docs.notebook import shown


def without_numbers(outputs: list[dict[str, Any]]) -> str:
    """The outputs with N for each number, and one space where lines may break for a number's length."""
    words = re.sub(r'(\\n|", "|\s)+', " ", json.dumps(outputs, sort_keys=True))
    return re.sub(r"\d[\d.,e-]*", "N", words)


def test_the_notebook_shows_what_it_is_printed_with(tmp_path: Path) -> None:
    kinds = set()
    for cell, outputs in shown(tmp_path):
        assert without_numbers(outputs) == without_numbers(cell["outputs"]), "".join(cell["source"])
        kinds |= {kind for output in outputs for kind in output.get("data", {})}
    assert kinds == {"text/plain", "text/html"}
