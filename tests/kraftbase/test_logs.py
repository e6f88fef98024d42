"""Loggers for other people's programs write nothing to standard output."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest
import structlog
from structlog.testing import capture_logs

from kraftbase.logs import LibraryLogger


@pytest.fixture
def unconfigured() -> Iterator[None]:
    """Structlog as in a program that does not configure it."""
    configured, config = structlog.is_configured(), structlog.get_config()
    structlog.reset_defaults()
    yield
    if configured:
        structlog.configure(**config)


def test_without_a_configuration_the_standard_librarys_logging_gets_all(
    unconfigured: None, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    logger = LibraryLogger("raft.observe")
    logger.debug("a")
    logger.info("b", node="n:1")
    logger.warning("c", node=2, reason="r")
    assert caplog.record_tuples == [
        ("raft.observe", logging.DEBUG, "a"),
        ("raft.observe", logging.INFO, "b node=n:1"),
        ("raft.observe", logging.WARNING, "c node=2 reason=r"),
    ]
    assert capsys.readouterr().out == ""


def test_with_one_structlog_gets_all() -> None:
    with capture_logs() as lines:
        LibraryLogger("raft.observe").info("b", node="n:1")
    assert lines == [{"event": "b", "node": "n:1", "log_level": "info"}]
