"""Searching: a version of the index and a listing of the data give the row ranges that may match, and their rows.

=================  ===================================================================
module             what lives there
=================  ===================================================================
``selection``      row ranges, and the three-valued algebra of what may be TRUE or FALSE
``zone_bitmap``    sets of zones, combined as bitmaps
``column_reader``  the trusted zones of a column, over all its segments
``freshness``      the data files of a listing: known, changed, new
``snapshot``       a version of the index, as far as it can be trusted
``view``           a snapshot against one listing of the data
``bind``           predicate and view to steps: columns opened, literals hashed
``evaluate``       steps to row ranges, with reasons
``result``         what a search answers, and the counts
``searchable``     data files asked by conditions: search, scan, explain
``opened``         an index as it is opened: that, and all else that it answers
``zone_table``     a zone table that is searched by itself
``own_filters``    files that no index describes, pruned by filters of their own
``lake``           a lake without an index
``scan``           row ranges to the rows that match
``arrow_dataset``  a scan as a pyarrow Dataset, which engines read
``exists``         many values at once; ``locate`` says where each of them may be
``explain``        the funnel of a search, in words; ``status`` what the index covers
``html``           what notebooks and the report show
=================  ===================================================================
"""
