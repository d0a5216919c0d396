"""Thrift's compact protocol: what is written is read, and bytes that are nothing end with an error.

Files of pyarrow, arrow-rs and parquet-java are read in tests/formats/test_pages.py.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from tests.depth import at_depth
from zonebloom.errors import DataFileError
from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.column_mapping import renamed_footer
from zonebloom.formats.parquet.schema import read_schema


@settings(max_examples=at_depth(300), deadline=None)
@given(st.binary(max_size=200), st.integers(0, 12))
def test_thrift_of_any_bytes_ends_with_a_value_or_its_own_error(data, kind):
    calls = [
        *(lambda: thrift.read_struct(data), lambda: thrift.skip(data, 0, kind), lambda: thrift.find_field(data, 0, 4)),
        *(lambda: thrift.read_list_header(data, 0), lambda: thrift.read_int(data, 0)),
        lambda: thrift.write_struct(thrift.written_fields(data, 0)[0]),
        lambda: thrift.written_structs(data),
    ]
    for call in calls:
        try:
            call()
        except thrift.ThriftError:
            continue


def element(name: bytes, *numbers: tuple[int, int]) -> bytes:
    """An element of a schema, and what other fields of it say."""
    fields = {number: (thrift.I32, value) for number, value in numbers} | {4: (thrift.BINARY, name)}
    return thrift.write_struct(dict(sorted(fields.items())))


_ELEMENTS = [
    *(element(b"schema", (5, 2)), element(b"id", (1, 2), (3, 1), (9, 1)), element(b"tags", (3, 1), (5, 1), (6, 3))),
    *(element(b"list", (3, 2), (5, 1)), element(b"element", (1, 6), (3, 1))),
]
_SCHEMA = thrift.write_list(thrift.STRUCT, _ELEMENTS)
_FOOTER = thrift.write_struct({1: (thrift.I32, 2), 2: (thrift.LIST, _SCHEMA), 3: (thrift.I64, 0)})


@settings(max_examples=at_depth(500), deadline=None)
@given(st.lists(st.tuples(st.integers(0, len(_FOOTER) - 1), st.binary(max_size=2)), min_size=1, max_size=3))
def test_a_damaged_schema_gets_new_names_or_is_refused(edits):
    footer = _FOOTER
    for place, piece in edits:
        footer = footer[:place] + piece + footer[place + 1 :]
    try:
        renamed_footer(footer, read_schema(footer), lambda stored: f"new {stored.path[-1]}", "a.parquet")
    except (DataFileError, thrift.ThriftError, UnicodeDecodeError):
        return


def test_a_name_that_is_no_text_is_refused():
    nameless = thrift.write_struct({4: (thrift.I64, 1 << 40)})  # as many bytes, if it were taken for a size
    schema = thrift.write_list(thrift.STRUCT, [element(b"schema", (5, 1)), nameless])
    footer = thrift.write_struct({2: (thrift.LIST, schema)})
    with pytest.raises(thrift.ThriftError, match="must have a name"):
        read_schema(footer)


def test_an_element_with_two_names_is_refused():
    """Readers take the last name, which would stay."""
    twice = element(b"first")[:-1] + b"\x08\x08\x04last" + thrift.STOP
    schema = thrift.write_list(thrift.STRUCT, [element(b"schema", (5, 1)), twice])
    footer = thrift.write_struct({2: (thrift.LIST, schema)})
    with pytest.raises(DataFileError, match="each field once"):
        renamed_footer(footer, read_schema(footer), lambda _: "new", "a.parquet")


numbers, texts, floats = st.integers(-(2**63), 2**63 - 1), st.binary(max_size=20), st.floats(allow_nan=False)
flat = {1: numbers, 2: texts, 4: st.booleans(), 7: floats, 40: st.lists(numbers, max_size=40), 40_000: texts}
structs = st.recursive(
    st.fixed_dictionaries({}, optional=flat),
    lambda inner: st.fixed_dictionaries({}, optional={3: inner, 5: st.lists(inner, max_size=20), 300: numbers}),
    max_leaves=8,
)


KINDS = {bytes: thrift.BINARY, int: thrift.I64, float: thrift.DOUBLE, dict: thrift.STRUCT, list: thrift.LIST}


def spelled(member: Any) -> Any:
    """A value as `thrift.write_struct` takes it."""
    if isinstance(member, float):
        return struct.pack("<d", member)
    if isinstance(member, list):
        kind = thrift.STRUCT if member and isinstance(member[0], dict) else thrift.I64
        return thrift.write_list(kind, [spelled(part) for part in member])
    return written(member) if isinstance(member, dict) else member


def written(value: dict[int, Any]) -> bytes:
    fields: dict[int, Any] = {}
    for field, member in sorted(value.items()):
        flag = thrift.TRUE if member is True else thrift.FALSE
        fields[field] = (flag, b"") if isinstance(member, bool) else (KINDS[type(member)], spelled(member))
    return thrift.write_struct(fields)


@settings(deadline=None)
@given(structs)
def test_a_struct_is_read_skipped_and_cut_into_fields_as_it_was_written(value):
    data = written(value)
    assert thrift.read_struct(data) == (value, len(data))
    assert thrift.skip(data, 0, thrift.STRUCT) == len(data)
    fields, stop = thrift.written_fields(data + b"more", 0)
    assert (thrift.write_struct(fields), stop) == (data, len(data))
    for end in range(0, len(data), 1 + len(data) // 50):
        with pytest.raises(thrift.ThriftError):
            thrift.written_fields(data[:end], 0)
