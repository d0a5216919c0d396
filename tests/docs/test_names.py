"""Each name in backticks in a docstring of the package is a name of its code, and names say what is meant.

A function that was renamed leaves its former name in docstrings. So every identifier in backticks must occur in
the code, as a name or as a whole string. The oracle is the syntax tree of the same sources, without docstrings.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]

OF_OTHERS = {
    *("AWS_REGION", "aws_region", "region"),  # environment and options of stores
    *("ColumnChunk", "bloom_filter_length", "WriterVersion"),  # Parquet's and Lance's metadata
    *("IRBuilder", "alloca_once"),  # llvmlite
    *("from_dataset", "scan_pyarrow_dataset", "update_incremental"),  # readers
    *("write_dataset", "write_deltalake"),  # writers
    *("cancelJobsWithTag", "interruptTag", "right_outer"),  # Spark
    *("input_file_name", "monotonically_increasing_id", "rand"),  # Spark's functions
    "users",  # data of an example
}
"""Names that docstrings say and the code does not use."""
EMPTY_WORDS = {"one", "found", "known", "made"}
"""Names that say nothing of what they stand for."""

IDENTIFIERS = re.compile(r"(?<!`)`([A-Za-z_]\w+(?:\.\w+)*)(?:\([^`\n]*\))?`(?!`)")
WORD = re.compile(r"[\w./-]+")
FIELDS: dict[type[ast.AST], str] = {
    ast.Name: "id",
    ast.Attribute: "attr",
    ast.ImportFrom: "module",
    **dict.fromkeys((ast.arg, ast.keyword), "arg"),
    **dict.fromkeys((ast.FunctionDef, ast.ClassDef, ast.alias), "name"),
}
"""Which field of a node is a name."""


def names_in(tree: ast.Module) -> Iterator[str]:
    """The names in `tree` outside of docstrings, in parts."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if field := FIELDS.get(type(node)):
            yield from (getattr(node, field) or "").split(".")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and WORD.fullmatch(node.value):
            yield from re.findall(r"\w+", node.value)
        pending += [child for child in ast.iter_child_nodes(node) if not is_text(child)]


def is_text(node: ast.AST) -> bool:
    """Whether `node` is a string that is a statement: a docstring."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


@cache
def sources() -> dict[Path, ast.Module]:
    files = sorted((ROOT / "zonebloom").rglob("*.py"))
    return {file: ast.parse(file.read_text("utf-8")) for file in files}


def stale(tree: ast.Module, names: set[str]) -> list[str]:
    """`line: name` of each identifier in a docstring of `tree` that is not in `names`."""
    texts = [node.value for node in ast.walk(tree) if is_text(node)]
    return [
        f"{text.lineno}: {name}"
        for text in texts
        for name in IDENTIFIERS.findall(str(text.value))
        if not names.issuperset(name.split("."))
    ]


def test_each_name_in_a_docstring_is_a_name_of_the_code():
    names = {*dir(builtins), *OF_OTHERS}
    for file, tree in sources().items():
        names.update(file.relative_to(ROOT).with_suffix("").parts)
        names.update(names_in(tree))
    lost = {file.relative_to(ROOT).as_posix(): stale(tree, names) for file, tree in sources().items()}
    assert {file: lines for file, lines in lost.items() if lines} == {}


def test_a_former_name_is_reported_with_its_line():
    tree = ast.parse('"""Uses `render`, `old_name()` and `render.old`."""\n')
    assert stale(tree, {"render"}) == ["1: old_name", "1: render.old"]


def test_a_name_says_what_it_stands_for():
    files = (file for folder in ("zonebloom", "tests", "bench") for file in (ROOT / folder).rglob("*.py"))
    empty = {file.name: EMPTY_WORDS & set(defined(ast.parse(file.read_text("utf-8")))) for file in files}
    assert {file: names for file, names in empty.items() if names} == {}
    assert [*defined(ast.parse("def made(one): known = one.found"))] == ["made", "one", "known"]


def defined(tree: ast.Module) -> Iterator[str]:
    """The names that `tree` gives to functions, arguments, variables and attributes."""
    for node in ast.walk(tree):
        is_use = isinstance(getattr(node, "ctx", None), ast.Load)
        if not is_use and isinstance(node, (ast.Name, ast.Attribute, ast.arg, ast.FunctionDef)):
            yield str(getattr(node, FIELDS[type(node)]))
