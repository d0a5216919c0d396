"""Where other engines come in.

=================  ===================================================================
module             what lives there
=================  ===================================================================
``duckdb``         by name; by DuckDB's own reader; joined with keys
``polars``         a LazyFrame that takes the whole predicate
``datafusion``     by name
``iceberg``        delete and upsert by keys, for which few files are rewritten
``spark/``         Spark's own reader, data source, joins and builds
=================  ===================================================================

DuckDB, Polars and DataFusion share `search.arrow_dataset`, a pyarrow Dataset that needs no engine: `Index.dataset`.

Spec: specs/engines.md
"""
