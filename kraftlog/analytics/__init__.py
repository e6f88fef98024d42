"""The committed log for data engineers: an export as Parquet, a Spark data source over it, a report.

`export` writes committed records as immutable Parquet files with a manifest (docs/formats/export.md), `spark_source`
reads them as the Spark data source `kraftlog`, and `report` computes a report from it. pyarrow and pyspark are imported
where they are used, so that the rest of kraftlog does not need them.
"""
