"""Pages of the documentation as programs: their fenced blocks run in order, in a folder with the tutorial's lake.

- ```` ```python ````: executed; one namespace a page. A ```` ```text ```` block right after it is what it prints.
- ```` ```console ````: each line after `$ ` is given to bash; the lines below it are what it prints.
- Other blocks (`sh`, `sql`, `crontab`) are only shown.

`...` in printed text matches anything, and white space any white space.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """One fenced block of a page."""

    language: str
    text: str
    line: int
    printed: str | None
    """What the block is said to print."""


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of `page` in order; a block of text right after one of Python belongs to it."""
    text = page.read_text("utf-8")
    matches = list(_BLOCK.finditer(text))
    for number, block in enumerate(matches):
        after = matches[number + 1] if number + 1 < len(matches) else None
        is_output = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
        yield Block(block[1], block[2], text[: block.start()].count("\n") + 1, after[2] if is_output else None)


def is_program(page: Path) -> bool:
    """Whether a block of `page` is run."""
    return any(block.language in {"python", "console"} for block in blocks(page))


def write_lake(folder: Path) -> None:
    """The lake of the tutorial, `events/`, in `folder`."""
    run_python(next(block for block in blocks(DOCS / "tutorial.md") if block.language == "python"), folder, {})


def run_page(page: Path, folder: Path, **names: object) -> None:
    """Run the blocks of `page` in `folder`, with `names` known to Python."""
    scope: dict[str, object] = {**names, "__name__": "__main__"}  # functions of it can be sent to other processes
    for block in blocks(page):
        if block.language == "python":
            assert_printed(run_python(block, folder, scope), block.printed, f"{page}:{block.line}")
        elif block.language == "console":
            for command, printed in commands(block.text):
                assert_printed(run_command(command, folder), printed, f"{page}:{block.line}: {command}")


def run_python(block: Block, folder: Path, scope: dict[str, object]) -> str:
    out = io.StringIO()
    with contextlib.chdir(folder), contextlib.redirect_stdout(out):
        exec(compile("\n" * block.line + block.text, "page", "exec"), scope)
    return out.getvalue()


def commands(text: str) -> Iterator[tuple[str, str | None]]:
    """Each command of a console, and what it is said to print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, printed = part.partition("\n")
        yield command, printed or None


def run_command(command: str, folder: Path) -> str:
    """What a shell prints for `command`, which must succeed; a mere call of `zonebloom` is made in this process."""
    words = shlex.split(command)
    if words[0] == "zonebloom" and not {"|", "||"} & {*words}:
        code, printed = call(words, folder)
    else:
        code, printed = run_in_shell(command, folder)
    assert code == 0, (command, printed)
    return printed


def call(words: list[str], folder: Path) -> tuple[int, str]:
    from zonebloom import cli

    out = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True)
    with (
        patch.object(sys, "argv", words),
        patch.dict(os.environ, COLUMNS="120"),
        contextlib.chdir(folder),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        code = cli.run()
    return code, out.buffer.getvalue().decode()  # type: ignore[attr-defined]


def run_in_shell(command: str, folder: Path) -> tuple[int, str]:
    """With this source as `zonebloom`."""
    function = f'zonebloom() {{ "{sys.executable}" -c "from zonebloom.cli import main; main()" "$@"; }}\n'
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "120"}
    done = subprocess.run(
        ["bash", "-c", f"set -e -o pipefail\n{function}{command}"],
        cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout


def assert_printed(got: str, said: str | None, where: str) -> None:
    """`got` is what the page says, in which `...` matches anything."""
    if said is None:
        return
    is_same = doctest.OutputChecker().check_output(said, got, doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    assert is_same, f"{where} printed\n{got}instead of\n{said}"
