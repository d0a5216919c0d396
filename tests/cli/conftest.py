"""What tests of the command have in common."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import Outcome


@pytest.fixture
def asked(run: Callable[..., Outcome], tmp_path: Path) -> Callable[..., Outcome]:
    """`asked("exists", lake, "user_id", "a\\nb\\n", ..., name="v.txt")`: for values in a file of that text."""

    def command(
        command: str, root: Path, column: str, text: str | bytes, *options: object, name: str = "v.txt"
    ) -> Outcome:
        (tmp_path / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        return run(command, root, "-c", column, "--values", tmp_path / name, *options)

    return command
