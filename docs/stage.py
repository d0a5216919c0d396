"""The sources of the site, in build/docs: docs/ with what is generated, and the pages that lie outside of docs/.

Zensical runs no hooks, so `make docs` writes these sources first. Specs, CHANGELOG.md, CONTRIBUTING.md and
bench/README.md stay where code and GitHub expect them. On the site they lie beside the folders of docs/, so a link
`../specs/zones.md` loses one `../`. A page may have `<!-- costs -->`, README's table of costs, `<!-- tasks -->`, the
commands by task, and `<!-- options -->`, the options of most commands.
"""

from __future__ import annotations

import inspect
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import click

from zonebloom.cli import app
from zonebloom.cli.root import SECTIONS

ROOT = Path(__file__).parent.parent
STAGED = ROOT / "build" / "docs"
OUTSIDE = [ROOT / "CONTRIBUTING.md"]
_LINK = re.compile(r"\]\(\.\./((?:\.\./)*(?:specs/|bench/README|CHANGELOG|CONTRIBUTING))")
_COSTS = re.compile(r"<!-- bench:begin -->\n(.*?)<!-- bench:end -->", re.DOTALL)
_COMMANDS_OF_AN_OPTION = 8
"""An option of at least so many commands is described once."""


def main() -> None:
    """Write all pages anew."""
    shutil.rmtree(STAGED, ignore_errors=True)
    shutil.copytree(ROOT / "docs", STAGED, ignore=shutil.ignore_patterns("*.py", "__pycache__"))
    shutil.copy(ROOT / "bench" / "growth.png", _staged("bench/growth.png"))
    outside = ((path.relative_to(ROOT), path.read_text("utf-8")) for path in (*OUTSIDE, *ROOT.glob("specs/*.md")))
    for name, text in (*outside, *bench_pages(), *changelog_pages()):
        hidden = "navigation, toc" if str(name).startswith("bench/") else "navigation"  # for wide tables
        _staged(name).write_text(f"---\nhide: [{hidden}]\n---\n\n{text}", "utf-8")
    for name, text in command_pages():
        _staged(name).write_text(text, "utf-8")
    for page in STAGED.rglob("*.md"):
        page.write_text(finished(page.read_text("utf-8")), "utf-8")


def _staged(name: str | Path) -> Path:
    path = STAGED / name
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def finished(page: str) -> str:
    """`page` with what it marks, and with links that lead where pages are on the site."""
    costs = _COSTS.search((ROOT / "README.md").read_text("utf-8"))
    assert costs is not None
    generated = {"costs": costs[1], "tasks": _tasks(), "options": "\n".join(_options(_shared()))}
    for name, text in generated.items():
        page = page.replace(f"<!-- {name} -->", text)
    return _LINK.sub(r"](\1", page).replace("](../docs/", "](../").replace("](docs/", "](")


def bench_pages() -> Iterator[tuple[str, str]]:
    """A page for each part of bench/README.md, and one that lists these."""
    head, *parts = re.split(r"^## ", (ROOT / "bench" / "README.md").read_text("utf-8"), flags=re.MULTILINE)
    names = [part.partition("\n")[0] for part in parts]
    for name, part in zip(names, parts, strict=True):
        yield f"bench/{name}.md", f"# {part}"
    yield "bench/README.md", head + "\n".join(f"- [{name}]({name}.md)" for name in names)


def changelog_pages() -> Iterator[tuple[str, str]]:
    """What is not released and a list of releases; and a page for each part of a release, such as *Fixed*."""
    head, *versions = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text("utf-8"), flags=re.MULTILINE)
    listed = [head]
    for version in versions:
        about, *parts = re.split(r"^### ", version, flags=re.MULTILINE)
        number = about.split()[0]
        if number == "Unreleased":
            listed.append(f"## {version}")
            continue
        names = {title: f"changes/{number}-{title.lower()}.md" for title in (part.split("\n")[0] for part in parts)}
        listed.append("\n".join([f"## {about}", *(f"- [{title}]({page})" for title, page in names.items()), ""]))
        for (title, page), part in zip(names.items(), parts, strict=True):
            text = part.removeprefix(title).replace("](docs/", "](../docs/")
            yield page, f"# {number}: {title.lower()}\n{text}\n[All changes](../../CHANGELOG.md)\n"
    yield "CHANGELOG.md", "\n".join(listed)


# --- the command ------------------------------------------------------------------------------------------------------


def command_pages() -> Iterator[tuple[str, str]]:
    """A page for each task."""
    for title, names in SECTIONS.items():
        commands = {name: app.commands[name] for name in names if name in app.commands}
        lines = [line for name, command in commands.items() for line in _section(name, command)]
        yield page_of(title), "\n".join([f"# {title}", "", *lines])


def page_of(title: str) -> str:
    """Where the page of a task is."""
    return f"reference/command/{title.lower().replace(' ', '-')}.md"


def _tasks() -> str:
    pages = {title: Path(page_of(title)).relative_to("reference") for title in SECTIONS}
    rows = (
        (f"[{title}]({pages[title]})", ", ".join(f"[`{name}`]({pages[title]}#zonebloom-{name})" for name in names))
        for title, names in SECTIONS.items()
    )
    return "\n".join(["| task | commands |", "|---|---|", *(f"| {title} | {names} |" for title, names in rows)])


def _section(name: str, command: click.Command) -> Iterator[str]:
    with _context(name, command) as context:
        yield f"## zonebloom {name}\n"
        yield inspect.cleandoc(command.help or "").replace("\b\n", "") + "\n"
        yield f"```sh\n{' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n```\n"
        yield from _options([record for record in _records(command, context) if record not in _shared()])
        if examples := getattr(command, "examples", ()):
            yield "\n".join(["For example:", "", "```sh", *(f"zonebloom {line}" for line in examples), "```", ""])
    for nested, child in getattr(command, "commands", {}).items():
        yield from _section(f"{name} {nested}", child)


def _context(name: str, command: click.Command) -> click.Context:
    # click keeps a command's help option as it is first made, so the settings are the command's own
    return click.Context(command, info_name=f"zonebloom {name}", **app.context_settings)


def _records(command: click.Command, context: click.Context) -> Iterator[tuple[str, str]]:
    records = (param.get_help_record(context) for param in command.get_params(context))
    return (record for record in records if record is not None and record[1])


def _shared() -> list[tuple[str, str]]:
    """The options that most commands have."""
    all_records = [list(_records(command, _context(name, command))) for name, command in app.commands.items()]
    counts = Counter(record for records in all_records for record in records)
    return [record for record, count in counts.items() if count >= _COMMANDS_OF_AN_OPTION]


def _options(records: list[tuple[str, str]]) -> Iterator[str]:
    if records:
        yield "| option | meaning |\n|---|---|"
        yield from (f"| `{option}` | {meaning.replace('|', '&#124;')} |" for option, meaning in records)
        yield ""


if __name__ == "__main__":
    main()
