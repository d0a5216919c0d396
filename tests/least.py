"""Constraints of pip: the least version of each package that pyproject.toml lets users install.

python -m tests.least > constraints.txt
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version


def least_versions(pyproject: Path) -> dict[str, Version]:
    """By package; the highest where an extra and the tests name two."""
    tables = tomllib.loads(pyproject.read_text())
    extras = tables["project"]["optional-dependencies"]
    promised = [*tables["project"]["dependencies"], *(text for extra in extras.values() for text in extra)]
    names = {Requirement(text).name for text in promised}
    tests = [text for group in ("oracle", "test") for text in tables["dependency-groups"][group]]
    versions: dict[str, Version] = {}
    for text in [*promised, *(text for text in tests if isinstance(text, str))]:
        requirement = Requirement(text)
        for bound in requirement.specifier:
            if bound.operator in (">=", "==") and requirement.name in names:
                version = Version(bound.version)
                versions[requirement.name] = max(version, versions.get(requirement.name, version))
    return versions


if __name__ == "__main__":
    for name, version in least_versions(Path(__file__).parents[1] / "pyproject.toml").items():
        print(f"{name}=={version}")  # noqa: T201 - what pip reads
