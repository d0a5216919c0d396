"""Every citation of a spec leads somewhere: from the code to an anchor, and from one spec to another."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SPECS = ROOT / "specs"
CITATION = re.compile(r"specs/(?P<file>[\w-]+\.md)(?:#(?P<anchor>[\w-]+))?")
LINK_BETWEEN_SPECS = re.compile(r"(?<![\w/-])(?P<file>[\w-]+\.md)#(?P<anchor>[\w-]+)")
EXPLICIT = re.compile(r"""<a\s+(?:id|name)=["']([\w-]+)["']""")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


@cache
def anchors(spec: Path) -> frozenset[str]:
    """What `#...` may say: explicit `<a id>`s, and headings the way that Markdown renderers name them."""
    text = spec.read_text("utf-8")
    named = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)]
    return frozenset(EXPLICIT.findall(text)) | frozenset(named)


def problems(source: Path, pattern: re.Pattern[str], specs: Path = SPECS) -> list[str]:
    """Citations in `source` that lead nowhere in the folder `specs`."""
    found = []
    for number, line in enumerate(source.read_text("utf-8").splitlines(), 1):
        for citation in pattern.finditer(line):
            spec = specs / citation["file"]
            if not spec.is_file():
                found.append(f"{source.name}:{number}: {citation[0]}: there is no such spec")
            elif citation["anchor"] and citation["anchor"] not in anchors(spec):
                found.append(f"{source.name}:{number}: {citation[0]}: the spec has no such anchor")
    return found


def test_every_citation_in_the_code_resolves():
    sources = sorted((ROOT / "zonebloom").rglob("*.py"))
    assert len(sources) > 10
    assert [one for source in sources for one in problems(source, CITATION)] == []


def test_every_link_between_specs_resolves():
    specs = sorted(SPECS.glob("*.md"))
    assert specs
    assert [one for spec in specs for one in problems(spec, LINK_BETWEEN_SPECS)] == []


def test_every_spec_is_cited_by_the_code():
    cited = {
        citation["file"]
        for source in (ROOT / "zonebloom").rglob("*.py")
        for citation in CITATION.finditer(source.read_text("utf-8"))
    }
    assert {spec.name for spec in SPECS.glob("*.md")} <= cited


def test_anchors_are_unique_within_a_spec():
    for spec in sorted(SPECS.glob("*.md")):
        explicit = EXPLICIT.findall(spec.read_text("utf-8"))
        assert sorted(set(explicit)) == sorted(explicit), spec.name


@pytest.mark.parametrize(
    ("citation", "resolves"),
    [
        ("specs/a.md", True),
        ("specs/a.md#num_blocks_for", True),
        ("specs/a.md#2-bits-and-bytes", True),
        ("specs/a.md#other", False),
        ("specs/b.md", False),
    ],
)
def test_the_checker_itself(tmp_path, citation, resolves):
    (tmp_path / "a.md").write_text('# A\n\n<a id="num_blocks_for"></a>\n\n## 2. Bits and bytes\n', "utf-8")
    source = tmp_path / "code.py"
    source.write_text(f'"""Spec: {citation}."""\n', "utf-8")
    assert (problems(source, CITATION, tmp_path) == []) is resolves
