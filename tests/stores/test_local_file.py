"""Files that the system reads in pieces: Linux gives at most 2 GiB by one call, some file systems fewer bytes."""

from __future__ import annotations

import os

import pytest

import zonebloom as zb
from tests.lives import assert_every_row_is_found, hundreds, lake_of
from zonebloom.stores import local_file
from zonebloom.stores.local_file import LocalFile, SharedFile

BYTES = bytes(range(256)) * 40


@pytest.fixture
def in_pieces(monkeypatch):
    """At most 1000 bytes by each call."""
    read, read_into = os.pread, os.preadv
    monkeypatch.setattr(
        local_file, "_read_some", lambda number, length, offset: read(number, min(length, 1000), offset)
    )
    monkeypatch.setattr(os, "preadv", lambda number, parts, offset: read_into(number, [parts[0][:1000]], offset))


@pytest.mark.usefixtures("in_pieces")
@pytest.mark.parametrize(("offset", "length"), [(0, len(BYTES)), (7, 1000), (7, 1001), (5000, 9999), (len(BYTES), 1)])
def test_all_bytes_are_read(tmp_path, offset, length):
    (tmp_path / "file").write_bytes(BYTES)
    file, memory, wanted = LocalFile(tmp_path / "file"), bytearray(length), BYTES[offset : offset + length]
    assert file.read_ranges([(offset, length), (0, 3)]) == [wanted, BYTES[:3]]
    assert file.read_into(memoryview(memory), [(offset, length)]) == len(wanted)
    assert memory[: len(wanted)] == wanted
    assert SharedFile(tmp_path / "file").read(offset, length) == wanted
    reader = file.arrow_file()
    reader.seek(offset)
    assert reader.read(length) == wanted


@pytest.mark.usefixtures("in_pieces")
def test_a_lake_lives_and_is_erased_from(tmp_path):
    lake = lake_of(tmp_path, *hundreds(3))
    index = zb.build_index(lake, ["k", "s"], rows_per_zone=10, kind="both")
    assert_every_row_is_found(lake, index, is_fresh=True)
    assert zb.erase(lake, "k", [7, 107]).num_rows_erased == 2
    assert_every_row_is_found(lake, index.newest(), is_fresh=True)
