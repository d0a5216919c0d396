"""The JIT policy: cached on disk by the digest of all kernel sources, and never failing for want of a cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import zonebloom
from tests.child import run_python
from tests.depth import some

PACK = """
import numpy as np
from zonebloom.bloom.kernels import pairs
from zonebloom.bloom.numba_loading import compile_seconds
packed = np.zeros(3, np.uint64)
pairs.pack_pairs(np.array([3 << 23, 7 << 23], np.uint64), packed, np.zeros(1, np.bool_), rows_per_zone=2)
dispatcher = pairs._pack_pairs.__closure__[0].cell_contents
cache = dispatcher.stats.cache_hits, dispatcher.stats.cache_misses
print(*(packed[:2] >> np.uint64(23)), *(sum(one.values()) for one in cache), compile_seconds() > 0)
"""
"""A kernel that compiles fast; it prints what it made, hits and misses of the cache, and whether it says that."""


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """A copy of the package in which a first process has compiled a kernel."""
    source = Path(zonebloom.__file__).parent
    ignored = shutil.ignore_patterns("__pycache__")
    package = Path(shutil.copytree(source, tmp_path_factory.mktemp("compiled") / "zonebloom", ignore=ignored))
    assert run(package) == "3 7 0 1 True"
    return package


@pytest.fixture
def package(compiled, tmp_path):
    """A copy whose sources and cache a test may change; it keeps the times of files, by which the cache knows them."""
    return Path(shutil.copytree(compiled, tmp_path / "site" / "zonebloom"))


def run(package, code=PACK, **environment):
    variables = os.environ | {"PYTHONPATH": str(package.parent)} | environment
    options = {"env": variables, "capture_output": True, "text": True, "cwd": package.parent}
    done = subprocess.run([sys.executable, "-c", code], check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("module", some(["steps.py", "vector.py", "lanes.py"], each=3))
def test_a_change_of_any_kernel_source_compiles_anew(package, module):
    source = package / "bloom" / "kernels" / module
    source.write_text(source.read_text("utf-8") + "\n# changed\n", "utf-8")
    assert run(package) == "3 7 0 1 True"


def test_a_damaged_cache_is_compiled_anew_and_the_next_process_compiles_nothing(package):
    for cached in (package / "bloom" / "kernels" / "__pycache__").glob("*.nb[ic]"):
        cached.write_bytes(cached.read_bytes()[:40])
    assert run(package) == "3 7 0 1 True"
    assert run(package) == "3 7 1 0 False"


def test_without_a_writable_cache_folder_kernels_still_run(package):
    code = f"""
from numba.core import caching
caching.CacheImpl._locator_classes = []  # what Numba is left with when no folder can be written
{PACK}"""
    assert run(package, code).startswith("3 7 0 ")


def test_kernels_in_a_folder_that_cannot_be_written_are_used(package):
    code = f"""
import tempfile
def refused(*_, **__):
    raise PermissionError(13, "Permission denied")
tempfile.TemporaryFile = refused  # root may write everywhere
{PACK}"""
    assert run(package, code) == "3 7 1 0 False"


def test_a_full_disk_does_not_fail_a_kernel(package):
    code = f"""
from numba.core import caching
def no_space(*_):
    raise OSError(28, "No space left on device")
caching.IndexDataCacheFile.save = no_space
{PACK}"""
    shutil.rmtree(package / "bloom" / "kernels" / "__pycache__")
    assert run(package, code) == "3 7 0 1 True"


def test_fast_vectors_are_what_numba_compiles_for(package):
    code = "from zonebloom.bloom import kernels; print(kernels.HAS_FAST_VECTORS)"
    assert run(package, code, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="") == "False"
    assert run(package, code, NUMBA_CPU_NAME="generic", NUMBA_CPU_FEATURES="+avx512dq") == "True"


def test_kernels_run_without_the_gil():
    """While one thread hashes for long, this one goes on counting."""
    code = """
import threading, time
import numpy as np
from zonebloom.bloom.kernels.xxh64 import hash_fixed
data = np.zeros(36 * (1 << 21), np.uint8)
hash_fixed(data, 36)
worker = threading.Thread(target=lambda: [hash_fixed(data, 36) for _ in range(3)])
worker.start()
count = 0
while worker.is_alive():
    time.sleep(0)
    count += 1
print(count > 100)
"""
    assert run_python(code).stdout == "True\n"
