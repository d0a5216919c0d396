"""Making and changing an index: builds, merges, older versions, proofs, exchange with other formats.

=================  ============================================================
module             content
=================  ============================================================
``plan``           the work of a build or refresh: a listing against a version
``apply``          a plan carried out and committed, step by step
``create``         a new column, or an import; a build is a plan that starts empty
``refresh``        the index follows the data set
``fill``           data files to segments
``adopt``          Parquet's own filters as zones; ``adopt_lance`` Lance's zones
``progress``       rows done of all, as a bar or to a function
``optimize``       zone segments and small slice groups to full slice groups
``versions``       older versions: list, restore, vacuum
``verify``         data re-read against the filters
``export``         a whole zone table; ``lance_export`` as an index of Lance
``lance_audit``    the rows that a Lance table's own index loses
``whatif/``        cost and use of an index, from a sample that is built
=================  ============================================================
"""
