"""Every citation of a page of specs/ or docs/design/ leads somewhere, from the code and from one page to another."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
SPECS, DESIGN = ROOT / "specs", ROOT / "docs" / "design"
CITED = sorted([*SPECS.glob("*.md"), *DESIGN.glob("*.md")])
CITATION = re.compile(r"(?P<page>(?:specs|docs/design)/[\w-]+\.md)(?:#(?P<anchor>[\w-]+))?")
BETWEEN = re.compile(r"(?<![\w/-])(?P<page>[\w-]+\.md)#(?P<anchor>[\w-]+)")
LABEL = re.compile(r"^ *(Spec|Design): (specs|docs/design)/", re.MULTILINE)
EXPLICIT = re.compile(r"""<a\s+(?:id|name)=["']([\w-]+)["']""")
HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*#*$", re.MULTILINE)


@cache
def anchors(page: Path) -> frozenset[str]:
    """What `#...` may say: explicit `<a id>`s, and headings the way that Markdown renderers name them."""
    text = page.read_text("utf-8")
    named = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in HEADING.findall(text)]
    return frozenset(EXPLICIT.findall(text)) | frozenset(named)


def problems(source: Path, pattern: re.Pattern[str], pages: dict[str, Path]) -> list[str]:
    """Citations in `source` that lead nowhere; `pages` maps names as they are cited to files."""
    lost = []
    for number, line in enumerate(source.read_text("utf-8").splitlines(), 1):
        for citation in pattern.finditer(line):
            page = pages.get(citation["page"])
            if page is None:
                lost.append(f"{source.name}:{number}: {citation[0]}: there is no such page")
            elif citation["anchor"] and citation["anchor"] not in anchors(page):
                lost.append(f"{source.name}:{number}: {citation[0]}: the page has no such anchor")
    return lost


def test_every_citation_in_the_code_resolves():
    sources = sorted((ROOT / "zonebloom").rglob("*.py"))
    pages = {page.relative_to(ROOT).as_posix(): page for page in CITED}
    assert len(sources) > 10
    assert [problem for source in sources for problem in problems(source, CITATION, pages)] == []


def test_a_citation_says_which_of_both_it_is():
    sources = [source.read_text("utf-8") for source in (ROOT / "zonebloom").rglob("*.py")]
    labels = [label for source in sources for label in LABEL.findall(source)]
    assert set(labels) == {("Spec", "specs"), ("Design", "docs/design")}


def test_every_citation_between_pages_resolves():
    pages = {page.name: page for page in CITED}
    assert len(pages) == len(CITED)
    assert [problem for page in CITED for problem in problems(page, BETWEEN, pages)] == []


def test_every_spec_is_cited_by_the_code():
    cited = {
        citation["page"]
        for source in (ROOT / "zonebloom").rglob("*.py")
        for citation in CITATION.finditer(source.read_text("utf-8"))
    }
    assert {f"specs/{spec.name}" for spec in SPECS.glob("*.md")} <= cited
