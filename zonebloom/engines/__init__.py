"""Where other engines come in: Spark."""
