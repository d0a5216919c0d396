r"""Bytes as text in DuckDB's form: printable ASCII is unchanged, any other byte is ``\xAA``.

The backslash and both quotes are written as ``\x5C``, ``\x27`` and ``\x22``, so different bytes have different texts.
"""

from __future__ import annotations

import re

_ESCAPED = {byte: f"\\x{byte:02X}" for byte in range(256) if not 32 <= byte < 127 or chr(byte) in "\\'\""}  # noqa: PLR2004 - ASCII
_ESCAPE = re.compile(rb"\\(?:x([0-9A-Fa-f]{2}))?")


def text_of(blob: bytes) -> str:
    r"""The text of `blob`; `blob_of` converts it back.

    Examples
    --------
    >>> print(text_of(b"abc\x00\xff"))
    abc\x00\xFF
    """
    return blob.decode("latin-1").translate(_ESCAPED)


def blob_of(text: str) -> bytes:
    r"""The bytes of `text`; characters outside of ASCII become UTF-8.

    Raises
    ------
    ValueError
        A backslash is not followed by ``x`` and two hex digits.
    """
    return _ESCAPE.sub(_byte, text.encode())


def _byte(match: re.Match[bytes]) -> bytes:
    if match[1] is None:
        raise ValueError(r"a backslash must begin \x and two hex digits, and be written as \x5C itself")
    return bytes.fromhex(match[1].decode())
