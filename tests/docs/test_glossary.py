"""docs/glossary.md is in order, and what it names is there."""

from __future__ import annotations

import re
from typing import Final

from tests.docs.code_names import is_there
from tests.paths import ROOT

PAGE: Final = (ROOT / "docs" / "glossary.md").read_text()
ENTRIES: Final = dict(re.findall(r"^- \*\*([^*]+)\*\*: ((?:.+\n?)(?:  .+\n?)*)", PAGE, re.MULTILINE))
SOURCES: Final = "\n".join(
    path.read_text()
    for folder in ("kraftbase", "raft", "snapshot", "statemachine", "kraftlog")
    for path in sorted((ROOT / folder).rglob("*.py"))
)
ITALIC: Final = re.compile(r"(?<!\*)\*([^*]+)\*(?!\*)")
OF_KAFKA_ALONE: Final = {"__cluster_metadata"}


def test_it_is_sorted_and_each_word_is_there_once() -> None:
    words = re.findall(r"^- \*\*([^*]+)\*\*", PAGE, re.MULTILINE)
    assert len(words) == len(ENTRIES) > 100
    assert words == sorted(words, key=str.casefold)


def test_each_entry_is_short() -> None:
    assert [word for word, text in ENTRIES.items() if len(text.split()) > 50] == []


def test_words_in_italics_have_an_entry() -> None:
    known = {part for word in ENTRIES for part in (word, *word.split(", "))}
    italic = [" ".join(word.split()) for text in ENTRIES.values() for word in ITALIC.findall(text)]
    assert italic
    assert [word for word in italic if word not in known] == []


def test_the_files_and_names_that_it_cites_are_there() -> None:
    missing = []
    for cited in re.findall(r"`([^`]+)`", PAGE):
        if "/" in cited:
            known = is_there(cited)
        else:
            known = cited in OF_KAFKA_ALONE or re.search(rf"(?<![\w-]){re.escape(cited)}(?![\w-])", SOURCES) is not None
        if not known:
            missing.append(cited)
    assert missing == []
