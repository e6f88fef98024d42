"""Lets Spark find the data source `kraftlog` by itself: it imports every package whose name starts with `pyspark_`."""

from kraftlog.analytics.spark_source import KraftlogDataSource as DefaultSource

__all__ = ["DefaultSource"]
