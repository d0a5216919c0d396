"""Thrift's compact protocol: what is written is read, and bytes that are nothing end with an error.

Files of pyarrow, arrow-rs and parquet-java are read in tests/formats/test_pages.py.
"""

from __future__ import annotations

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


_VALUES = st.one_of(
    st.tuples(st.just(thrift.I64), st.integers(-(2**62), 2**62)),
    st.tuples(st.just(thrift.BINARY), st.binary(max_size=20)),
    st.tuples(st.sampled_from([1, 2]), st.just(b"")),
    st.tuples(st.just(7), st.binary(min_size=8, max_size=8)),
    st.tuples(st.just(thrift.STRUCT), st.just(thrift.write_struct({3: (thrift.BINARY, b"inner")}))),
)


@given(st.dictionaries(st.integers(0, 40_000), _VALUES, max_size=8))
def test_a_struct_that_is_cut_into_fields_and_written_again_has_the_same_bytes(fields):
    written = thrift.write_struct(dict(sorted(fields.items())))
    cut, stop = thrift.written_fields(written + b"more", 0)
    assert stop == len(written)
    assert thrift.write_struct(cut) == written
    for end in range(len(written)):
        with pytest.raises(thrift.ThriftError):
            thrift.written_fields(written[:end], 0)


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
    with pytest.raises(DataFileError, match="must have one name"):
        renamed_footer(footer, read_schema(footer), lambda _: "new", "a.parquet")


numbers = st.integers(-(2**63), 2**63 - 1)
structs = st.recursive(
    st.fixed_dictionaries({}, optional={1: numbers, 2: st.binary(max_size=20), 40: st.lists(numbers, max_size=40)}),
    lambda inner: st.fixed_dictionaries({}, optional={3: inner, 5: st.lists(inner, max_size=20), 300: numbers}),
    max_leaves=8,
)


def written(value: dict[int, Any]) -> bytes:
    fields: dict[int, Any] = {}
    for field, member in sorted(value.items()):
        if isinstance(member, bytes):
            fields[field] = thrift.BINARY, member
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
def test_thrift_reads_what_it_wrote(value):
    data = written(value)
    assert thrift.read_struct(data) == (value, len(data))
    assert thrift.skip(data, 0, thrift.STRUCT) == len(data)
