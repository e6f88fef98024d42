"""The README is short, and what it shows is what other pages and the pictures have."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tests.docs.test_paths import FENCED
from tests.paths import ROOT

PAGE: Final = (ROOT / "README.md").read_text()
FIGURES: Final = (ROOT / "docs" / "figures.md").read_text()
FAULTS: Final = "".join((ROOT / "docs" / f"{name}.md").read_text() for name in ("faults", "faults/known-bugs"))
TESTS: Final = (ROOT / "docs" / "internals" / "simulator-and-tests.md").read_text()
LINES_MAX: Final = 120
SENTENCES: Final = 2
COUNTS: Final = (r"\b(\d+) kinds\s+of\s+faults", r"\b(\d+)\s+invariants", r"\b(\d+)\s+(?:known\s+)?bugs")
COUNTS_OF_FAULTS: Final = (COUNTS[0], COUNTS[1], r"There are (\d+): of elections")
FROM_A_REGISTRY: Final = re.compile(r"(?:pip|pipx|uv add|uv tool) (?:install )?(?:-\S+ )*['\"]?kraftlog\b|uvx kraftlog")


def test_it_is_short() -> None:
    assert len(PAGE.splitlines()) <= LINES_MAX


def test_it_begins_with_what_it_is_in_two_sentences() -> None:
    first = PAGE.split("\n\n")[1]
    assert len(re.findall(r"\.(?:\s|$)", first)) == SENTENCES


def test_its_blocks_are_five_commands() -> None:
    commands = "".join(re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)).splitlines()
    assert len(commands) == 5
    assert commands[0] == "make install"
    assert re.search(r"^install: ", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert all(".venv/bin/kraftlog " in command for command in commands[1:])


def test_what_the_demo_printed_is_that_of_its_page() -> None:
    shown = FENCED.findall(PAGE)[-1].splitlines()[1:-1]
    demo = FIGURES.partition("\n## The demo\n")[2].splitlines()
    checks = [line for line in demo if line.startswith("  ✓ ")]
    assert [line for line in shown if line.startswith("  ✓ ")] == checks
    assert shown[-1] in demo
    assert shown[-1].startswith(f"{len(checks)} of {len(checks)} checks held")


def test_it_shows_the_pictures_that_are_drawn_with_their_numbers_as_text() -> None:
    pictures = {path: text for text, path in re.findall(r"!\[([^\]]+)\]\(([^)]+)\)", PAGE)}
    assert sorted(pictures) == ["docs/images/latency.svg", "docs/images/parts.svg"]
    for path, text in pictures.items():
        drawn = (ROOT / path).read_text()
        assert all(number in drawn for number in re.findall(r"\d+", text))


def test_its_counts_are_those_of_the_page_of_faults() -> None:
    counts = [re.findall(count, FAULTS)[0] for count in COUNTS_OF_FAULTS]
    assert [re.findall(count, PAGE)[0] for count in COUNTS] == counts
    assert [re.findall(count, TESTS)[0] for count in COUNTS] == counts


def test_nothing_tells_to_install_the_name_from_a_registry() -> None:
    """There is no release: whoever has the name there is somebody else."""
    texts = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "kraftlog").rglob("*.py")]
    assert [(path.name, found[0]) for path in texts if (found := FROM_A_REGISTRY.search(path.read_text()))] == []


@pytest.mark.parametrize("text", ["pip install 'kraftlog[clients]'", "pip install -U kraftlog", "uvx kraftlog up"])
def test_an_installation_from_a_registry_is_found(text: str) -> None:
    assert FROM_A_REGISTRY.search(text)
