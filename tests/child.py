"""Code in a Python of its own, which must end without an error."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run_python(
    code: str, *arguments: object, typed: str | None = None, seconds: float | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Run `code` with `arguments` and an added `environment`; `typed` is what it can read."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        input=typed, capture_output=True, text=True, timeout=seconds, check=False,
        cwd=ROOT, env=os.environ | environment,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done
