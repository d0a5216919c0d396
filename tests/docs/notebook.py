"""The tutorial as a notebook: its cells run as a notebook runs them, and what they show is kept beside them.

`python -m tests.docs.notebook` runs docs/tutorial.ipynb anew and writes what it shows; paths become `/home/you`.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.docs.documents import DOCS

NOTEBOOK = DOCS / "tutorial.ipynb"
_HOME = "/home/you"


def shown(folder: Path) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
    """Each cell of code, and what it shows where it is run in `folder` after those before it."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    number = 0
    for cell in json.loads(NOTEBOOK.read_text("utf-8"))["cells"]:
        if cell["cell_type"] == "code":
            number += 1
            with contextlib.chdir(folder):
                outputs = _run("".join(cell["source"]), scope, number)
            text = json.dumps(outputs).replace(str(folder.resolve()), _HOME)
            yield cell, json.loads(text)


def _run(source: str, scope: dict[str, Any], number: int) -> list[dict[str, Any]]:
    """What a cell prints, and its last expression as a notebook shows it."""
    tree = ast.parse(source)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        exec(compile(tree, "cell", "exec"), scope)
        value = eval(compile(ast.Expression(last.value), "cell", "eval"), scope) if isinstance(last, ast.Expr) else None
    outputs: list[dict[str, Any]] = []
    if out.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": out.getvalue().splitlines(keepends=True)})
    if value is not None:
        data = {"text/plain": repr(value).splitlines(keepends=True)}
        if hasattr(value, "_repr_html_"):
            data["text/html"] = [value._repr_html_()]
        outputs.append({"output_type": "execute_result", "execution_count": number, "metadata": {}, "data": data})
    return outputs


def main() -> None:
    notebook = json.loads(NOTEBOOK.read_text("utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        outputs = iter(list(shown(Path(folder))))
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            _, cell["outputs"] = next(outputs)
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n", "utf-8")


if __name__ == "__main__":
    main()
