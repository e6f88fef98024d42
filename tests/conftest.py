"""What holds for every test, and what a run of all of them must have hit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pytest
import structlog

from raft.core.errors import ErrorCode, ProtocolError
from sim.marks import ERRORS as HIT_BY_SEEDS

raised: Final[set[ErrorCode]] = set()
NEVER_RAISED: Final = {
    ErrorCode.NONE,
    ErrorCode.UNKNOWN_TOPIC_ID,  # it is in an answer's part, which its tests look at
    ErrorCode.UNSUPPORTED_VERSION,  # only others answer with it
}


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command run in the test's process sets up logging; the next one would log to a closed capture."""
    before, last_resort = structlog.get_config(), logging.lastResort
    yield
    structlog.configure(**before)
    logging.lastResort = last_resort


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note every error code that is raised from now on."""
    init = ProtocolError.__init__

    def noted(self: ProtocolError, code: ErrorCode, message: str) -> None:
        raised.add(code)
        init(self, code, message)

    ProtocolError.__init__ = noted  # type: ignore[method-assign]


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A run of all tests in which an error code never came up has failed: nobody knows whether it would be right."""
    is_whole = session.config.args_source is pytest.Config.ArgsSource.TESTPATHS and not any(
        session.config.getoption(name) for name in ("keyword", "markexpr", "collectonly", "lf")
    )
    missing = set(ErrorCode) - NEVER_RAISED - set(HIT_BY_SEEDS) - raised
    if is_whole and exitstatus == pytest.ExitCode.OK and missing:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        names = ", ".join(sorted(code.name for code in missing))
        reporter = session.config.pluginmanager.get_plugin("terminalreporter")
        reporter.write_line(f"\nno test came to these error codes: {names}", red=True)
