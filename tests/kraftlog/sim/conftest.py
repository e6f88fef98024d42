"""Runs in the tests' own process log as little as those of `kraftlog sim`."""

from __future__ import annotations

import pytest

from kraftlog.process.logs import configure_logging


@pytest.fixture(autouse=True)
def only_critical_lines(logging_as_before: None) -> None:
    """Every simulated node would log its elections."""
    configure_logging("critical")
