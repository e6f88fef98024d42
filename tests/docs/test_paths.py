"""What the pages name is there: files, modules, functions, links. So pages stay true when code moves.

A page may name a function with its file, as "`Replica.step` in `raft/core/replica.py`"; then the file must define it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.docs.code_names import has_dotted, is_there, names_in
from tests.paths import ROOT

PACKAGES: Final = ("kraftbase", "raft", "snapshot", "statemachine", "kraftlog", "pyspark_kraftlog")
FOLDERS: Final = (*PACKAGES, "kraftpb", "proto", "docs", "tests", "examples", "tools")
PAGES: Final = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

FENCED: Final = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"`([^`\n]+)`")
PATH: Final = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./*-]*")
MODULE: Final = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.[A-Za-z_]\w*)+")
MESSAGE: Final = re.compile(r"kraftpb\.v1\.(\w+)")
LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
IN_A_FILE: Final = re.compile(r"((?:`[\w.]+`(?:, and |, | and | or ))*`[\w.]+`) in `([\w/]+\.py)`")
HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)

PROTO: Final = "\n".join(path.read_text() for path in (ROOT / "proto").rglob("*.proto"))


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


def prose(page: Path) -> str:
    """The page without what it shows in blocks."""
    return FENCED.sub("", page.read_text())


def anchor(heading: str) -> str:
    """The name by which a link finds a heading, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")


def missing_paths(text: str) -> list[str]:
    return [path for path in CODE.findall(text) if PATH.fullmatch(path) and not is_there(path)]


def missing_modules(text: str) -> list[str]:
    return [name for name in CODE.findall(text) if MODULE.fullmatch(name) and not has_dotted(name)]


def missing_messages(text: str) -> list[str]:
    names = [match[1] for code in CODE.findall(text) if (match := MESSAGE.fullmatch(code))]
    return [name for name in names if not re.search(rf"^ *(?:message|enum|service) {name} ", PROTO, re.MULTILINE)]


def missing_functions(text: str) -> list[str]:
    """Those that are not in the file in which the text says that they are."""
    found = []
    for names, path in IN_A_FILE.findall(" ".join(text.split())):
        defined = names_in(ROOT / path) if is_there(path) else frozenset()
        found += [f"{name} in {path}" for name in CODE.findall(names) if name not in defined]
    return found


def broken_links(page: Path) -> list[str]:
    found = []
    for link in LINK.findall(prose(page)):
        if "://" in link:
            continue
        path, _, wanted = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (
            wanted and target.suffix == ".md" and wanted not in map(anchor, HEADING.findall(target.read_text()))
        ):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_what_a_page_names_is_there(page: Path) -> None:
    text = prose(page)
    assert missing_paths(text) == []
    assert missing_modules(text) == []
    assert missing_messages(text) == []
    assert missing_functions(text) == []


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page) == []


@pytest.mark.parametrize(
    ("find", "text"),
    [
        (missing_paths, "`raft/core/nowhere.py`"),
        (missing_modules, "`raft.core.nowhere`"),
        (missing_modules, "`raft.listener.Nobody`"),
        (missing_messages, "`kraftpb.v1.Nothing`"),
        (missing_functions, "`Replica.step` and `Replica.nothing` in\n`raft/core/replica.py`"),
        (missing_functions, "`step` in `raft/core/nowhere.py`"),
    ],
)
def test_what_is_not_there_is_found(find, text: str) -> None:
    assert find(text)


@pytest.mark.parametrize("find", [missing_paths, missing_modules, missing_messages, missing_functions])
def test_what_is_there_is_passed(find) -> None:
    assert not find(
        "`raft/core/`, `tests/raft`, `proto/kraftpb/v1/*.proto`, `raft.core.replica`, `raft.listener.Listener`,"
        " `kraftpb.v1.BatchBody`; `Replica.step`, and `Replica` in `raft/core/replica.py`; `log.dir`, `a/b`"
    )
