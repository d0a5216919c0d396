"""What MkDocs does besides rendering: the command's reference from click, and pages that lie outside of docs/.

Specs, CHANGELOG.md, CONTRIBUTING.md and bench/README.md stay where code and GitHub expect them. On the site they lie
beside the folders of docs/, so a link `../specs/zones.md` loses one `../`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from zonebloom.cli import app

ROOT = Path(__file__).parent.parent
OUTSIDE = ["bench/README.md", "bench/growth.png", "CHANGELOG.md", "CONTRIBUTING.md"]
OUTSIDE += [f"specs/{spec.name}" for spec in ROOT.glob("specs/*.md")]
COMMANDS = "<!-- commands -->"
_LINK = re.compile(r"\]\(\.\./((?:\.\./)*(?:specs/|bench/README|CHANGELOG|CONTRIBUTING))")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of OUTSIDE."""
    from mkdocs.structure.files import File  # noqa: PLC0415 - tests import this module without MkDocs

    for path in OUTSIDE:
        files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """The page with the commands where it marks their place, and links that lead where pages are on the site."""
    found = _LINK.sub(r"](\1", markdown).replace("](../docs/", "](../").replace("](docs/", "](")
    return found.replace(COMMANDS, commands() if COMMANDS in markdown else "")


def commands() -> str:
    """A section for each command."""
    return "\n".join(line for name in app.commands for line in _section(name, app.commands[name]))


def _section(name: str, command: click.Command) -> Iterator[str]:
    # click keeps a command's help option as it is first made, so the settings are the command's own
    context = click.Context(command, info_name=f"zonebloom {name}", **app.context_settings)
    yield f"## zonebloom {name}\n"
    yield inspect.cleandoc(command.help or "").replace("\b\n", "").replace("\\", "\\\\") + "\n"
    yield f"    {' '.join([context.command_path, *command.collect_usage_pieces(context)])}\n"
    yield "| option | meaning |"
    yield "|---|---|"
    for param in command.get_params(context):
        option, meaning = (cell.replace("|", "\\|") for cell in param.get_help_record(context) or ("", ""))
        if meaning:
            yield f"| `{option}` | {meaning} |"
    yield ""
