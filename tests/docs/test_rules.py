"""The rules of docs/rules: what is cited is defined, and what is defined is shown by a test or marked open."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PAGES = ROOT / "docs" / "rules"
FAMILIES = ("RF", "PK", "SN", "LI", "CT", "DB", "TS", "OT", "FM")
SUFFIXES = {".py", ".pxd", ".proto", ".md", ".toml", ".sql", ".txt"}
FAMILY = "|".join(FAMILIES)
CITED = re.compile(rf"\b(?:{FAMILY})-\d+\b")
FUNCTION = re.compile(r"^\s*(?:async )?def (\w+)", re.MULTILINE)
IN_A_NAME = re.compile(rf"(?:^|_)({FAMILY})_?(\d{{2,3}})(?=_|$)", re.IGNORECASE)
DEFINED = re.compile(rf"- \*\*((?:{FAMILY})-\d{{2,3}})\*\* ", re.MULTILINE)
WRITTEN_SO = re.compile(
    r"TEXT\. \*Source:\* TEXT[.)](?: \*Here:\* TEXT[.)])?(?: \*Open:\* (?:not built|followed by)TEXT[.)])?".replace(
        "TEXT", r"(?:(?!\*(?:Source|Here|Open):\*).)+"
    )
)
A_TEXT_ELSEWHERE = re.compile(r"kafka-facts|\btables? \d+\.\d+|\w \(\d{1,2}\.\d{1,2}\)|\(\d{1,2}\.\d{1,2}, [A-Z]{2}-\d")
"""Sections and tables of a text that is not in this repository, such as "table 1.2" and "is parked (2.1)"."""
OTHER_NAMES = "KIP|KAFKA|UTF|CRC|SHA|DIR"
"""What is before a dash and a number in names that are no ids of rules: Kafka's, encodings, and examples of a page."""
ID_ELSEWHERE = re.compile(
    rf"(?<![\w-])(?:(?!(?:{FAMILY}|{OTHER_NAMES})-)[A-Z]{{1,6}}-\d{{1,4}}|[A-Z]{{2}}\d{{2,3}})[a-z]?(?![\w-])"
)
"""Ids of rules that no page defines, such as "R-06", "GC-1" and "JV966": letters that name no family, and a number."""
NAMED_ELSEWHERE = re.compile(rf"^test_(?!(?:{FAMILY})_?\d)[a-z]{{1,3}}_?\d{{2,3}}(?:_|$)", re.IGNORECASE)
"""Names of tests that begin with such an id: `test_w04_...`."""


class Rule(NamedTuple):
    """A rule as its page has it."""

    rule_id: str
    text: str

    @property
    def is_open(self) -> bool:
        return "*Open:*" in self.text


class Source(NamedTuple):
    """A file that may cite rules, and what it cites."""

    path: str
    text: str
    written: frozenset[str]
    """The ids in the text, and in `cited` also those in the names of its tests."""
    cited: frozenset[str]

    @property
    def is_a_test(self) -> bool:
        return self.path.startswith("tests/")


def rules_on(page: str) -> list[Rule]:
    """The rules of a page: items of a list that begin with an id; other lines are for people only."""
    starts = list(DEFINED.finditer(page))
    rules = []
    for start in starts:
        item = page[start.end() :].split("\n- ")[0].split("\n\n")[0]
        rules.append(Rule(start[1], " ".join(item.split())))
    return rules


def cited_by(path: Path, text: str) -> Iterator[str]:
    """The ids in a file's text, and in the names of its tests: `test_rf15_...` names RF-15."""
    yield from CITED.findall(text)
    if path.suffix == ".py" and path.name.startswith("test_"):
        for name in FUNCTION.findall(text):
            for family, number in IN_A_NAME.findall(name):
                yield f"{family.upper()}-{number}"


@cache
def rules(family: str) -> list[Rule]:
    return rules_on((PAGES / f"{family}.md").read_text())


