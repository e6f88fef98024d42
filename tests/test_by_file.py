"""Files that share running nodes, or Java, are run by one process of tests, one after the other."""

from __future__ import annotations

from itertools import groupby

import pytest

from tests.by_file import SHARED, SPARK, scope_of
from tests.paths import ROOT


def test_each_file_is_a_scope_and_so_is_each_package_that_shares_nodes() -> None:
    assert scope_of("tests/process/test_up.py") == "tests/process/test_up.py"
    for package in SHARED:
        assert 'scope="package"' in (ROOT / package / "conftest.py").read_text()
        assert {scope_of(str(path.relative_to(ROOT))) for path in (ROOT / package).glob("test_*.py")} == {package}
    assert len({scope_of(path) for path in SPARK}) == 1
    assert all((ROOT / path).exists() for path in SPARK)


def test_the_tests_of_a_scope_come_one_after_the_other(request: pytest.FixtureRequest) -> None:
    scopes = [scope for scope, _ in groupby(scope_of(item.nodeid.partition("::")[0]) for item in request.session.items)]
    assert len(scopes) == len(set(scopes))
