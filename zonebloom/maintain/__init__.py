"""Keeping an index: commits, merges, older versions, proofs, exchange with others.

===============  ======================================================================
module           what lives there
===============  ======================================================================
``transaction``  a change set on a version, or why the two overlap
``commit``       a change set on the current version, and again on a later one
``optimize``     zone segments and small slice groups to full slice groups
``versions``     older versions: list, restore, vacuum
``verify``       data re-read against the filters
``exchange``     a whole zone table, and the data set's filter
``outputs``      where a file may be written
``report/``      one HTML page with pictures
===============  ======================================================================
"""
