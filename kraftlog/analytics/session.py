"""A Spark for one machine, set up so that the data source `kraftlog` works and times are the log's, in UTC."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kraftbase.errors import ConfigurationError
from kraftlog.analytics.dependencies import require_java, require_pyspark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER_MEMORY: Final = "2g"
"""Spark's own 1 GB is too little to collect a few million rows."""

_LOGGING: Final = Path(__file__).with_name("log4j2.properties")
_SOURCES: Final = Path(__file__).resolve().parents[2]


def local_spark(*, cores: int = 2, driver_memory: str = DRIVER_MEMORY) -> SparkSession:
    """Return a local Spark session with the data source `kraftlog`: the running one, or a new one.

    Takes 6 to 13 seconds. Raises ConfigurationError if Java 17, pyspark or pyarrow is missing. `stop()` it at the end.
    """
    require_pyspark()
    from pyspark.sql import SparkSession

    from kraftlog.analytics.spark_source import KraftlogDataSource

    session = SparkSession.getActiveSession()
    if session is None:
        require_java()
        _set_environment()
        session = _start(cores, driver_memory)
    session.dataSource.register(KraftlogDataSource)
    return session


def _set_environment() -> None:
    """Set the environment of Spark and its Python workers; variables that the user has set stay."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    if str(_SOURCES) not in paths:  # the workers must be able to import this package too
        os.environ["PYTHONPATH"] = os.pathsep.join([str(_SOURCES), *filter(None, paths)])


def _start(cores: int, driver_memory: str) -> SparkSession:
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    from kraftlog.analytics.gateway import start_java

    settings = {
        "spark.app.name": "kraftlog",
        "spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={_LOGGING.as_uri()}",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": driver_memory,
        "spark.master": f"local[{cores}]",
        "spark.sql.adaptive.enabled": "false",  # no gain on one machine; it costs small queries 40 %
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": str(cores),
        "spark.sql.warehouse.dir": str(Path(tempfile.gettempdir()) / "kraftlog-spark-warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    conf = SparkConf().setAll(list(settings.items()))
    try:
        if SparkContext._gateway is None:  # otherwise a Java runs already, from a session that was stopped
            SparkContext(conf=conf, gateway=start_java(settings))
        return SparkSession.builder.config(conf=conf).getOrCreate()
    except PySparkException as error:
        raise ConfigurationError(f"Spark does not start: {error}") from None
