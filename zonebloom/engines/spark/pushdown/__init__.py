"""Spark's conditions to predicates, and back."""
