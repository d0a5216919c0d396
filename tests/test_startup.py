"""What a process loads, by name: each module costs a whole search of the command, which is short, a share of its time.

The bar is what `import click, pyarrow, xxhash` loads. What else a search may load is listed; of our own modules, those
that only other work needs must not be among them.
"""

from __future__ import annotations

import json

import pytest

from tests.child import run_python
from zonebloom.index.doors import build_index
from zonebloom.storage.slices.reader import FEW_HASHES

SMALL_PARTS_OF_PYTHON = {
    *("base64", "binascii", "bisect", "concurrent", "difflib", "fnmatch", "glob", "ipaddress", "locale", "mmap"),
    *("ntpath", "pathlib", "shlex", "urllib"),
    *("grp", "pwd"),  # by the pathlib of Python 3.13
}
ROOMS_OF_OTHER_WORK = {"engines", "indexing", "spark"}
SLOW = {
    *("asyncio", "email", "numba", "numpy.ma", "numpy.random", "pandas", "rich", "secrets", "sqlglot", "tempfile"),
    *("pyarrow.acero", "pyarrow.dataset"),
}
ONLY_FOR_ROWS = {"pyarrow.compute", "pyarrow.fs", "pyarrow.parquet"}
MODULES_OF_OTHER_WORK = {
    *(
        "zonebloom.bloom.kernels",
        "zonebloom.bloom.sbbf",
        "zonebloom.formats.schema_evolution",
        "zonebloom.search.exists",
    ),
    *("zonebloom.index.report", "zonebloom.search.explain", "zonebloom.search.scan"),
    *("zonebloom.formats.parquet.file", "zonebloom.formats.table", "zonebloom.predicates.comparisons"),
    *("zonebloom.predicates.row_filter", "zonebloom.predicates.sql", "zonebloom.stores.object_client"),
}


def loaded_by(code: str, *arguments: object) -> set[str]:
    """All modules of a process that runs `code`."""
    code = f"{code}\nimport json, sys\nprint(file=sys.stderr)\nprint(json.dumps(list(sys.modules)), file=sys.stderr)"
    return set(json.loads(run_python(code, *arguments).stderr.splitlines()[-1]))


def loaded_by_the_command(*arguments: object) -> set[str]:
    return loaded_by("from zonebloom import cli\nassert cli.run() == 0", *arguments)


OPTIONS = {"zones": {"rows_per_zone": 256}, "slices": {"rows_per_zone": 1}, "locator": {"kind": "locator"}}
"""Those with which a build makes segments of each kind; it slices no few zones."""


@pytest.fixture
def lake(flat_lake, request):
    kind = getattr(request, "param", "zones")
    index = build_index(flat_lake.root, "user_id", **OPTIONS[kind])
    assert index.indexed_columns()[0].segments.keys() == {kind}
    return flat_lake


def test_help_loads_no_arrow():
    assert not loaded_by_the_command("--help") & {"numpy", "pyarrow", "sqlglot"}


def test_the_command_sets_numpy_up_before_it_is_loaded():
    assert not loaded_by("import zonebloom.cli") & {"numpy", "pyarrow"}
    code = "import atexit, os\natexit.register(lambda: print(os.environ['OPENBLAS_NUM_THREADS']))\n"
    code += "from zonebloom.cli import main\nmain()"
    assert run_python(code, "--help").stdout.splitlines()[-1] == "1"


@pytest.mark.parametrize("lake", OPTIONS, indirect=True)
def test_a_search_of_one_key_loads_nothing_that_it_has_no_need_of(lake):
    bar = loaded_by("import click, pyarrow, xxhash")
    loaded = loaded_by_the_command("search", lake.root, "-w", "user_id = 'nobody'") - bar
    others = {name.split(".")[0].lstrip("_") for name in loaded} - {"zonebloom"}
    assert others <= SMALL_PARTS_OF_PYTHON
    ours = {name.split(".")[1] for name in loaded if name.startswith("zonebloom.")}
    assert not ours & ROOMS_OF_OTHER_WORK
    assert not loaded & (SLOW | ONLY_FOR_ROWS | MODULES_OF_OTHER_WORK)


@pytest.mark.parametrize("lake", ["zones", "slices"], indirect=True)
def test_work_on_few_keys_loads_no_compiler(lake):
    code = f"""
import sys, numpy as np, pyarrow as pa, zonebloom as zb
from zonebloom.bloom.hashing import hash_values
from zonebloom.bloom.sbbf import Sbbf
Sbbf.from_bytes(bytes(64)).fold().check_hashes(np.arange(5, dtype=np.uint64))
hash_values(pa.array([0.0] * 1000))
index = zb.open_index(sys.argv[1])
index.search(zb.col("user_id").isin(map(str, range({FEW_HASHES}))))
index.exists("user_id", ["nobody", "7"])
index.locate("user_id", ["nobody", "7"])
"""
    assert not loaded_by(code, lake.root) & {"numba", "llvmlite"}


def test_a_scan_of_one_key_loads_no_pandas_and_no_parser(lake):
    condition = f"user_id = '{lake.table['user_id'][4000].as_py()}'"
    loaded = loaded_by_the_command("scan", lake.root, "-w", condition)
    assert loaded > ONLY_FOR_ROWS
    assert not loaded & SLOW


def test_a_dependency_that_is_not_there_is_named(lake):
    code = """
import sys
sys.modules |= {"sqlglot": None, "obstore": None}
import zonebloom as zb
index = zb.open_index(sys.argv[1])
assert index.search("user_id = 'nobody'").num_zones_kept == 0
keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret"}
for call in (
    lambda: index.search("user_id = 'nobody' OR user_id = 'none'"),
    lambda: zb.open_index("s3://bucket/lake", storage_options=keys),
):
    try:
        call()
    except zb.errors.MissingDependencyError as error:
        print(error)
"""
    of_sql, of_stores = run_python(code, lake.root).stdout.splitlines()
    assert "sqlglot must be installed to read SQL" in of_sql
    assert 'pip install "zonebloom[s3]"' in of_stores
    code = "import sys\nsys.modules['click'] = None\nfrom zonebloom.__main__ import main\ntry:\n    main()\n"
    said = run_python(f"{code}except SystemExit as error:\n    print(error)", "--help").stdout
    assert said.startswith("zonebloom: the command needs what zonebloom depends on (")


def test_the_names_here_exist():
    code = "import importlib\n"
    for name in sorted(SLOW | ONLY_FOR_ROWS | MODULES_OF_OTHER_WORK):
        code += f"importlib.import_module({name!r})\n"
    assert loaded_by(code) > SLOW | ONLY_FOR_ROWS | MODULES_OF_OTHER_WORK
