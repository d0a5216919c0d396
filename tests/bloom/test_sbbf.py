"""Sbbf: hash-level and value-level insert and check, folding, union, bytes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from tests import reference
from tests.bloom.test_kernels_sbbf import random_hashes
from zonebloom.bloom.sbbf import Sbbf
from zonebloom.bloom.split_block import bits_in_word, bits_of_hash, block_index, block_indexes, masks
from zonebloom.errors import InvalidArgumentError


def filled(num_blocks, hashes):
    filter_ = Sbbf.with_blocks(num_blocks)
    filter_.insert_hashes(hashes)
    return filter_


@given(st.integers(0, (1 << 64) - 1), st.integers(1, 1 << 22))
def test_block_and_mask_equal_the_reference(hash_, num_blocks):
    hashes = np.array([hash_], np.uint64)
    assert block_indexes(hashes, num_blocks).tolist() == [reference.block_index(hash_, num_blocks)]
    assert masks(hashes).tolist() == [reference.mask(hash_)] == [[1 << bit for bit in bits_of_hash(hash_)]]
    assert [bits_in_word(hashes.astype(np.uint32), word)[0] for word in range(8)] == bits_of_hash(hash_)
    assert block_index(hash_, num_blocks) == reference.block_index(hash_, num_blocks)


@pytest.mark.parametrize(("sizing", "num_blocks"), [("power_of_two", 1024), ("exact", 604), ("parquet", 1024)])
def test_for_ndv_takes_the_sizing(sizing, num_blocks):
    filter_ = Sbbf.for_ndv(8192, 0.00057, sizing=sizing)
    assert filter_.num_blocks == num_blocks
    assert filter_.num_bytes == 32 * num_blocks == len(filter_.to_bytes())


@pytest.mark.parametrize("num_probes", [0, 1, 1024, 1025])
def test_few_hashes_are_checked_like_many(num_probes):
    """Up to 1024 hashes never reach the kernels; both ways give the same answers."""
    filter_ = filled(100, random_hashes(2000))
    probes = random_hashes(num_probes)
    expected = [reference.filter_check(filter_.blocks.tolist(), hash_) for hash_ in probes.tolist()]
    assert filter_.check_hashes(probes).tolist() == expected


def test_values_and_their_nulls():
    filter_ = Sbbf.for_ndv(100, 1e-6)
    filter_.insert(pa.array([1, None, 3], pa.int64()))
    answers = filter_.check(pa.array([3, 2, None, 1], pa.int64()))
    assert answers.equals(pa.array([True, False, None, True]))
    assert filter_.check(pa.array([1], pa.int32())).to_pylist() == [False]
    for values in ([3, 2], np.array([3, 2]), pa.chunked_array([[3], [2]]), pa.chunked_array([[3, 2], []])):
        assert filter_.check(values).to_pylist() == [True, False]
    filter_.insert(range(4, 6))
    assert filter_.check([4, 5, None]).to_pylist() == [True, True, None]


def test_values_of_a_dictionary_and_a_slice():
    filter_ = Sbbf.for_ndv(100, 1e-6)
    filter_.insert(pa.array(["a", "b", None, "c"]).dictionary_encode().slice(1))
    nulls_inside = pa.DictionaryArray.from_arrays(pa.array([0, 1, 2], pa.int8()), pa.array(["c", None, "a"]))
    assert filter_.check(nulls_inside).to_pylist() == [True, None, False]
    assert filter_.check(pa.array(["a", "b", "c"]).slice(1)).to_pylist() == [True, True]


def test_fold_to_fpp_is_the_least_folding_that_meets_it():
    filter_ = filled(1024, random_hashes(500))
    folded = filter_.fold_to_fpp(0.001)
    assert folded.fpp() <= 0.001 < folded.fold().fpp()
    assert folded.num_blocks < 1024
    full = filled(4, random_hashes(500))
    assert full.fold_to_fpp(0.001) is full


def test_union_equals_inserting_both():
    left, right = random_hashes(100), random_hashes(100)
    united = filled(20, left)
    united |= filled(20, right)
    assert united == filled(20, np.concatenate([left, right]))


def test_bytes_are_little_endian_words_in_order():
    filter_ = filled(3, random_hashes(20))
    words = b"".join(word.to_bytes(4, "little") for block in filter_.blocks.tolist() for word in block)
    assert filter_.to_bytes() == words
    assert Sbbf.from_bytes(words) == filter_


def test_the_bitset_of_the_spec():
    hash_ = 0x9F29CB17A2A49995
    bitset = "00000008 00000002 00000002 00000200 00000004 00000008 40000000 00010000"
    assert bitset in (Path(__file__).parents[2] / "specs" / "sbbf.md").read_text("utf-8")
    assert filled(1, np.array([hash_], np.uint64)).to_bytes() == bytes.fromhex(bitset)
    assert block_indexes(np.array([hash_], np.uint64), 4) == [2]


def test_from_bytes_copies():
    bitset = bytearray(32)
    filter_ = Sbbf.from_bytes(bitset)
    filter_.insert_hashes(random_hashes(1))
    assert bitset == bytes(32)
    assert filter_ != Sbbf.from_bytes(bitset)


@pytest.mark.parametrize("num_bytes", [0, 1, 31, 33, 3000])
def test_bitsets_of_a_wrong_size_are_refused(num_bytes):
    with pytest.raises(InvalidArgumentError, match=f"32 bytes times .*, got {num_bytes} bytes"):
        Sbbf.from_bytes(bytes(num_bytes))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Sbbf(np.zeros((2, 7), np.uint32)), r"got uint32 of shape \(2, 7\)"),
        (lambda: Sbbf(np.zeros((2, 8), np.int32)), "got int32"),
        (lambda: Sbbf(bytes(32)), "got bytes"),
        (lambda: Sbbf.with_blocks(0), "num_blocks must be"),
        (lambda: Sbbf.with_blocks((1 << 22) + 1), "num_blocks must be"),
        (lambda: Sbbf.for_ndv(10, 1.0), "fpp must be"),
        (lambda: Sbbf.for_ndv(10, 0.1, sizing="large"), "sizing must be"),
        (lambda: Sbbf.with_blocks(4).fold(3), "factor must divide the 4 blocks, got 3"),
        (lambda: Sbbf.with_blocks(4).fold_to_fpp(0), "fpp must be"),
        (lambda: Sbbf.with_blocks(4).__ior__(Sbbf.with_blocks(2)), "fold the larger one"),
        (lambda: Sbbf.with_blocks(4).insert_hashes(np.zeros(2, np.int64)), "hashes must be .* uint64"),
        (lambda: Sbbf.with_blocks(4).check_hashes(np.zeros(2)), "hashes must be .* uint64"),
        (lambda: Sbbf.with_blocks(4).check(7), "values must be an array or a list .*, got int"),
        (lambda: Sbbf.with_blocks(4).insert([1, "a"]), "a list that pyarrow reads, got list"),
    ],
)
def test_bad_arguments_are_refused(call, message):
    with pytest.raises(InvalidArgumentError, match=message):
        call()


def test_only_filters_unite_and_compare():
    filter_ = Sbbf.with_blocks(1)
    assert filter_ != bytes(32)
    with pytest.raises(TypeError):
        filter_ |= bytes(32)
    with pytest.raises(TypeError):
        hash(filter_)
