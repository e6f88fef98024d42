"""CHANGELOG.md has the version that is in the code, below what is not released."""

from __future__ import annotations

import re
from typing import Final

from kraftlog import __version__
from tests.docs.test_paths import LINK
from tests.paths import ROOT

PAGE: Final = (ROOT / "CHANGELOG.md").read_text()


def test_the_newest_release_is_the_version_and_unreleased_is_on_top() -> None:
    top, newest = re.findall(r"^## (.+)$", PAGE, re.MULTILINE)[:2]
    assert top == "Unreleased"
    assert re.fullmatch(rf"{re.escape(__version__)} - \d{{4}}-\d\d-\d\d", newest)


def test_its_links_lead_to_files() -> None:
    assert [link for link in LINK.findall(PAGE) if not (ROOT / link.partition("#")[0]).is_file()] == []
