"""The least version of each package that pyproject.toml lets users install, as pip reads requirements.

python -m tests.least > least.txt
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path


def least_versions(pyproject: Path) -> list[str]:
    """Dependencies, and extras but Spark's, which `make test-spark` tests by version."""
    project = tomllib.loads(pyproject.read_text())["project"]
    extras = [bound for name, bounds in project["optional-dependencies"].items() if name != "spark" for bound in bounds]
    bounds = [re.fullmatch(r"([\w-]+)>=([\d.]+)", bound) for bound in [*project["dependencies"], *extras]]
    return sorted({f"{bound[1]}=={bound[2]}" for bound in bounds if bound})


if __name__ == "__main__":
    print(*least_versions(Path(__file__).parents[1] / "pyproject.toml"), sep="\n")  # noqa: T201 - what pip reads
