"""The committed log for data engineers: an export as Parquet, a Spark data source over it, a report.

`export` writes what is committed as immutable Parquet files with a manifest (docs/formats/export.md), `spark_source`
reads them as the Spark data source `kraftlog`, `report` answers questions from it. pyarrow and pyspark are imported
where they are used, so that nothing else needs them.
"""
