"""What README.md and docs/ show runs as it is printed there, and each link leads somewhere.

The oracle is the text itself.
"""

from __future__ import annotations

import re
import runpy
import shutil
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from bench import choose, report
from tests import runs
from tests.docs.documents import DOCS, PAGES, ROOT, is_program, run_page, write_lake
from tests.docs.test_specs import anchors
from tests.newer import need
from tests.s3 import KEYS, S3Server
from zonebloom import cli
from zonebloom.cli.root import each_command
from zonebloom.ground.reasons import ReasonCode

LINK = re.compile(r"(?<!!)\[[^]]*\]\((?P<file>[^)#\s]*)(?:#(?P<anchor>[\w-]+))?\)")
SPARK = DOCS / "how-to" / "spark.md"
RUNNABLE = [page for page in [ROOT / "README.md", *PAGES] if page != SPARK and is_program(page)]


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    write_lake(folder)
    return folder / "events"


def upload(lake: Path, server: S3Server) -> None:
    """The lake as `s3://lake/events`."""
    bucket = server.bucket("lake")
    for file in lake.rglob("*.parquet"):
        bucket.client.upload_file(str(file), "lake", f"events/{file.relative_to(lake).as_posix()}")


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_what_a_page_shows_runs(
    page: Path, lake: Path, tmp_path: Path, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "bloom_filter_options" in page.read_text("utf-8"):
        need("parquet_blooms")
    if page.name != "tutorial.md":
        shutil.copytree(lake, tmp_path / "events", copy_function=shutil.copy2)
    if page.name == "object-stores.md":
        upload(lake, s3_server)
        environment = {**KEYS, "aws_endpoint": s3_server.url, "aws_allow_http": "true"}
        for name, value in environment.items():
            monkeypatch.setenv(name.upper(), value)
    run_page(page, tmp_path)


@pytest.mark.parametrize(
    "page",
    [*ROOT.glob("*.md"), *sorted(ROOT.glob("specs/*.md")), ROOT / "bench" / "README.md", DOCS / "llms.txt", *PAGES],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_every_link_resolves(page: Path) -> None:
    links = [link for link in LINK.finditer(page.read_text("utf-8")) if "://" not in link["file"]]
    lost = []
    for link in links:
        target = (page.parent / link["file"]).resolve() if link["file"] else page
        targets = anchors(target) if link["anchor"] and target.suffix == ".md" else {link["anchor"]}
        if not target.exists() or link["anchor"] not in targets:
            lost.append(link[0])
    assert lost == []


@pytest.mark.parametrize("page", [*sorted(DOCS.glob("how-to/*.md")), DOCS / "tutorial.md"], ids=lambda page: page.stem)
def test_every_page_installs_what_it_uses_in_the_versions_of_the_package(page: Path) -> None:
    text = page.read_text("utf-8")
    assert re.search(r"pip install (--no-deps )?[\".]", text)
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    for extra, version in re.findall(r'pip install "\.\[(\w+)]"`\. \w+ ([\d.]+) or newer', text):
        assert extras[extra][0].endswith(f">={version}")


def test_every_page_is_in_the_navigation_and_in_llms_txt() -> None:
    navigation, for_models = (ROOT / "mkdocs.yml").read_text("utf-8"), (DOCS / "llms.txt").read_text("utf-8")
    names = [page.relative_to(DOCS).as_posix() for page in PAGES]
    assert len(names) > 20
    assert [name for name in names if f": {name}\n" not in navigation] == []
    assert [name for name in names if f"({name})" not in for_models and name != "index.md"] == []


@pytest.fixture(scope="module")
def stage() -> SimpleNamespace:
    return SimpleNamespace(**runpy.run_path(str(DOCS / "stage.py")))


def test_every_command_is_in_the_reference(stage: SimpleNamespace) -> None:
    pages = dict(stage.command_pages())
    headings = {name for page in pages.values() for name in re.findall(r"^## zonebloom (.+)$", page, re.MULTILINE)}
    assert headings == {*dict(each_command()), *cli.app.commands}
    navigation = (ROOT / "mkdocs.yml").read_text("utf-8")
    assert [page for page in pages if f": {page}\n" not in navigation] == []
    assert [page for page in pages if "\\|" in pages[page]] == []
    assert "zonebloom build events/ --column user_id\n" in pages["reference/command/make-an-index.md"]


@pytest.mark.parametrize("name", ["how-to/troubleshoot.md", "reference/reason-codes.md"])
def test_every_reason_code_is_explained(name: str) -> None:
    said = re.findall(r"`([A-Z_]{6,})`", (DOCS / name).read_text("utf-8"))
    assert set(said) & {*ReasonCode} == {*ReasonCode}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text("utf-8").split()) <= 700


def test_tables_of_benches_are_those_of_their_results() -> None:
    """Nothing in them is typed, and a result that is removed is in no table: `python -m bench.report`."""
    assert (ROOT / "bench" / "README.md").read_text("utf-8") == "\n".join(report.full_report(report.load()))
    table = "\n".join(["<!-- bench:begin -->", *report.headline(report.load()), "<!-- bench:end -->"])
    assert table in (ROOT / "README.md").read_text("utf-8")


def test_the_table_of_runs_is_what_commands_printed() -> None:
    page = (DOCS / "compatibility.md").read_text("utf-8")
    assert page == runs.page_with(runs.load(), page)


def test_a_run_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    kept = tmp_path / "runs.json"
    for passed, command in ((3, "make test"), (4, "make test-spark SPARK=3.5.7"), (5, "make test")):
        runs.record({"passed": passed, "skipped": 1}, command, kept)
    counts = {run["command"]: (run["passed"], run["left_out"]) for run in runs.load(kept)}
    assert counts == {"make test": (5, 1), "make test-spark SPARK=3.5.7": (4, 1)}


def test_the_figure_of_the_ways_to_build_is_drawn_from_its_results() -> None:
    (result,) = (result for result in report.load() if result["bench"] == "choose")
    assert choose.PICTURE.read_text("utf-8") == choose.drawing(result["tables"][0]["rows"])


def test_each_change_is_on_one_page_of_the_site(stage: SimpleNamespace) -> None:
    pages = dict(stage.changelog_pages())
    changes = [line for line in (ROOT / "CHANGELOG.md").read_text("utf-8").splitlines() if line.startswith("- ")]
    shown = [line for page in pages.values() for line in page.replace("../docs/", "docs/").splitlines()]
    assert len(pages) > 1
    assert [line for line in changes if shown.count(line) != changes.count(line)] == []


def test_make_help_lists_what_the_set_up_page_lists() -> None:
    targets = re.findall(r"^([a-z-]+):.* ## (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    page = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    assert sorted(targets) == sorted(re.findall(r"^make ([a-z-]+) +# (.*)$", page, re.MULTILINE))
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    assert phony is not None
    assert {name for name, _ in targets} == set(phony[1].split())


def test_what_must_pass_before_a_change_installs_nothing_of_its_own() -> None:
    """A machine that passes `.ci/run` passes README's commands too."""
    assert "apt-get" not in (ROOT / ".ci" / "run").read_text("utf-8")
