"""A pyarrow Expression taken apart into calls, fields and literals.

pyarrow shows no way to walk an Expression, but pickles it. The pickle holds an Arrow IPC file: the schema's key-value
metadata is the tree in prefix order, and the columns of its one record batch are the literals and options. None of it
is documented, so every step is checked, and what is not as expected is an `UnreadableExpressionError`.

The metadata repeats keys, which `pyarrow.Schema.metadata` would drop; it is read through the C data interface, whose
layout is a published standard.

Spec: specs/pruning.md#pyarrow-expressions.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.predicates.tree import CHUNK, MAX_DEPTH, balanced

__all__ = ["Call", "Field", "Literal", "Node", "Tree", "UnreadableExpressionError", "take_apart"]


_STACK_BYTES = 64 << 20
"""Room for some 250 000 levels of calls, of some 250 bytes each (pyarrow 26 on x86-64); only what is used is memory."""
_STACKS = threading.Lock()
"""The size of new stacks is one for all threads."""


class UnreadableExpressionError(Exception):
    """The expression's serialized form is not the one this module knows."""


@dataclass(frozen=True, slots=True)
class Field:
    """A reference to a column or, by several names, to a struct leaf."""

    path: tuple[str, ...]
    """The names from the top down."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: pa.Scalar
    """Its value, with its type."""


@dataclass(frozen=True, slots=True)
class Call:
    """A function of other nodes."""

    function: str
    """Its name in Arrow's registry."""
    arguments: tuple[Node, ...]
    """Its arguments, in order."""
    options: pa.StructScalar | None
    """Its options, as the function serializes them."""
    span: tuple[int, int]
    """The metadata entries that it was read from, for `Tree.piece`."""


Node: TypeAlias = Field | Literal | Call


Entry: TypeAlias = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Tree:
    """An expression and its nodes."""

    expression: pc.Expression
    """The whole expression, with long chains of one AND or OR in parts."""
    root: Node
    """Its node."""
    depth: int
    """Levels of calls; a chain of one AND or OR is one level."""
    entries: tuple[Entry, ...]
    """The metadata."""
    batch: pa.RecordBatch
    """The literals and options."""

    def piece(self, call: Call) -> pc.Expression:
        """The expression of one node of this tree, alone.

        Raises
        ------
        UnreadableExpressionError
            pyarrow does not take the piece back.
        """
        entries: list[tuple[bytes, bytes]] = []
        columns: list[pa.Array] = []
        for key, value in self.entries[slice(*call.span)]:
            if key in (b"literal", b"options"):
                entries.append((key, str(len(columns)).encode()))
                columns.append(self.batch.column(int(value)))
            else:
                entries.append((key, value))
        return _restored(entries, columns or [pa.nulls(1)])  # read by no entry, but pyarrow wants a batch of one row


def _restored(entries: list[Entry], columns: list[pa.Array]) -> pc.Expression:
    """The expression of the metadata `entries` and of the literals and options in `columns`."""
    fields = [pa.field(str(i), column.type) for i, column in enumerate(columns)]
    schema = pa.schema(fields, metadata=pa.KeyValueMetadata(entries))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.record_batch(columns, schema=schema))
    restore = pc.scalar(True).__reduce__()[0]
    try:
        expression: pc.Expression = restore(sink.getvalue())
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise UnreadableExpressionError(str(error)) from error
    return expression


