"""The only place that imports Numba: integers in, bits set; no pyarrow, no I/O.

=================  =====================================================================================
module             what lives there
=================  =====================================================================================
``__init__``       one JIT policy: `kernel`, `subroutine`, and what the CPU can do
``vector``         the LLVM vocabulary: loads, stores, lanes; `operation` makes them callable
``steps``          the steps of XXH64; ``lanes`` takes them for 8 keys at once
``blocks``         one block: the Parquet spec's mask, block_insert, block_check
``checks``         what a checked wrapper demands of an array before it passes its address down
``xxh64``          a column of keys to hashes
``sbbf``           filters: filter_insert, filter_check, many zones, distinct hashes
``zones``          hash and insert a column into the filters of its zones
``slices``         zones as bit rows: slicing, its inverse, probing; ``transposes`` turns 64 x 64 bits
``row_checksums``  XXH3-64 of many bit rows
``pairs``          pairs of a key and a zone: packing, sorting, merging
``locator``        pages of such pairs: encoding, decoding, searching
=================  =====================================================================================

A kernel takes addresses and counts, all uint64, fills memory that its caller owns, allocates nothing and raises
nothing; it runs without the GIL. The functions without a leading underscore are the checked wrappers around kernels,
and the only thing that the floors above may call.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import pkgutil
from collections.abc import Callable
from importlib import import_module, resources
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

import numpy as np
import numpy.typing as npt

from zonebloom.bloom.kernels.checks import address
from zonebloom.ground.errors import MissingDependencyError

try:
    from numba import njit, types
    from numba.core import event
    from numba.core.caching import CompileResultCacheImpl, FunctionCache
    from numba.core.registry import cpu_target
except ImportError as _absent:
    raise MissingDependencyError(
        "Numba must be installed to change an index; a search needs none", got=_absent, do="pip install numba"
    ) from _absent

P = ParamSpec("P")
R = TypeVar("R")

U = np.uint64
"""Wraps every constant in a kernel: Numba makes ``uint64 + 1`` an int64, and its ``>>`` an arithmetic one."""

_TARGET = cpu_target.target_context.codegen().magic_tuple()

HAS_FAST_VECTORS: Final = "+avx512dq" in _TARGET[2]
"""Whether the CPU multiplies eight 64-bit lanes in one instruction; without that, strings are hashed one by one."""


_COMPILING: Final = event.TimingListener()  # type: ignore[no-untyped-call]  # Numba has no types
event.register("numba:compile", _COMPILING)  # type: ignore[no-untyped-call]  # as above


def compile_seconds() -> float:
    """Seconds that this process has compiled; 0 if the machine code of all kernels was cached."""
    return float(_COMPILING.duration) if _COMPILING.done else 0.0


def _sources_digest() -> str:
    digest = hashlib.sha256()
    for source in sorted(resources.files(__package__).iterdir(), key=lambda entry: entry.name):
        if source.name.endswith(".py"):
            digest.update(source.read_bytes())
    return digest.hexdigest()


_SOURCES: Final = _sources_digest()


class _ReadOnlyToo:
    """A place of Numba's cache; Numba itself uses none that it cannot write, even if all kernels are there."""

    def ensure_cache_path(self) -> None:
        try:
            super().ensure_cache_path()  # type: ignore[misc]
        except OSError:
            if not any(Path(self.get_cache_path()).glob("*.nbi")):  # type: ignore[attr-defined]
                raise


class _Places(CompileResultCacheImpl):
    _locator_classes: Any = [  # noqa: RUF012 - declared by Numba
        type(place.__name__, (_ReadOnlyToo, place), {})
        for place in CompileResultCacheImpl._locator_classes  # noqa: SLF001 - as above
    ]


class _KernelCache(FunctionCache):
    """Numba's on-disk cache, keyed by all kernel sources, and never a reason to fail.

    Numba's own key knows the kernel's file only, and would serve machine code with an old `vector` or `xxh64` in it.
    """

    _impl_class = _Places

    def _index_key(self, signature: Any, codegen: Any) -> tuple[Any, ...]:
        return (signature, codegen.magic_tuple(), _SOURCES)

    def load_overload(self, signature: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(signature, target_context)  # type: ignore[no-untyped-call]
        except Exception:  # noqa: BLE001 - a damaged cache file raises anything; compiling again is always right
            with contextlib.suppress(OSError):
                self.flush()  # type: ignore[no-untyped-call]  # else the damaged index would be read again by the save
            return None

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            super().save_overload(signature, data)  # type: ignore[no-untyped-call]
        except OSError:
            return  # a full disk costs the next process a second, not this one its build


def jit(function: Callable[P, R], *, cached: bool) -> Callable[P, R]:
    """The one JIT policy: lazy, without the GIL, without bounds checks or wrap-around."""
    dispatcher: Any = njit(nogil=True, boundscheck=False)(function)
    if cached:
        # "no locator available" is raised where neither the package's nor the user's cache folder is writable.
        with contextlib.suppress(RuntimeError):
            cache = _KernelCache(function)  # type: ignore[no-untyped-call]
            dispatcher._cache = cache  # noqa: SLF001 - enable_caching() takes no cache
    return cast("Callable[P, R]", dispatcher)


def subroutine(function: Callable[P, R]) -> Callable[P, R]:
    """A function for kernels only; it is compiled into them."""
    return jit(function, cached=False)


_dispatchers: Final[list[Any]] = []


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel; it is compiled once, as each of its arguments is a uint64.

    Python calls it with integers, arrays and None. Of an array the kernel gets the address, and of None 0. The call
    keeps the array alive.
    """
    dispatcher = jit(function, cached=True)
    _dispatchers.append(dispatcher)

    @functools.wraps(function)
    def call(*arguments: int | npt.NDArray[Any] | None) -> Any:
        return dispatcher(
            *[U(address(value) if value is None or isinstance(value, np.ndarray) else value) for value in arguments]
        )

    return call


def compile_all() -> int:
    """Compile each kernel, or load it from the cache; their number."""
    for module in pkgutil.iter_modules(__path__):
        import_module(f"{__name__}.{module.name}")
    for dispatcher in _dispatchers:
        dispatcher.compile((types.uint64,) * dispatcher.py_func.__code__.co_argcount)
    return len(_dispatchers)
