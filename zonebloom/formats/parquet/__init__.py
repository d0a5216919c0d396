"""Parquet files: footers, page indexes, and the pages that hold wanted rows.

Design: docs/design/pages.md
"""
