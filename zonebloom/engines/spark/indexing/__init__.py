"""Building and refreshing an index on the executors."""
