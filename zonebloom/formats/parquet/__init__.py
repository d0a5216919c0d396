"""Parquet files: footers, page indexes, and the pages that hold wanted rows.

Spec: specs/pages.md
"""
