"""Slice segments: the filters of many zones, stored bit by bit, so that a probe reads a few small rows.

Spec: specs/slices.md
"""
