"""Searching: a version of the index and a listing of the data give the row ranges that may match, and their rows.

=================  ===================================================================
module             content
=================  ===================================================================
``probed_column``  the filters of a column, its zones in order, and the rows that none describes
``freshness``      the data files of a listing: known, changed, new
``view``           a snapshot against one listing of the data
``query``          a predicate on a view: the rows that may match
``probe``          literals to hashes, and hashes to zones
``evaluate``       a predicate to row ranges, with reasons
``result``         the rows that a search keeps, and the counts
``searchable``     data files and conditions: search, scan, explain
``zone_table``     a zone table searched without a data set
``parquet_filters`` files that no index describes, pruned by the filters inside them
``parquet_blooms`` the filters inside files, for people
``unindexed_lake`` a lake without an index
``scan``           row ranges to the rows that match
``arrow_dataset``  a scan as a pyarrow Dataset, which engines read
``exists``         many values at once; ``locate``: the row ranges of each
``explain``        the funnel of a search, in words; ``status``: the covered files
=================  ===================================================================
"""
