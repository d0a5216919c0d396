"""Literals of text, bytes and UUIDs."""

from __future__ import annotations

import binascii
from typing import Final

import numpy as np
import pyarrow as pa

from zonebloom.ground.arrow import compute as pc
from zonebloom.predicates.coerce.reasons import Part, misfit

HEX_ID: Final = r"^([0-9A-Fa-f]{2}){8,}$"
"""A text that spells bytes: the shortest id that is written in hex has 8 bytes, a span of OpenTelemetry."""


def cast(source: pa.Array, stored: pa.DataType) -> Part:
    """The same values in another layout."""
    return source.cast(stored), None


def _large_binary(source: pa.Array) -> pa.Array:
    return (source.cast(pa.binary()) if pa.types.is_fixed_size_binary(source.type) else source).cast(pa.large_binary())


def bytes_to_bytes(source: pa.Array, stored: pa.DataType) -> Part:
    """The same bytes; those of another length than a fixed size are dropped."""
    source = _large_binary(source)
    if not pa.types.is_fixed_size_binary(stored):
        return source.cast(stored), None
    keep = pc.equal(pc.binary_length(source), stored.byte_width).to_numpy(zero_copy_only=False)
    kept = source.filter(pa.array(keep))
    joined = b"".join(kept.to_pylist())
    return pa.FixedSizeBinaryArray.from_buffers(stored, len(kept), [None, pa.py_buffer(joined)]), keep


def bytes_to_text(source: pa.Array, stored: pa.DataType) -> Part:
    """Bytes as the text that a file would have, which may be no UTF-8."""
    return _large_binary(source).cast(stored, safe=False), None


def text_to_bool(source: pa.Array, stored: pa.DataType) -> Part:
    """`true` and `false`, in any case."""
    texts = [text.lower() for text in source.to_pylist()]
    wrong = np.array([text not in ("true", "false") for text in texts], np.bool_)
    if wrong.any():
        raise misfit(source, stored, wrong)
    return pa.array([text == "true" for text in texts], stored), None


def text_to_bytes(source: pa.Array, stored: pa.DataType) -> Part:
    """The text's UTF-8. A text that may spell the bytes is a misfit: a hex id, or another length than a fixed size."""
    part, keep = bytes_to_bytes(source, stored)
    if keep is None:
        keep = pc.invert(pc.match_substring_regex(source, HEX_ID)).to_numpy(zero_copy_only=False)
    if not keep.all():
        raise misfit(source, stored, ~keep)
    return part, None


def uuid_to_bytes(source: pa.Array, stored: pa.DataType) -> Part:
    """The 16 bytes of a UUID, for a column of exactly 16 bytes."""
    if source.type != stored:
        raise misfit(source, stored)
    return source, None


def text_to_uuid(source: pa.Array, stored: pa.DataType) -> Part:
    """32 hex digits, as Python's `uuid.UUID` reads them: hyphens, braces and a `urn:uuid:` in front change nothing."""
    digits = pc.replace_substring_regex(source.cast(pa.large_string()), "urn:|uuid:", "")
    digits = pc.replace_substring(pc.ascii_trim(digits, "{}"), "-", "")
    wrong = pc.invert(pc.match_substring_regex(digits, "^[0-9A-Fa-f]{32}$")).to_numpy(zero_copy_only=False)
    if wrong.any():
        raise misfit(source, stored, wrong)
    raw = binascii.unhexlify("".join(digits.to_pylist()))
    return pa.FixedSizeBinaryArray.from_buffers(stored, len(source), [None, pa.py_buffer(raw)]), None
