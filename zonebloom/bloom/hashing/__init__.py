"""Arrow values to 64-bit hashes, and the types that have them.

The ladder, from a column to its hashes:

1. ``column_array`` finds a column, or the leaf ``"a.b"`` of a struct, in a batch.
2. ``hash_plan`` gives the layout of its type: ``fixed`` (values of one width), ``variable`` (bytes between offsets)
   or ``dictionary`` (each value of it is hashed once, then gathered).
3. ``fixed_buffers``, ``variable_buffers`` and ``to_hashes`` give the kernels the buffers of the layout. They copy
   nothing for types whose Arrow buffer is the hash input.

The hash is XXH64 with seed 0 of the value's little-endian bytes at the column's own width. Null has no hash. Equal
values of one column have equal hash input, and different values different input, with one exception: ``0.0`` and
``-0.0`` have different bytes, and so have NaNs. So ``hash_values`` probes both zeros, and zonebloom.predicates.coerce
never lets NaN prune.

`columns` finds columns, `types` has the plans, `buffers` the views, `values` makes hashes of arrays. Nothing here
imports numba before a kernel is needed.

Spec: specs/hashing.md.
"""

from zonebloom.bloom.hashing.buffers import (
    FixedBuffers,
    VariableBuffers,
    fixed_buffers,
    stored_array,
    validity_of,
    variable_buffers,
)
from zonebloom.bloom.hashing.columns import (
    column_array,
    column_path,
    dotted,
    is_ambiguous,
    leaf_paths,
    names_of,
    resolve_column,
    selected,
)
from zonebloom.bloom.hashing.types import HashPlan, hash_plan, is_supported, lance_supports, storage_type
from zonebloom.bloom.hashing.values import dictionary_hashes, hash_array, hash_each, hash_values, to_hashes

__all__ = [
    "FixedBuffers",
    "HashPlan",
    "VariableBuffers",
    "column_array",
    "column_path",
    "dictionary_hashes",
    "dotted",
    "fixed_buffers",
    "hash_array",
    "hash_each",
    "hash_plan",
    "hash_values",
    "is_ambiguous",
    "is_supported",
    "lance_supports",
    "leaf_paths",
    "names_of",
    "resolve_column",
    "selected",
    "storage_type",
    "stored_array",
    "to_hashes",
    "validity_of",
    "variable_buffers",
]
