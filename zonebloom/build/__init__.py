"""Building: data files to segments, at once or in steps, for the first time or after a change.

===============  ============================================================
module           what lives there
===============  ============================================================
``create``       `build_index`, `import_index`
``refresh``      what changed in the data set to new segments
``checkpoints``  building and committing, step by step
``fill``         data files to zone segments
``progress``     rows done of all, as a bar or to a function
``advise/``      `whatif`: cost and use of an index, from a sample
===============  ============================================================
"""
