"""Fuzzers: seeded mutations of what is read, in child processes with limits of memory and time."""
