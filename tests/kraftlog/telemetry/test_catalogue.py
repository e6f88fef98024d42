"""docs/operations/metrics.md lists every metric as the catalogue has it."""

from __future__ import annotations

import re
from typing import Final

from kraftlog.telemetry.catalogue import CATALOGUE, KRAFTLOG
from tests.paths import ROOT

PAGE: Final = (ROOT / "docs" / "operations" / "metrics.md").read_text()


def test_the_page_lists_every_metric() -> None:
    listed = re.findall(r"^\| (\S+) \| (\S+) \| (\S+) \| ?(\S*) ?\| (.+) \|$", PAGE, re.MULTILINE)
    assert [row for row in listed if row[2] in ("counter", "gauge", "histogram")] == [
        (of.group, of.name, of.kind.name.lower(), of.label, of.meaning) for of in CATALOGUE
    ]


def test_a_name_is_given_once() -> None:
    assert len({(of.group, of.name) for of in CATALOGUE}) == len(CATALOGUE)


def test_names_of_our_own_do_not_look_like_kafkas_groups() -> None:
    assert {of.group for of in CATALOGUE if of.group.islower() and "-" not in of.group} == {KRAFTLOG}
