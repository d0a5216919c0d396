"""Reading the rows that may match: by the driver, by row ranges on executors, or by Spark's own reader."""