@cache
def sources() -> list[Source]:
    """Every text of the repository but the pages of rules and this file, which are about ids and not by them."""
    tops = [path for path in sorted(ROOT.iterdir()) if not path.name.startswith(".")]
    paths = [found for top in tops for found in (sorted(top.rglob("*")) if top.is_dir() else [top])]
    return [
        Source(str(path.relative_to(ROOT)), text, frozenset(CITED.findall(text)), frozenset(cited_by(path, text)))
        for path in paths
        if path.suffix in SUFFIXES and path.is_file() and PAGES not in path.parents and path != Path(__file__).resolve()
        for text in [path.read_text()]
    ]


def citing(rule_id: str, found: list[Source]) -> list[str]:
    return [source.path for source in found if rule_id in source.cited]


@pytest.mark.parametrize("family", FAMILIES)
def test_every_rule_that_is_cited_is_defined(family: str) -> None:
    defined = {rule.rule_id for rule in rules(family)}
    cited = {rule_id for source in sources() for rule_id in source.cited if rule_id.startswith(family)}
    assert {rule_id: citing(rule_id, sources()) for rule_id in sorted(cited - defined)} == {}


@pytest.mark.parametrize("family", FAMILIES)
def test_every_rule_that_another_rule_cites_is_defined(family: str) -> None:
    for rule in rules(family):
        for rule_id in CITED.findall(rule.text):
            assert rule_id in {other.rule_id for other in rules(rule_id[:2])}, f"{rule.rule_id} cites it"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rule_is_defined_once_and_on_the_page_of_its_family(family: str) -> None:
    counts = Counter(rule.rule_id for rule in rules(family))
    assert counts, "the page has no rules"
    assert [rule_id for rule_id, count in counts.items() if count > 1 or not rule_id.startswith(family)] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rule_is_named_by_a_test_or_marked_open_and_not_both(family: str) -> None:
    tested = {rule_id for source in sources() if source.is_a_test for rule_id in source.cited}
    untested = [rule.rule_id for rule in rules(family) if not rule.is_open and rule.rule_id not in tested]
    assert untested == [], "let a test that shows it name it, or say *Open:* and why"
    done = [rule.rule_id for rule in rules(family) if rule.is_open and rule.rule_id in tested]
    assert done == [], "a test names it: take *Open:* away"


@pytest.mark.parametrize("family", FAMILIES)
def test_grep_for_an_id_finds_code_and_a_test(family: str) -> None:
    """As it is written on its page: names of tests, with `rf15` for RF-15, do not count here."""
    missing = {}
    for rule in rules(family):
        found = [source for source in sources() if rule.rule_id in source.written]
        has_code = any(not source.is_a_test and not source.path.endswith(".md") for source in found)
        if not rule.is_open and not (has_code and any(source.is_a_test for source in found)):
            missing[rule.rule_id] = [source.path for source in found]
    assert missing == {}, "cite it where the code follows it, and in the docstring of a module of tests"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_rule_says_what_it_is_and_where_it_is_from(family: str) -> None:
    wrong = [rule.rule_id for rule in rules(family) if not WRITTEN_SO.fullmatch(rule.text)]
    assert wrong == [], "docs/rules/README.md shows how a rule is written"


def test_the_index_names_every_family() -> None:
    index = (PAGES / "README.md").read_text()
    assert tuple(re.findall(r"^\| \[([A-Z]{2})\]\(\1\.md\) \|", index, re.MULTILINE)) == FAMILIES


def test_nothing_cites_sections_of_a_text_that_is_not_here() -> None:
    found = [
        f"{source.path}:{number}: {line.strip()}"
        for source in sources()
        if A_TEXT_ELSEWHERE.search(source.text)
        for number, line in enumerate(source.text.splitlines(), 1)
        if A_TEXT_ELSEWHERE.search(line)
    ]
    assert found == [], "cite the rule's id"


