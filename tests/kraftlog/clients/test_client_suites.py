"""What tools/client_suites.py makes of the output of another client's own tests."""

from __future__ import annotations

import re
import tomllib

import pytest

from tests.paths import ROOT
from tools.client_suites import SUITES, SuiteError, compare, outcomes

OUTPUT = """
=== RUN   TestConn
--- FAIL: TestConn (0.00s)
    --- PASS: TestConn/reads (0.01s)
    --- FAIL: TestConn/joins (0.01s)
--- FAIL: TestElects (1.35s)
--- SKIP: TestKerberos (0.00s)
--- PASS: TestWrites (0.10s)
PASS
"""


def test_of_a_test_with_parts_those_parts_count_that_fail() -> None:
    assert outcomes(OUTPUT, 1) == {
        "TestConn/reads": "PASS",
        "TestConn/joins": "FAIL",
        "TestElects": "FAIL",
        "TestKerberos": "SKIP",
        "TestWrites": "PASS",
    }


def test_an_outcome_behind_a_line_without_an_end_is_found() -> None:
    assert outcomes("\x16=== RUN   TestPrints\nhalf a line\x16--- FAIL: TestPrints (0.00s)\n", 1) == {
        "TestPrints": "FAIL"
    }


@pytest.mark.parametrize(
    ("output", "exit_code", "named"),
    [
        (OUTPUT, 2, "its last test"),
        ("=== RUN   TestPanics\npanic: no", 2, "TestPanics"),
        ("=== RUN   TestExits\n", 0, "TestExits"),
        ("=== RUN   TestKilled\n", -9, "TestKilled"),
    ],
)
def test_a_suite_that_ended_too_early_has_no_outcomes(output: str, exit_code: int, named: str) -> None:
    with pytest.raises(SuiteError, match=f"ended with code {exit_code} in {named}"):
        outcomes(output, exit_code)


@pytest.mark.parametrize(
    ("listed", "unknown", "mended", "missing"),
    [
        ({"TestConn/joins": "groups", "TestElects": "time"}, (), (), ()),
        ({"TestConn/joins": "groups"}, ("TestElects",), (), ()),
        ({"TestConn/joins": "groups", "TestElects": "time", "TestWrites": "x"}, (), ("TestWrites",), ()),
        ({"TestConn/joins": "groups", "TestElects": "time", "TestGone": "x"}, (), (), ("TestGone",)),
    ],
)
def test_what_is_not_as_listed_is_named(
    listed: dict[str, str], unknown: tuple[str, ...], mended: tuple[str, ...], missing: tuple[str, ...]
) -> None:
    result = compare(outcomes(OUTPUT, 1), listed)
    assert (result.unknown, result.mended, result.missing) == (unknown, mended, missing)
    assert result.is_as_listed == (unknown == mended == missing == ())
    assert (result.passed, result.skipped) == (2, 1)


def test_the_page_has_each_suite_and_each_reason() -> None:
    page = (ROOT / "docs" / "operations" / "clients.md").read_text()
    for name, suite in tomllib.loads(SUITES.read_text()).items():
        assert f"{name} {suite['version'].removeprefix('v')}" in page
        for why in suite["failing"].values():
            assert re.split("[: ]", why)[0] in page, why
