"""The index: its files on disk, one version of it opened, and how the next version comes about.

A column has segments, and a segment answers hashes with zones.

=================  ============================================================
module             what lives there
=================  ============================================================
``options``        what a column is built with, and how
``manifest``       the version file: columns, their segments, lists of fragments
``fragments``      the data files that a version describes
``segment``        what a version file says of one segment, and which files it covers
``zone_segment``   filters of zones, as Lance has them
``slices/``        the same bits, transposed
``locator/``       pairs of key and zone, in order of hash
``column_reader``  the trusted zones of a column: each answered by its cheapest sound segment
``snapshot``       a version of the index, as far as it can be trusted
``transaction``    a change set on a version, or why the two overlap
``commit``         a change set on the current version, and again on a later one
``arrow_file``     Arrow files of an index, checked before they are read
``json_fields``    the fields of a version file, checked as they are read
=================  ============================================================

Spec: specs/index-format.md#directory
"""
