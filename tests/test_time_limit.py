"""A test that takes too long ends its process; one that has ended does not. The run ends in either case."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from pytest_timeout import Settings

from tests.paths import ROOT
from tests.time_limit import TimeLimits

SETTINGS: Final = Settings(timeout=0.0, method="thread", func_only=False, disable_debugger_detection=False)


class Ends:
    """What the limits call instead of ending this process.

    It is passed to them once and for all: a patch of the module was undone before they stopped, and once in some
    hundred runs they ended the process in between.
    """

    def __init__(self) -> None:
        self.settings: list[Any] = []
        self.seen = threading.Event()

    def __call__(self, item: pytest.Item, settings: Any) -> None:
        self.settings.append(settings)
        self.seen.set()


@pytest.fixture
def ends() -> Ends:
    """The calls of the limits."""
    return Ends()


@pytest.fixture
def limits(ends: Ends) -> Iterator[TimeLimits]:
    """Limits that are checked all the time and do not end this process."""
    limits = TimeLimits(look_seconds=0.001, end=ends)
    yield limits
    limits.pytest_unconfigure()


def test_a_test_whose_time_is_over_is_ended(limits: TimeLimits, ends: Ends, request: pytest.FixtureRequest) -> None:
    assert limits.pytest_timeout_set_timer(request.node, SETTINGS)
    assert ends.seen.wait(60)


def test_a_test_that_has_ended_has_no_limit_and_the_next_one_has_its_own(
    limits: TimeLimits, ends: Ends, request: pytest.FixtureRequest
) -> None:
    assert limits.pytest_timeout_set_timer(request.node, SETTINGS._replace(timeout=3_600.0))
    assert limits.pytest_timeout_cancel_timer(request.node)
    assert limits.pytest_timeout_cancel_timer(request.node) is None
    another = SETTINGS._replace(disable_debugger_detection=True)
    assert limits.pytest_timeout_set_timer(request.node, another)
    assert ends.seen.wait(60)
    assert set(ends.settings) == {another}


def test_the_limit_by_a_signal_is_left_to_pytest_timeout(limits: TimeLimits, request: pytest.FixtureRequest) -> None:
    assert limits.pytest_timeout_set_timer(request.node, SETTINGS._replace(method="signal")) is None
    assert limits.pytest_timeout_cancel_timer(request.node) is None


def test_a_run_ends_and_fails_when_a_process_of_tests_has_ended(tmp_path: Path) -> None:
    """Pytest-xdist would give the files of that process to the others, even those that are done, and wait for ever."""
    for file in range(12):
        end = "import os; os._exit(1)" if file == 7 else "pass"
        tmp_path.joinpath(f"test_{file}.py").write_text(f"def test_one(): pass\ndef test_another(): {end}\n")
    run = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-c", ROOT / "pyproject.toml", "--rootdir", tmp_path, "-q"),
            *("-p", "no:cacheprovider", "--numprocesses", "2", "--dist", "loadfile", tmp_path),
        ],
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 1, run.stdout + run.stderr
    assert "crashed while running 'test_7.py::test_another'" in run.stdout
