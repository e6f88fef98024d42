"""One Spark for all tests that need one: it takes seconds to start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from kraftlog.analytics.export import export
from kraftlog.analytics.session import local_spark
from tests.kraftlog.analytics.logs import MemorySource, small_log

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    session = local_spark()
    yield session
    session.stop()


@pytest.fixture(scope="session")
def small_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small log in several files; tests only read it."""
    directory = tmp_path_factory.mktemp("export")
    asyncio.run(export(MemorySource(small_log()), directory, rows_per_file=8))
    return directory