def take_apart(expression: pc.Expression) -> Tree:
    """The nodes of `expression`.

    Raises
    ------
    UnreadableExpressionError
        Its serialized form is unknown, as in another version of pyarrow, or it cannot be serialized: a field that is
        referred to by its position.
    """
    try:
        batch = pa.ipc.open_file(pa.py_buffer(_serialized(expression))).get_batch(0)
        entries = _metadata(batch.schema)
        depth, num_inner = _shape(entries)
        if num_inner >= CHUNK and depth <= 2 * MAX_DEPTH:
            columns = [*batch.columns, pa.nulls(1, pa.bool_())]
            batch = pa.record_batch(columns, [str(i) for i in range(len(columns))])
            entries = _in_parts(entries, str(len(columns) - 1).encode())
            expression = _restored(entries, columns)
        return Tree(expression, _parsed(tuple(entries), batch), depth, tuple(entries), batch)
    except UnreadableExpressionError:
        raise
    except (pa.ArrowException, LookupError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise UnreadableExpressionError(str(error)) from error


def _serialized(expression: pc.Expression) -> bytes:
    """The pickle's bytes; pyarrow recurses in C++, and crashes at 40 000 levels on a stack of 8 MiB."""
    with _STACKS:
        usual = threading.stack_size(_STACK_BYTES)
        try:
            with ThreadPoolExecutor(1) as pool:
                found: bytes = pool.submit(expression.__reduce__).result()[1][0]
        finally:
            threading.stack_size(usual)
    return found


_ASSOCIATIVE = frozenset({b"and", b"and_kleene", b"or", b"or_kleene"})


@dataclass(slots=True)
class _Chain:
    """A call that is being read, with those of the same associative function directly within it."""

    function: bytes
    level: int
    """Chains around it, and itself."""
    head: list[Entry]
    """The call, and its options."""
    operands: list[list[Entry]]

    def around(self, function: bytes) -> _Chain:
        """The chain that a call of `function` within this one belongs to."""
        is_same = function == self.function and function in _ASSOCIATIVE
        return self if is_same else _Chain(function, self.level + 1, [(b"call", function)], [])


def _shape(entries: list[Entry]) -> tuple[int, int]:
    """Levels of chains, and the number of calls that are in the chain of the call around them."""
    opened = [_Chain(b"", 0, [], [])]
    depth = num_inner = 0
    for key, value in entries:
        if key == b"call":
            opened.append(opened[-1].around(value))
            depth = max(depth, opened[-1].level)
            num_inner += opened[-1] is opened[-2]
        elif key == b"end":
            opened.pop()
    return depth, num_inner


def _in_parts(entries: list[Entry], null: bytes) -> list[Entry]:
    """Entries of the same values, with chains as balanced trees, and ``coalesce(…, NULL)`` around each 64 operands.

    Spec: specs/pruning.md#to-expression
    """
    opened = [_Chain(b"", 0, [], [])]
    rest = iter(entries)
    for key, value in rest:
        if key == b"call":
            opened.append(opened[-1].around(value))
        elif key == b"options":
            opened[-1].head.append((key, value))
        elif key != b"end":
            steps = itertools.islice(rest, int(value)) if key == b"nested_field_ref" else ()
            opened[-1].operands.append([(key, value), *steps])
        elif (chain := opened.pop()) is not opened[-1]:
            opened[-1].operands.append(_call(chain, (key, value), null))
    return opened[0].operands[0]


def _call(chain: _Chain, end: Entry, null: bytes) -> list[Entry]:
    def joined(*operands: list[Entry]) -> list[Entry]:
        return [*chain.head, *itertools.chain.from_iterable(operands), end]

    def barred(part: list[Entry]) -> list[Entry]:
        return [(b"call", b"coalesce"), *part, (b"literal", null), (b"end", b"coalesce")]

    is_chain = chain.function in _ASSOCIATIVE
    return balanced(chain.operands, joined, barred) if is_chain else joined(*chain.operands)


@dataclass(slots=True)
class _OpenCall:
    """A call whose end has not been met."""

    first: int
    function: str
    arguments: list[Node]
    options: pa.StructScalar | None = None


def _parsed(entries: tuple[tuple[bytes, bytes], ...], batch: pa.RecordBatch) -> Node:
    """The tree of entries in prefix order; a call lasts until its ``end``. Iterative, for chains of any depth."""
    opened: list[_OpenCall] = []
    i = 0
    while i < len(entries):
        key, value = entries[i]
        if key == b"call":
            opened.append(_OpenCall(i, value.decode(), []))
            i += 1
            continue
        if key == b"options":
            opened[-1].options = batch.column(int(value))[0]
            i += 1
            continue
        if key == b"end":
            node, i = _closed(opened.pop(), value, i), i + 1
        else:
            node, i = _atom(entries, i, batch)
        if opened:
            opened[-1].arguments.append(node)
        elif i == len(entries):
            return node
        else:
            raise UnreadableExpressionError("entries follow the expression's end")
    raise UnreadableExpressionError("the entries end inside a call")


def _closed(call: _OpenCall, name: bytes, end: int) -> Node:
    if name.decode() != call.function:
        raise UnreadableExpressionError(f"call {call.function!r} ends as {name!r}")
    return Call(call.function, tuple(call.arguments), call.options, (call.first, end + 1))


def _atom(entries: tuple[tuple[bytes, bytes], ...], i: int, batch: pa.RecordBatch) -> tuple[Node, int]:
    """The literal or field at entry `i`, and the entry after it."""
    key, value = entries[i]
    if key == b"literal":
        return Literal(batch.column(int(value))[0]), i + 1
    if key == b"field_ref":
        return Field((value.decode(),)), i + 1
    if key != b"nested_field_ref":
        raise UnreadableExpressionError(f"entry {key!r} is unknown")
    end = i + 1 + int(value)
    steps = entries[i + 1 : end]
    if not steps or any(step != b"field_ref" for step, _ in steps) or end > len(entries):
        raise UnreadableExpressionError(f"a nested field of depth {int(value)} is followed by {steps!r}")
    return Field(tuple(name.decode() for _, name in steps)), end


class _ArrowSchema(ctypes.Structure):
    """The head of ``struct ArrowSchema`` of the Arrow C data interface."""

    _fields_ = (
        ("format", ctypes.c_char_p),
        ("name", ctypes.c_char_p),
        ("metadata", ctypes.c_void_p),
    )


def _metadata(schema: pa.Schema) -> list[tuple[bytes, bytes]]:
    """The schema's key-value metadata in order, repeated keys included.

    The C data interface stores it as native int32: the number of pairs, then for each pair its key and its value, each
    as a length and that many bytes.
    """
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype = ctypes.c_void_p
    pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    capsule: Any = schema.__arrow_c_schema__()  # owns the memory: it must outlive the reads below
    address = _ArrowSchema.from_address(pointer(capsule, b"arrow_schema")).metadata
    if not address:
        return []
    offset = address

    def number() -> int:
        nonlocal offset
        value = ctypes.c_int32.from_address(offset).value
        offset += 4
        return value

    def text() -> bytes:
        nonlocal offset
        length = number()
        value = ctypes.string_at(offset, length)
        offset += length
        return value

    return [(text(), text()) for _ in range(number())]
