"""The rooms of the house: each imports only those below it, and only the kernels know Numba.

Read from the source by `ast`, so an import inside a function or under `TYPE_CHECKING` counts too.
"""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import zonebloom as zb
from tests.child import ROOT, run_python
from zonebloom import errors

PACKAGE = ROOT / "zonebloom"

ROOMS = (
    *("ground", "bloom", "stores", "predicates", "formats", "storage", "search", "indexing", "index"),
    *("engines", "erasing", "spark", "lance", "errors", "types", "cli"),
)
"""From the ground up; CONTRIBUTING.md shows the same. `zonebloom/__init__.py` is the door, and no room."""

MODULE_OF_PACKAGE = {"pylance": "lance", "pytest-xdist": "xdist"}
"""Packages whose module has another name."""
MODULES_THAT_COME_WITH = {"moto": {"boto3", "werkzeug"}, "numba": {"llvmlite"}, "pyspark": {"py4j"}}

SIZES_OF_ROW_GROUP = {"num_rows", "total_byte_size"}
COMPILERS = {"numba", "llvmlite"}
SOURCES = sorted(set(PACKAGE.rglob("*.py")) - {PACKAGE / "__main__.py"})  # the command, by `python -m`
PACKAGES = {".".join(source.parent.relative_to(ROOT).parts) for source in SOURCES if source.name == "__init__.py"}


def room_of(source: Path) -> str:
    return source.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Dotted names of all that is imported, wherever the statement stands; relative imports must not occur."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            assert node.module
            if node.module == "zonebloom":
                yield from (f"zonebloom.{alias.name}" for alias in node.names)
            else:
                yield node.module


