"""Literals of a predicate to values of a column's type: converted exactly, dropped with proof, or refused.

A filter answers for bytes, so a literal must become the very bytes that an equal stored value has. Three outcomes:

1. **It fits**: one value of the column's type equals the literal, and is what gets probed.
2. **Out of range**: no value of the type can equal it (300 in an int8 column). It is dropped, and counted: for
   Equals and IsIn that is a proof of "no match".
3. **A misfit**: whether a row equals it depends on who compares (3.5 in an int column, a float32 and 0.1, a text and
   a number). The whole fit carries a reason, and nothing may be pruned by it.

`plain_hash` is the short cut for one int, text or bytes. Whole arrays are converted at once; value by value only
Decimals that a whole cast refuses, floats for decimal columns, and ints beyond 64 bits.

Spec: specs/hashing.md#fit_values
"""

from __future__ import annotations

from zonebloom.predicates.coerce.fit import Fit, fit_values
from zonebloom.predicates.coerce.plain import plain_hash

__all__ = ["Fit", "fit_values", "plain_hash"]
