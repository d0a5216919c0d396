"""Literals of a predicate to values of a column's type: converted exactly, dropped with proof, or refused.

Filters hold hashes of bytes, so a literal must become the bytes of an equal stored value. There are three outcomes:

1. **It fits**: one value of the column's type equals the literal; that value is probed.
2. **Out of range**: no value of the type can equal the literal (300 in an int8 column). The literal is dropped and
   counted: for Equals and IsIn that proves "no match".
3. **A misfit**: engines disagree whether a row equals the literal (3.5 in an int column, a float32 and 0.1, a text and
   a number). The whole fit has a reason, and prunes nothing.

`plain_hash` is the short cut for one int, text or bytes. Whole arrays are converted at once. Only three kinds are
converted value by value: Decimals that the cast of a whole array refuses, floats for decimal columns, and ints beyond
64 bits.

Spec: specs/hashing.md#fit_values
"""

from __future__ import annotations

from zonebloom.predicates.coerce.fit import Fit, FitOfEach, fit_each, fit_values, plain_hash, value_of

__all__ = ["Fit", "FitOfEach", "fit_each", "fit_values", "plain_hash", "value_of"]