def module_of(source: Path) -> str:
    return ".".join(source.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")


def files_imported(source: Path) -> set[str]:
    """Modules of the package that `source` imports; `from package import module` is of the module."""
    imported = set(imports_of(source))
    for node in ast.walk(tree_of(source)):
        if isinstance(node, ast.ImportFrom) and node.module in PACKAGES:
            imported -= {node.module}
            imported |= {f"{node.module}.{alias.name}" for alias in node.names}
    modules = {module_of(source) for source in SOURCES}
    return {name if name in modules else name.rpartition(".")[0] for name in imported} & modules


def names_imported_from_ours(tree: ast.AST) -> Iterator[str]:
    """Names that the source takes out of other modules of the package."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("zonebloom"):
            yield from (alias.name for alias in node.names)


@cache
def tree_of(source: Path) -> ast.Module:
    return ast.parse(source.read_text("utf-8"))


@cache
def imports_of(source: Path) -> frozenset[str]:
    return frozenset(imported_modules(tree_of(source)))


def declared_modules(*, group: str | None = None, extras: bool = False) -> set[str]:
    """Modules that pyproject.toml promises at run time, in a dependency group, and in the extras."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    groups = project["dependency-groups"]
    wanted = list(project["project"]["dependencies"])
    if extras:
        wanted.extend(
            requirement for extra in project["project"]["optional-dependencies"].values() for requirement in extra
        )
    pending = [{"include-group": group}] if group else []
    while pending:
        entry = pending.pop()
        if isinstance(entry, dict):
            pending.extend(groups[entry["include-group"]])
        else:
            wanted.append(entry)
    packages = {re.match(r"[\w-]+", value)[0] for value in wanted}
    modules = {MODULE_OF_PACKAGE.get(package, package) for package in packages}
    return modules.union(*(MODULES_THAT_COME_WITH.get(package, set()) for package in packages))


def third_parties(folder: Path) -> set[str]:
    """Roots of all that the sources in `folder` import beyond Python itself and the project."""
    roots = {name.split(".")[0] for source in folder.rglob("*.py") for name in imports_of(source)}
    return roots - sys.stdlib_module_names - {"zonebloom", "tests", "bench"}


def test_every_module_is_in_a_room():
    assert {room_of(source) for source in SOURCES} - {"__init__"} == set(ROOMS)


def test_contributing_shows_the_same_rooms():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    screen = text.split("```\nzonebloom/\n")[1].split("```")[0]
    entries = [entry for line in screen.splitlines() for entry in re.findall(r"(?:^|  )(\w+(?:\.py|/))(?=  |$)", line)]
    assert all((PACKAGE / entry).exists() for entry in entries)
    assert [re.sub(r"\W.*", "", entry) for entry in reversed(entries)] == list(ROOMS)


def test_a_room_imports_only_rooms_below_it():
    upward = set()
    for source in SOURCES:
        room = room_of(source)
        used = {name.split(".")[1] for name in imports_of(source) if name.startswith("zonebloom.")}
        below = ROOMS if room == "__init__" else ROOMS[: ROOMS.index(room) + 1]
        upward |= {(room, other) for other in used.difference(below)}
    assert not upward


def test_no_files_of_a_room_import_each_other_in_a_circle():
    rooms = {module_of(source): room_of(source) for source in SOURCES}
    below = {module_of(source): files_imported(source) for source in SOURCES}
    pending = True
    while pending:  # files that import no file of their room are on no circle; what is left is one, or leads to one
        pending = [
            name for name in below if not any(rooms[other] == rooms[name] and other in below for other in below[name])
        ]
        for name in pending:
            del below[name]
    assert not below


def test_only_kernels_import_a_compiler():
    for source in SOURCES:
        roots = {name.split(".")[0] for name in imports_of(source)}
        is_kernel = source.is_relative_to(PACKAGE / "bloom" / "kernels")
        assert not roots & ({"pyarrow"} if is_kernel else COMPILERS), source


def test_no_module_imports_what_another_keeps_to_itself():
    imported = {name for source in SOURCES for name in names_imported_from_ours(tree_of(source))}
    assert imported
    assert not {name for name in imported if re.match(r"_[^_]", name)}


def test_no_module_reads_a_jvm():
    of_a_jvm = re.compile(r"\b_(jvm|jdf|jsparkSession|jc|jsc|jreader|gateway|sc)\b")
    assert not [source for source in SOURCES if of_a_jvm.search(source.read_text("utf-8"))]


MAKERS_OF_FRAMES = {
    ("_scan", "parquet"): "files, by Spark",
    ("read_rows", "mapInArrow"): "files, by the library",
    ("local_frame", "createDataFrame"): "rows that were read, or keys",
    ("frame_of", "createDataFrame"): "rows of a table of Arrow",
    ("frame_of", "mapInArrow"): "the same, before Spark 4",
    ("_template", "createDataFrame"): "no rows",
    ("opaque", "mapInArrow"): "no rows",
    ("indexes", "createDataFrame"): "what is said of indexes",
    ("columns", "createDataFrame"): "what is said of an index",
    ("to_df", "createDataFrame"): "what is said of a search",
    ("locate", "mapInArrow"): "places of keys",
    ("_collect", "mapInArrow"): "results of tasks",
    ("arrow_of", "mapInArrow"): "rows of a frame of a user",
}
"""Functions that make frames of Spark, and of what."""
GIVERS_OF_FRAMES = {("by", "frame"), ("toDF", "frame"), ("map_candidates", "frame"), ("frame", "frame")}
"""Functions that give users the rows of files, all through the `frame` of a reader, which guards the files."""


def calls_of(tree: ast.AST, *names: str) -> set[tuple[str, str]]:
    """Each function with the methods among `names` that it calls."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    inner = [(function.name, node) for function in functions for node in ast.walk(function)]
    calls = [(name, node.func) for name, node in inner if isinstance(node, ast.Call)]
    return {(name, func.attr) for name, func in calls if isinstance(func, ast.Attribute) and func.attr in names}


def test_rows_of_files_reach_users_of_spark_through_one_method():
    trees = [tree_of(source) for source in SOURCES if source.is_relative_to(PACKAGE / "engines" / "spark")]
    makers = set().union(*(calls_of(tree, "parquet", "load", "mapInArrow", "createDataFrame") for tree in trees))
    assert makers == set(MAKERS_OF_FRAMES)
    assert set().union(*(calls_of(tree, "frame") for tree in trees)) == GIVERS_OF_FRAMES


def unsafe_calls(tree: ast.AST) -> list[ast.Call]:
    """Calls of pyarrow's `row_group` for more than the size of one."""
    nodes = list(ast.walk(tree))
    sizes = {node.value for node in nodes if isinstance(node, ast.Attribute) and node.attr in SIZES_OF_ROW_GROUP}
    calls = [node for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    return [node for node in calls if node.func.attr == "row_group" and node not in sizes]


def test_no_column_chunk_is_asked_of_pyarrow():
    """`row_group(i).column(j)` of pyarrow 26 ends the process where the chunk is damaged or encrypted."""
    for source in SOURCES:
        assert not unsafe_calls(tree_of(source)), source
    assert len(unsafe_calls(ast.parse("a.row_group(0).column(1)\nb = a.row_group(0)\na.row_group(0).num_rows"))) == 2


def test_every_import_is_a_declared_dependency():
    assert declared_modules() <= third_parties(PACKAGE) <= declared_modules(extras=True)


@pytest.mark.parametrize(("folder", "groups"), [("tests", ("test", "daft")), ("bench", ("bench",))])
def test_every_import_beside_the_package_is_declared(folder, groups):
    declared = set().union(*(declared_modules(group=group) for group in groups))
    assert third_parties(ROOT / folder) <= declared


def test_import_zonebloom_loads_nothing_heavy():
    heavy = COMPILERS | {"numpy", "pyarrow", "sqlglot", "click", "rich"}
    assert run_python(f"import sys, zonebloom; print(sorted({heavy!r} & set(sys.modules)))").stdout.strip() == "[]"


def test_a_first_attribute_loads_what_it_needs_and_is_listed():
    code = "import sys, zonebloom; zonebloom.errors.StaleIndexError; print('pyarrow' in sys.modules)"
    code += "; zonebloom.col; print('pyarrow' in sys.modules, 'col' in dir(zonebloom))"
    assert run_python(code).stdout.split() == ["False", "True", "True"]


def test_public_names_exist_and_others_do_not():
    assert all(hasattr(zb, name) for name in zb.__all__)
    with pytest.raises(AttributeError, match="nothing"):
        zb.nothing  # noqa: B018 - it raises


def test_an_exception_bears_its_public_name():
    exceptions = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    assert {exception.__module__ for exception in exceptions} == {"zonebloom.errors"}
    assert type("TheirsError", (errors.StorageError,), {}).__module__ == __name__


def test_the_checker_sees_imports_everywhere():
    code = (
        "def f():\n    from zonebloom import index\n    import numba.core\nif TYPE_CHECKING:\n    import zonebloom.cli"
    )
    assert set(imported_modules(ast.parse(code))) == {"zonebloom.index", "numba.core", "zonebloom.cli"}
