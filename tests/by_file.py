"""Which process of the tests runs which of them."""

from __future__ import annotations

from typing import Final

from xdist.scheduler import LoadScopeScheduling

SPARK: Final = ("tests/kraftlog/analytics/test_spark.py", "tests/kraftlog/cli/test_kafka_export.py")
"""Files that start Java within the process of the tests, where it stays until the end."""


class ByFile(LoadScopeScheduling):
    """A process takes file after file, so what the tests of a file share is made once; Java is started once in all."""

    def _split_scope(self, nodeid: str) -> str:
        path = nodeid.partition("::")[0]
        return "Spark" if path in SPARK else path
