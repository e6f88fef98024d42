"""docs/README.md lists every page once."""

from __future__ import annotations

from collections import Counter
from typing import Final

from tests.docs.test_paths import LINK
from tests.paths import ROOT

DOCS: Final = ROOT / "docs"
INDEX: Final = DOCS / "README.md"


def test_every_page_is_in_the_index_once() -> None:
    listed = Counter(link for link in LINK.findall(INDEX.read_text()) if not link.startswith(".."))
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md") if page != INDEX}
    assert pages - listed.keys() == set(), "the index lacks them"
    assert [link for link, count in listed.items() if count > 1 or link not in pages] == []
