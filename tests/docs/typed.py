"""Type-check the programs of the documentation, as scripts of a user: `python -m tests.docs.typed`, in `make lint`.

Oracle: mypy --strict. A message names the page and its line.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.docs.documents import PAGES, ROOT, blocks


def program(page: Path) -> str:
    """The Python of `page`, each line where the page has it."""
    lines: list[str] = []
    for block in blocks(page):
        if block.language == "python":
            lines += [""] * (block.line - len(lines)) + block.text.splitlines()
    return "\n".join(lines) + "\n"


def main() -> int:
    """The exit status of mypy."""
    with tempfile.TemporaryDirectory() as folder:
        for page in (ROOT / "README.md", *PAGES):
            script = Path(folder, page.relative_to(ROOT).as_posix().replace("-", "_").replace("/", "_") + ".py")
            script.write_text(program(page), "utf-8")
        mypy = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml"), folder]
        return subprocess.run(mypy, cwd=ROOT, env={**os.environ, "MYPYPATH": str(ROOT)}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
