"""Decodes a pyarrow Expression into calls, fields and literals.

pyarrow has no public way to walk an Expression, but it can pickle one. The pickle holds an Arrow IPC file. The schema's
key-value metadata is the tree in prefix order. The columns of the one record batch are the literals and options. This
form is not documented, so every step is checked. An unknown form raises `UnreadableExpressionError`.

The metadata repeats keys, and `pyarrow.Schema.metadata` would drop the repeated ones. So it is read through the Arrow C
data interface, a published standard.

Design: docs/design/conditions.md#pyarrow-expressions.
"""

from __future__ import annotations

import ctypes
import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from zonebloom.ground.threads import on_deep_stack
from zonebloom.predicates.tree import CHUNK, MAX_DEPTH, balanced, fold

_SMALL = {pa.large_string(): pa.string(), pa.large_binary(): pa.binary()}
_OPTIONS_OF_IS_IN = ["value_set", "null_matching_behavior", "_type_name"]
MATCH, SKIP, EMIT_NULL, INCONCLUSIVE = range(4)
"""How ``is_in`` handles nulls, as its options are serialized."""
_ASSOCIATIVE = frozenset({"and", "and_kleene", "or", "or_kleene"})


class UnreadableExpressionError(Exception):
    """The expression's serialized form is unknown to this module."""


@dataclass(frozen=True, slots=True)
class Field:
    """A reference to a column or, by several names, to a struct leaf."""

    path: tuple[str, ...]
    """The names from the top down."""
    entries: list[Entry]
    """The metadata entries of the node."""


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: pa.Scalar
    """Its value, with its type."""
    entries: list[Entry]
    """The metadata entry of the node."""


@dataclass(slots=True)
class Call:
    """A function of other nodes."""

    function: str
    """Its name in Arrow's registry."""
    arguments: list[Node]
    """Its arguments, in order."""
    options: pa.StructScalar | None
    """Its options, as the function serializes them."""
    entries: list[Entry]
    """The metadata entry of the options, if the call has options."""

    def around(self, arguments: Sequence[list[Entry]]) -> list[Entry]:
        """All entries of the call with these arguments. Options come last: pyarrow reads no argument after them."""
        name = self.function.encode()
        return [(b"call", name), *itertools.chain.from_iterable(arguments), *self.entries, (b"end", name)]


Node: TypeAlias = Field | Literal | Call
Entry: TypeAlias = tuple[bytes, bytes]


@dataclass(frozen=True, slots=True)
class Tree:
    """An expression and its nodes."""

    expression: pc.Expression
    """The whole expression, with long chains of one AND or OR split into parts."""
    root: Node
    """Its node."""
    depth: int
    """Levels of calls; a chain of one AND or OR is one level."""
    batch: pa.RecordBatch
    """The literals and options."""

    def piece(self, node: Node) -> pc.Expression:
        """The expression of one node of this tree, alone.

        Raises
        ------
        UnreadableExpressionError
            pyarrow does not read the piece.
        """
        entries: list[Entry] = []
        columns: list[pa.Array] = []
        for key, value in fold(node, _arguments, _entries):
            if key in (b"literal", b"options"):
                entries.append((key, str(len(columns)).encode()))
                columns.append(self.batch.column(int(value)))
            else:
                entries.append((key, value))
        return _restored(entries, columns or [pa.nulls(1)])  # pyarrow wants a batch of one row


def _arguments(node: Node) -> Sequence[Node]:
    return node.arguments if isinstance(node, Call) else ()


def _entries(node: Node, parts: list[list[Entry]]) -> list[Entry]:
    return node.around(parts) if isinstance(node, Call) else node.entries


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
        Its serialized form is unknown, for example of another version of pyarrow. Or it cannot be serialized, for
        example because it names a field by position.
    """
    try:
        serialized = on_deep_stack(expression.__reduce__)[1][0]  # on 8 MiB pyarrow crashes at 40 000 levels
        written = pa.ipc.open_file(pa.py_buffer(serialized)).get_batch(0)
        entries, batch = _metadata(written.schema), _without_large_nulls(written)
        if batch is not written:
            expression = _restored(entries, batch.columns)
        root = _parsed(entries, batch)
        depth, num_inner = _shape(root)
        if num_inner >= CHUNK and depth <= 2 * MAX_DEPTH:
            columns = [*batch.columns, pa.nulls(1, pa.bool_())]
            batch = pa.record_batch(columns, [str(i) for i in range(len(columns))])
            entries = _in_parts(root, str(len(columns) - 1).encode())
            expression, root = _restored(entries, columns), _parsed(entries, batch)
        return Tree(expression, root, depth, batch)
    except UnreadableExpressionError:
        raise
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError, AttributeError, struct.error) as error:
        raise UnreadableExpressionError(str(error)) from error


def with_lists_of_sql(expression: pc.Expression) -> pc.Expression:
    """`expression` with each ``is_in`` as SQL's IN: NULL for null, and for what is not listed beside a null.

    By default ``is_in`` is never NULL.

    Raises
    ------
    UnreadableExpressionError
        As `take_apart`.
    """
    tree = take_apart(expression)
    return _restored(fold(tree.root, _arguments, _entries), [_with_list_of_sql(column) for column in tree.batch])


def _with_list_of_sql(options: pa.Array) -> pa.Array:
    """A literal or the options of a call; those of ``is_in`` with SQL's handling of nulls."""
    if not pa.types.is_struct(options.type) or [field.name for field in options.type] != _OPTIONS_OF_IS_IN:
        return options
    nulls = pa.array([INCONCLUSIVE], options.type[1].type)
    return pa.StructArray.from_arrays([options.field(0), nulls, options.field(2)], _OPTIONS_OF_IS_IN)


