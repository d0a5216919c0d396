"""What zonebloom costs and gains, measured: `python -m bench.build` and so on; `bench.report` writes the tables."""
