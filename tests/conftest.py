"""What holds for every test: a command run in the test's own process leaves the logging as it was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Otherwise the next test would log to the standard error that this one's capture has closed."""
    before = structlog.get_config()
    yield
    structlog.configure(**before)