def _without_large_nulls(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The literals, with nulls of large types in the small ones: pyarrow 26 follows a null pointer to compare them."""
    is_large_null = [column.null_count > 0 and column.type in _SMALL for column in batch]
    if not any(is_large_null):
        return batch
    columns = [
        column.cast(_SMALL[column.type]) if is_it else column
        for column, is_it in zip(batch, is_large_null, strict=True)
    ]
    return pa.record_batch(columns, batch.schema.names)


def _operands(node: Node) -> Sequence[Node]:
    """The arguments of a call; for a chain of one associative function those of the whole chain."""
    if not isinstance(node, Call) or node.function not in _ASSOCIATIVE:
        return _arguments(node)
    operands: list[Node] = []
    waiting: list[Node] = [node]
    while waiting:
        part = waiting.pop()
        if isinstance(part, Call) and part.function == node.function:
            waiting.extend(reversed(part.arguments))
        else:
            operands.append(part)
    return operands


def _shape(root: Node) -> tuple[int, int]:
    """The number of levels of chains, and the number of calls that are merged into their parent's chain."""

    def visit(node: Node, parts: list[tuple[int, int]]) -> tuple[int, int]:
        num_merged = len(parts) - len(node.arguments) if isinstance(node, Call) else 0  # each adds one operand
        depth = max((depth for depth, _ in parts), default=0)
        return depth + isinstance(node, Call), num_merged + sum(inner for _, inner in parts)

    return fold(root, _operands, visit)


def _in_parts(root: Node, null: bytes) -> list[Entry]:
    """Entries of the same values, with chains as balanced trees, and ``coalesce(…, NULL)`` around each 64 operands.

    Design: docs/design/conditions.md#to-expression
    """

    def barred(part: list[Entry]) -> list[Entry]:
        return [(b"call", b"coalesce"), *part, (b"literal", null), (b"end", b"coalesce")]

    def visit(node: Node, parts: list[list[Entry]]) -> list[Entry]:
        if isinstance(node, Call) and node.function in _ASSOCIATIVE:
            return balanced(parts, lambda left, right: node.around((left, right)), barred)
        return _entries(node, parts)

    return fold(root, _operands, visit)


def _parsed(entries: Sequence[Entry], batch: pa.RecordBatch) -> Node:
    """The tree of entries in prefix order; ``end`` closes a call. Iterative, so chains may have any depth."""
    top = Call("", [], None, [])
    opened = [top]
    rest = iter(entries)
    for key, value in rest:
        if key == b"options":
            opened[-1].options = batch.column(int(value))[0]
            opened[-1].entries.append((key, value))
        elif key == b"call":
            call = Call(value.decode(), [], None, [])
            opened[-1].arguments.append(call)
            opened.append(call)
        elif key != b"end":
            opened[-1].arguments.append(_atom(key, value, rest, batch))
        elif (function := opened.pop().function.encode()) != value or not opened:
            raise UnreadableExpressionError(f"call {function!r} ends as {value!r}")
    if len(opened) > 1 or len(top.arguments) != 1 or top.options is not None:
        raise UnreadableExpressionError("the entries must be one expression")
    return top.arguments[0]


def _atom(key: bytes, value: bytes, rest: Iterator[Entry], batch: pa.RecordBatch) -> Node:
    """The literal or field of an entry; a nested field takes the entries of its path from `rest`."""
    if key == b"literal":
        return Literal(batch.column(int(value))[0], [(key, value)])
    if key == b"field_ref":
        return Field((value.decode(),), [(key, value)])
    if key != b"nested_field_ref":
        raise UnreadableExpressionError(f"entry {key!r} is unknown")
    steps = list(itertools.islice(rest, int(value)))
    if not steps or len(steps) != int(value) or any(step != b"field_ref" for step, _ in steps):
        raise UnreadableExpressionError(f"a nested field of depth {int(value)} is followed by {steps!r}")
    return Field(tuple(name.decode() for _, name in steps), [(key, value), *steps])


class _ArrowSchema(ctypes.Structure):
    """The head of ``struct ArrowSchema`` of the Arrow C data interface."""

    _fields_ = (("format", ctypes.c_char_p), ("name", ctypes.c_char_p), ("metadata", ctypes.c_void_p))


def _metadata(schema: pa.Schema) -> list[Entry]:
    """The schema's key-value metadata in order, repeated keys included.

    The C data interface stores native int32: the number of pairs, then for each pair the key and the value. Each text
    is its length and its bytes.
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
