"""Runs in the tests' own process log as little as those of `kraftlog sim`."""

from __future__ import annotations

import pytest

from kraftlog.process.logs import silence_logging


@pytest.fixture(autouse=True)
def no_lines(all_as_before: None) -> None:
    """Every simulated node would log its elections, and what faults do to it."""
    silence_logging()
