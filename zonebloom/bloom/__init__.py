"""Bloom filters and nothing else: Arrow columns become hashes, hashes become filters, filters become zones.

=============  ==================================================================================
module         what lives there
=============  ==================================================================================
``addresses``  row addresses: fragment and row offset in one uint64
``sizing``     false positive probability of (ndv, blocks), and its inverse
``hashing/``   Arrow values to uint64 hashes
``sbbf``       `Sbbf`, one filter
``parquet``    Parquet's own filters: header, hashed bytes, and a filter of a file that pyarrow opens
``zones/``     one filter for each zone of a column
``kernels/``   the only place that imports Numba
=============  ==================================================================================

Pure: no predicates, and no file but the one that `Sbbf.from_parquet` hands to pyarrow.
"""
