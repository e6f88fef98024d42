"""Whether there is a Java, and a Kafka, for the tests that start one: the one place that decides, and says why not."""

from __future__ import annotations

import shutil
from functools import cache
from typing import Final

import pytest

from kraftbase.errors import ConfigurationError
from kraftlog.analytics.dependencies import require_java
from tests.paths import ROOT

JARS: Final = ROOT / "build" / "peers" / "kafka"
"""Of an unmodified Kafka."""
TOOLS: Final = JARS / "kafka-tools-4.3.0.jar"


@cache
def why_no_java() -> str | None:
    """Why tests that need Java 17 or newer cannot run here; None if they can. Starts Java once."""
    try:
        require_java()
    except ConfigurationError as error:
        return str(error)
    return None


def why_no_kafka() -> str | None:
    """Why tests that start a program of Kafka's cannot run here; None if they can."""
    if not TOOLS.exists():
        return f"{TOOLS.relative_to(ROOT)} is missing; `make peers` fetches it"
    if shutil.which("java") is None:
        return "there is no java on PATH"
    return why_no_java()


needs_kafka = pytest.mark.skipif(why_no_kafka() is not None, reason=str(why_no_kafka()))
