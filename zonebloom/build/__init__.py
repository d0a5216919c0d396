"""Building: data files to segments, for the first time or after a change.

=============  ============================================================
module         what lives there
=============  ============================================================
``plan``       what a build or refresh has to do: a listing against a version
``apply``      a plan carried out and committed, step by step
``create``     a new column, or an import; a build is a plan that starts empty
``refresh``    the index follows the data set
``fill``       data files to zone segments
``progress``   rows done of all, as a bar or to a function
``advise/``    `whatif`: cost and use of an index, from a sample
=============  ============================================================
"""
