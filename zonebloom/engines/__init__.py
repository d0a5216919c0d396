"""Other engines over an index.

=================  ===================================================================
module             what lives there
=================  ===================================================================
``duckdb``         a view; a relation of DuckDB's own reader; a join with keys
``polars``         a LazyFrame that takes the whole predicate
``datafusion``     a table
``iceberg/``       delete and upsert by keys; few files are rewritten
``spark/``         Spark's own reader, row ranges, joins and builds
=================  ===================================================================

DuckDB, Polars and DataFusion share `search.arrow_dataset`, a pyarrow Dataset that needs no engine: `Index.dataset`.

Design: docs/design/engines.md
"""