def test_nothing_cites_an_id_of_a_family_that_has_no_page() -> None:
    found = [
        f"{source.path}:{number}: {line.strip()}"
        for source in sources()
        if ID_ELSEWHERE.search(source.text)
        for number, line in enumerate(source.text.splitlines(), 1)
        if ID_ELSEWHERE.search(line)
    ]
    assert found == [], "cite a rule of docs/rules, or none"


def test_no_test_is_named_after_an_id_of_a_family_that_has_no_page() -> None:
    tests = [source for source in sources() if source.is_a_test and source.path.endswith(".py")]
    found = [
        f"{source.path}: {name}"
        for source in tests for name in FUNCTION.findall(source.text) if NAMED_ELSEWHERE.match(name)
    ]  # fmt: skip
    assert found == [], "name a rule of docs/rules, or none"


# --- of this file itself ----------------------------------------------------------------------------------------------

A_PAGE = """
- **RF-15** A rule, on two
  lines. *Source:* Raft, 5.2. *Here:* not so.
- **RF-16** Another one. *Source:* `Some.method`. *Open:* not built yet: nothing needs it.

Text that is no rule, about RF-17.
"""


def test_a_rule_goes_on_over_lines_and_ends_with_its_item() -> None:
    first, second = rules_on(A_PAGE)
    assert first == ("RF-15", "A rule, on two lines. *Source:* Raft, 5.2. *Here:* not so.")
    assert (second.rule_id, first.is_open, second.is_open) == ("RF-16", False, True)
    assert WRITTEN_SO.fullmatch(first.text) and WRITTEN_SO.fullmatch(second.text)


@pytest.mark.parametrize(
    "text",
    [
        "A rule.",
        "A rule. *Here:* not so. *Source:* Raft.",
        "A rule. *Source:* Raft. *Open:* later.",
        "A rule. *Source:* Raft. *Source:* Raft.",
    ],
)
def test_a_rule_that_is_written_otherwise_is_found(text: str) -> None:
    assert not WRITTEN_SO.fullmatch(text)


def test_ids_in_names_of_tests_are_cited() -> None:
    names = "def test_rf15_rf_101_x(): ...\nasync def test_sn07(): ...\ndef helper_li20(): ...\n# PK-03, not PK-3x\n"
    assert set(cited_by(Path("test_x.py"), names)) == {"RF-15", "RF-101", "SN-07", "LI-20", "PK-03"}
    assert set(cited_by(Path("x.py"), names)) == {"PK-03"}


@pytest.mark.parametrize("text", ["the rows of table 5.4", "kafka-facts", "is parked (2.1)", "(5.2, CT-11)"])
def test_a_section_of_a_text_elsewhere_is_found(text: str) -> None:
    assert A_TEXT_ELSEWHERE.search(text)


@pytest.mark.parametrize(
    "text", ["at once (R-06).", "a roll (G-02)", "KIP-966; JV966", "(G-12)", "as GC-1 says", "TIER-12", "R-18a", "RF15"]
)
def test_an_id_of_a_family_without_a_page_is_found(text: str) -> None:
    assert ID_ELSEWHERE.search(text)


@pytest.mark.parametrize(
    "text", ["RF-15", "KIP-966", "UTF-16", "KAFKA-4485", "test_rf15_x", "DB-110", "CRC-32C", "SHA-256", "LZ4", "S311"]
)
def test_an_id_of_a_family_and_other_names_are_no_ids_elsewhere(text: str) -> None:
    assert not ID_ELSEWHERE.search(text)


@pytest.mark.parametrize("name", ["test_tc12_x", "test_w04_x", "test_gc_07", "test_jv966_x"])
def test_a_name_with_an_id_of_a_family_without_a_page_is_found(name: str) -> None:
    assert NAMED_ELSEWHERE.match(name)


@pytest.mark.parametrize("name", ["test_rf15_x", "test_db_110_x", "test_a_batch_of_64_x", "test_v2_x", "helper_w04_x"])
def test_other_names_have_no_such_id(name: str) -> None:
    assert not NAMED_ELSEWHERE.match(name)
