"""Thrift's compact protocol: what is written is read, and bytes that are nothing end with an error.

Files of pyarrow, arrow-rs and parquet-java are read in tests/formats/test_pages.py.
"""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.depth import at_depth
from zonebloom.errors import DataFileError
from zonebloom.formats.parquet import thrift
from zonebloom.formats.parquet.column_mapping import renamed_footer
from zonebloom.formats.parquet.schema import read_schema


@settings(max_examples=at_depth(300), deadline=None)
@given(st.binary(max_size=200), st.integers(0, 12))
def test_thrift_of_any_bytes_ends_with_a_value_or_its_own_error(data, kind):
    calls = [
        lambda: thrift.read_struct(data),
        lambda: thrift.skip(data, 0, kind),
        lambda: thrift.find_field(data, 0, 4),
        lambda: thrift.read_list_header(data, 0),
        lambda: thrift.read_int(data, 0),
        lambda: thrift.write_struct(thrift.written_fields(data, 0)[0]),
        lambda: thrift.written_structs(data),
    ]
    for call in calls:
        try:
            call()
        except thrift.ThriftError:
            continue


_SCHEMA = thrift.write_list(
    thrift.STRUCT,
    [
        thrift.write_struct({4: (thrift.BINARY, b"schema"), 5: (thrift.I32, 2)}),
        thrift.write_struct({1: (thrift.I32, 2), 3: (thrift.I32, 1), 4: (thrift.BINARY, b"id"), 9: (thrift.I32, 1)}),
        thrift.write_struct({3: (thrift.I32, 1), 4: (thrift.BINARY, b"tags"), 5: (thrift.I32, 1), 6: (thrift.I32, 3)}),
        thrift.write_struct({3: (thrift.I32, 2), 4: (thrift.BINARY, b"list"), 5: (thrift.I32, 1)}),
        thrift.write_struct({1: (thrift.I32, 6), 3: (thrift.I32, 1), 4: (thrift.BINARY, b"element")}),
    ],
)
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
    element = thrift.write_struct({4: (thrift.I64, 1 << 40)})  # as many bytes, if it were taken for a size
    root = thrift.write_struct({4: (thrift.BINARY, b"schema"), 5: (thrift.I32, 1)})
    footer = thrift.write_struct({2: (thrift.LIST, thrift.write_list(thrift.STRUCT, [root, element]))})
    with pytest.raises(thrift.ThriftError, match="must have a name"):
        read_schema(footer)


def test_an_element_with_two_names_is_refused():
    """Readers take the last name, which would stay."""
    element = thrift.write_struct({4: (thrift.BINARY, b"first")})[:-1] + b"\x08\x08\x04last" + thrift.STOP
    root = thrift.write_struct({4: (thrift.BINARY, b"schema"), 5: (thrift.I32, 1)})
    footer = thrift.write_struct({2: (thrift.LIST, thrift.write_list(thrift.STRUCT, [root, element]))})
    with pytest.raises(DataFileError, match="each field once"):
        renamed_footer(footer, read_schema(footer), lambda _: "new", "a.parquet")


numbers, texts, floats = st.integers(-(2**63), 2**63 - 1), st.binary(max_size=20), st.floats(allow_nan=False)
flat = {1: numbers, 2: texts, 4: st.booleans(), 7: floats, 40: st.lists(numbers, max_size=40), 40_000: texts}
structs = st.recursive(
    st.fixed_dictionaries({}, optional=flat),
    lambda inner: st.fixed_dictionaries({}, optional={3: inner, 5: st.lists(inner, max_size=20), 300: numbers}),
    max_leaves=8,
)


def written(value: dict[int, Any]) -> bytes:
    fields: dict[int, Any] = {}
    for field, member in sorted(value.items()):
        if isinstance(member, bytes):
            fields[field] = thrift.BINARY, member
        elif isinstance(member, bool):
            fields[field] = thrift.TRUE if member else thrift.FALSE, b""
        elif isinstance(member, float):
            fields[field] = thrift.DOUBLE, struct.pack("<d", member)
        elif isinstance(member, int):
            fields[field] = thrift.I64, member
        elif isinstance(member, dict):
            fields[field] = thrift.STRUCT, written(member)
        elif member and isinstance(member[0], dict):
            fields[field] = thrift.LIST, thrift.write_list(thrift.STRUCT, [written(part) for part in member])
        else:
            fields[field] = thrift.LIST, thrift.write_list(thrift.I64, member)
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
