"""Joins that read, or shuffle, fewer rows."""
