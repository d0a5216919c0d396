"""Bloom filters: Arrow columns become hashes, hashes become filters, filters become zones.

=============  ==================================================================================
module         what lives there
=============  ==================================================================================
``addresses``  row addresses: fragment and row offset in one uint64
``selection``  row ranges, and the three-valued algebra of what may be TRUE or FALSE
``sizing``     parameters of filters; false positive probability of (ndv, blocks), and its inverse
``hashing/``   Arrow values to uint64 hashes
``sbbf``       `Sbbf`, one filter
``physical_values``  the bytes that Parquet hashes for its own filters
``zones/``     one filter for each zone of a column
``kernels/``   the only place that imports Numba
=============  ==================================================================================

Pure: no predicates, no files.
"""
