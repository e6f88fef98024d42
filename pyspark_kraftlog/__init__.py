"""Registers the data source `kraftlog` with Spark, which imports every package whose name starts with `pyspark_`."""

from kraftlog.analytics.spark_source import KraftlogDataSource as DefaultSource

__all__ = ["DefaultSource"]
